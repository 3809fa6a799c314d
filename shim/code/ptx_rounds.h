// How often a loop goes round at most, and so how far its counters come. Pure.
#pragma once

#include "shim/code/ptx_known.h"

namespace lms::code {

// At the head of a loop what it does not change is what it was outside; its counters are that, and what
// the rounds add.
void bound_counters(const PtxSteps::Loop& loop, const KnownAt& outside, KnownAt& head);

}  // namespace lms::code
