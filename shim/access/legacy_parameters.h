// Launch parameters that are set beforehand, for a function, by cuParamSet*.
#pragma once

#include <cstddef>

#include "shim/session/submit.h"

namespace lms::access {

// Thread-safe. `bytes` of `data` were set at `offset` in the parameter block of `function`.
void set_parameters(CUfunction function, std::size_t offset, const void* data, std::size_t bytes);

// Adds to `reach` the addresses in the parameter block of `function`.
void add_parameters(session::WorkingSet& reach, CUfunction function);

}  // namespace lms::access
