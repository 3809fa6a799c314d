// Kernel launches.
#pragma once

#include "tools/simcuda/runtime/call.h"

namespace simcuda::runtime {

// cudaLaunchKernel, in both forms. `entry` is whatever Registry::kernel accepts.
template <Form form>
cudaError_t launch(const void* entry, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                   cudaStream_t stream);

}  // namespace simcuda::runtime
