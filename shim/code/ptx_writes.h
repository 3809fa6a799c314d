// Which words of its parameters a kernel's writes go to, from its PTX.
//
// Each value is followed to the parameters that had a part in it, whatever was computed with them, through
// registers, memory and calls, without regard to the order of instructions. An instruction that may write
// memory, or is not known to only read it, writes by all that had a part in its address; by all there is
// where none had. As for hidden addresses (ptx_taint.h), an offset that was loaded from memory, where
// something else than this kernel left it, does not lead out of a buffer.
#pragma once

#include "shim/code/parameter_words.h"
#include "shim/code/ptx_body.h"

namespace lms::engine {

// Of a kernel that hides no addresses.
ParameterWords written_words(const PtxModuleText& module, const PtxBodies& kernel);

}  // namespace lms::engine
