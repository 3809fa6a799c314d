// What a kernel's loops count, and what they compare as they go on. Pure.
#pragma once

#include <vector>

#include "shim/code/ptx_steps.h"

namespace lms::code {

// Of PtxFlow's loops, in their order; all but PtxSteps::loops is known.
std::vector<PtxSteps::Loop> loops_of(const PtxSteps& steps);

}  // namespace lms::code
