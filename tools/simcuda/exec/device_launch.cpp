// CUDA's device runtime for kernels that launch kernels: __cudaCDP2*.
#include "tools/simcuda/exec/device_functions.h"
#include "tools/simcuda/exec/dynamic_parallelism.h"
#include "tools/simcuda/exec/uninterrupted.h"

namespace simcuda::exec {
namespace {

constexpr u32 kSuccess = 0;       // cudaSuccess
constexpr u32 kInvalidValue = 1;  // cudaErrorInvalidValue

}  // namespace

u64 device_prepare_launch(sc_thread* thread, u64 kernel, const u32* grid, const u32* block,
                          u32 shared_bytes) {
    const Uninterrupted uninterrupted(thread);
    return Block::of(thread).children().prepare(kernel, grid, block, shared_bytes);
}

u32 device_launch(sc_thread* thread, u64 parameters, u64 stream) {
    const Uninterrupted uninterrupted(thread);
    return Block::of(thread).children().launch(parameters, stream) ? kSuccess : kInvalidValue;
}

}  // namespace simcuda::exec
