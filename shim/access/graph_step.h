// A node of a graph as a call of its own: what the driver would be given to do it without the graph.
#pragma once

#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

#include "shim/device/cuda_api.h"
#include "shim/session/submit.h"
#include "shim/session/working_set.h"

namespace lms::access {

struct KernelStep {
    CUfunction function;  // or a CUkernel
    CUcontext context;    // it runs in this one; null: that is not known
    unsigned blocks[3];   // of the grid
    unsigned threads[3];  // of a block
    unsigned shared_bytes;
    std::vector<std::byte> bytes;
    std::vector<void*> parameters;  // into `bytes`; none: those are all parameters as one buffer
    session::WorkingSet reach;      // of its arguments
};

// Of a node that does nothing there is nothing.
using GraphStep = std::variant<std::monostate, KernelStep, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS>;

// The forms of before CUDA 12 and of nodes of any type, as the one that says the most.
template <typename Params>
CUDA_KERNEL_NODE_PARAMS_v2 version_2(const Params& kernel) {
    CUDA_KERNEL_NODE_PARAMS_v2 all{
        kernel.func,         kernel.gridDimX,  kernel.gridDimY,  kernel.gridDimZ,
        kernel.blockDimX,    kernel.blockDimY, kernel.blockDimZ, kernel.sharedMemBytes,
        kernel.kernelParams, kernel.extra,     nullptr,          nullptr};
    if constexpr (requires { kernel.kern; }) {
        all.kern = kernel.kern;
        all.ctx = kernel.ctx;
    }
    return all;
}

// Null: the kernel's parameters cannot be told from what lies behind them.
std::shared_ptr<const GraphStep> step_of(const CUDA_KERNEL_NODE_PARAMS_v2& kernel);

// Whether it is no call.
bool is_nothing(const GraphStep& step);

// What the driver is told of a kernel node beside its parameters, and must be told without the graph, too.
std::vector<CUlaunchAttribute> attributes_of(CUgraphNode kernel);

// A node in its place.
struct PlacedStep {
    std::shared_ptr<const GraphStep> step;
    std::vector<CUlaunchAttribute> attributes;  // of a kernel
};
// The nodes of a graph, each behind those it comes after.
using GraphSteps = std::vector<PlacedStep>;

// Whether they do the same in `stream` as in their graph: they are of its context, which is the calling
// thread's; no copy is of host memory alone or of pageable memory, which the caller would wait for; all find
// room in the stream's queue; and none will be refused when others have run.
// False too where a quarter of the kernels names most of what may be on the GPU: each pushes out what the
// next one names.
// And where a kernel may use what it does not name and would be waited for, though the graph as one waits for
// nothing once it has begun.
bool can_run(const GraphSteps& steps, CUstream stream, session::AsOne as_one);

}  // namespace lms::access
