// Calls of threads that have no current context, or that of another GPU, on a stream that is named.
#include "tests/entry/rig.h"

using namespace rig;

namespace {

constexpr std::size_t kMany = 6;

// Allocates and frees in `stream` with `current` current, more than the GPU holds in all.
void check_stream_ordered(CUcontext own, CUcontext current, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr buffers[2 * kMany] = {};
    OK(cuCtxSetCurrent, current);
    for (std::size_t i = 0; i < 2 * kMany; ++i) {
        if (i % 2 == 0) {
            OK(cuMemAllocAsync, &buffers[i], kBuffer, stream);
        } else {
            OK(cuMemAllocFromPoolAsync, &buffers[i], kBuffer, pool, stream);
        }
    }
    OK(cuCtxSetCurrent, own);
    for (std::uint32_t i = 0; i < 2 * kMany; ++i) {
        int device = -1;
        OK(cuPointerGetAttribute, &device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, buffers[i]);
        EXPECT(device == 0);
        const auto data = pattern(kBuffer, i);
        OK(cuMemcpyHtoDAsync_v2, buffers[i], data.data(), kBuffer, stream);
        OK(cuStreamSynchronize, stream);
    }
    for (std::uint32_t i = 0; i < 2 * kMany; ++i) {
        std::vector<std::uint8_t> data(kBuffer);
        OK(cuMemcpyDtoHAsync_v2, data.data(), buffers[i], kBuffer, stream);
        OK(cuStreamSynchronize, stream);
        EXPECT(data == pattern(kBuffer, i));
    }
    OK(cuCtxSetCurrent, current);
    for (const CUdeviceptr buffer : buffers) OK(cuMemFreeAsync, buffer, stream);
    OK(cuCtxSetCurrent, own);
    OK(cuStreamSynchronize, stream);
    cuuint64_t used = 1;
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    EXPECT(used == 0);
}

}  // namespace

FAMILY_TEST("no context: stream-ordered memory in a stream that is named is managed, and freed whole") {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    for (int round = 0; round < 3; ++round) check_stream_ordered(gpu.context, nullptr, pool, stream);
    OK(cuCtxSetCurrent, nullptr);
    CUdeviceptr p = 0;
    for (const CUstream of_context : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync, &p, kBuffer, of_context);
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocFromPoolAsync, &p, kBuffer, pool, of_context);
    }
}

BODY(no_context_elsewhere) {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    CUcontext other = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    check_stream_ordered(gpu.context, other, pool, stream);
}

TEST_CASE("no context: stream-ordered memory is of the stream's GPU, whichever is current") {
    run_both("no_context_elsewhere", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}
