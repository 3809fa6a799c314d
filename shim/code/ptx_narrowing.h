// What a comparison says of the numbers that it compares, and of those that these were computed from. Pure.
#pragma once

#include "shim/code/ptx_known.h"

namespace lms::code {

// Leaves what is known where the predicate is so. False: it cannot be.
bool narrow_where(PtxKnown& known, RegisterId predicate, bool when);

// What PtxCompute::Select gives: each of the two as far as its condition lets it be chosen.
ValueRange selected(PtxKnown& known, const PtxStep& select);

}  // namespace lms::code
