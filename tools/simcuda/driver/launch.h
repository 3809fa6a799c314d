// From a launch call to a kernel operation.
#pragma once

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/function.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class Context;
class Stream;

struct LaunchShape {
    unsigned grid[3];
    unsigned block[3];
    unsigned dynamic_shared_bytes;
    bool cooperative;
    unsigned cluster[3] = {0, 0, 0};   // blocks, as the launch asks; 0: it does not
    bool cluster_comes_later = false;  // it may yet
};

// Checks the launch against what the kernel and the device allow and packs the parameters, from `parameters`
// (one pointer each) or `extra` (a buffer). Throws Failure: CUDA_ERROR_INVALID_VALUE,
// CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_CLUSTER_SIZE,
// CUDA_ERROR_OUT_OF_MEMORY
// (local memory), or CUDA_ERROR_NOT_SUPPORTED for a kernel with an instruction that is not simulated, which
// is named on stderr.
KernelOp make_launch(Context& context, CUfunction function, const LaunchShape& shape, void* const* parameters,
                     void* const* extra);

// The stream a kernel is given to; throws Failure with CUDA_ERROR_INVALID_CONTEXT for one of another context.
std::shared_ptr<Stream> launch_stream(Context& context, CUstream handle, bool per_thread);

// Blocks of this size that fit one multiprocessor at once.
unsigned blocks_per_multiprocessor(const Function& function, unsigned threads,
                                   std::size_t dynamic_shared_bytes);

}  // namespace simcuda::driver
