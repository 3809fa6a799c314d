// What a simulated GPU says of itself (tools/simcuda): a clock of its own, which all its processes share, and
// whether it has any but this one.
#pragma once

#include "shim/util/gpu_clock.h"

namespace lms::device {

// The driver's, or the machine's.
util::GpuClock gpu_clock();

// Whether another process may use the same GPUs.
bool others_use_gpus();

}  // namespace lms::device
