// Which words of its parameters a kernel's writes go to, from its PTX.
//
// Each value is followed to the parameters that had a part in it, whatever was computed with them, through
// registers, memory and calls, without regard to the order of instructions. An instruction that may write
// memory, or is not known to only read it, writes by all that had a part in its address; by all there is
// where none had. As for hidden addresses (ptx_taint.h), an offset that was loaded from memory, where
// something else than this kernel left it, does not lead out of a buffer.
//
// The same goes for what it reads: each access of global memory is reported with what had a part in its
// address and, if that is a sum (ptx_linear.h), where it begins.
#pragma once

#include "shim/code/kernel_access.h"
#include "shim/code/ptx_body.h"

namespace lms::code {

// Of a kernel that hides no addresses. Accesses that begin within 64 KiB of one another count as one.
KernelAccesses accesses_of(const PtxModuleText& module, const PtxBodies& kernel);

}  // namespace lms::code
