// A simulated GPU may have a clock of its own (tools/simcuda), which all its processes share.
#pragma once

#include "shim/util/gpu_clock.h"

namespace lms::device {

// The driver's, or the machine's.
util::GpuClock gpu_clock();

}  // namespace lms::device
