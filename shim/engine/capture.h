// Stream capture: work submitted to a capturing stream is recorded, not run.
#pragma once

#include "shim/device/cuda_api.h"

namespace lms::engine {

// Called when a capture was begun or ended, on any stream.
void capture_began();
void capture_ended();

// Whether any stream is.
bool capturing_anywhere();

// Whether `stream` is capturing. One load while nothing is.
bool capturing(CUstream stream);

}  // namespace lms::engine
