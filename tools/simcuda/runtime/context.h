// Devices and contexts of the calling thread.
#pragma once

#include "tools/simcuda/runtime/driver.h"

namespace simcuda::runtime {

// Makes sure the thread has a current context: the one it has, or the primary context of its device. Throws
// Failure with what retaining it failed with.
void require_context(const Driver& cu);

// The device the thread works on: that of its current context, else what cudaSetDevice said, else 0.
int current_device(const Driver& cu);

// The primary context of a device, retained once for the process. Throws Failure.
CUcontext primary_context(const Driver& cu, int device);

}  // namespace simcuda::runtime
