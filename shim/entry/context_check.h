// What the driver would refuse where the shim could answer alone.
#pragma once

#include "shim/device/driver_table.h"

namespace lms::entry {

// The driver's error for any call on memory here and now: without a context, and in a host function, of which
// libgomp learns in this way that it runs in one. CUDA_SUCCESS where there is none.
inline CUresult refusal() {
    CUdevice device = 0;
    return device::driver().cuCtxGetDevice(&device);
}

}  // namespace lms::entry
