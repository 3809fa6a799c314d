// How a kernel comes by the addresses of the global memory that it reads and writes.
#pragma once

#include <vector>

#include "shim/code/parameter_words.h"
#include "shim/code/ptx_linear.h"

namespace lms::code {

// An address that some of its instructions use, other than of variables, shared and local memory.
struct KernelAccess {
    ParameterWords words;  // of the parameters that had a part in it
    Linear begins;         // as far as the sum of those is shown; without terms: not at all
    bool written;          // through it, or that is not known
    bool loaded = false;   // something that was loaded had a part in it, too

    friend bool operator==(const KernelAccess&, const KernelAccess&) = default;
};

// The same of one operand of one of the kernel's own instructions.
struct SeenAccess {
    std::size_t instruction, operand;
    ParameterWords words;
    bool written;
};

struct KernelAccesses {
    ParameterWords written;  // what its writes may go to
    std::vector<KernelAccess> all;
    std::vector<SeenAccess> seen;  // other than by functions that it calls
};

}  // namespace lms::code
