// Calls that need no current context, or only for the default streams.
#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

SIM_TEST("no context: stream-ordered memory in a stream that is named", {}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    const std::size_t before = free_bytes();
    OK(cuCtxSetCurrent, nullptr);
    CUdeviceptr p = 0, q = 0;
    for (const CUstream of_context : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync, &p, 4096, of_context);
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocFromPoolAsync, &p, 4096, pool, of_context);
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemFreeAsync, p, of_context);
    }
    OK(cuMemAllocAsync, &p, 4096, stream);
    OK(cuMemAllocFromPoolAsync, &q, 4096, pool, stream);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemAllocAsync, &q, 4096, reinterpret_cast<CUstream>(&pool));
    OK(cuMemFreeAsync, p, stream);
    OK(cuMemFreeAsync, q, stream);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuStreamSynchronize, stream);
    EXPECT(free_bytes() == before);
}

SIM_TEST("no context: captures of a stream that is named", {}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuCtxSetCurrent, nullptr);
    CUstreamCaptureStatus status{};
    cuuint64_t id = 0;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamIsCapturing, nullptr, &status);
    OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamIsCapturing, stream, &status);
    OK(cuStreamGetCaptureInfo, stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(id != 0);
    OK(cuStreamUpdateCaptureDependencies, stream, nullptr, nullptr, 0, 0);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    OK(cuGraphDestroy, graph);
}

SIM_TEST("no context: memory of a stream is of the stream's device", {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    for (const CUcontext current : {CUcontext{}, other}) {
        OK(cuCtxSetCurrent, current);
        CUdeviceptr p = 0;
        OK(cuMemAllocAsync, &p, 4096, stream);
        int device = -1;
        OK(cuCtxSetCurrent, gpu.context);
        OK(cuPointerGetAttribute, &device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p);
        EXPECT(device == 0);
    }
}

// JAX's vmm allocator marks so that a stream is done with a buffer, from threads of its own.
SIM_TEST("no context: values written and awaited in a stream that is named", {}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUdeviceptr word = 0;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc, &word, 8);
    OK(cuMemsetD8, word, 0, 8);
    OK(cuCtxSetCurrent, nullptr);
    CUstreamBatchMemOpParams item{};
    item.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    item.writeValue.address = word + 4;
    item.writeValue.value = 7;
    for (const CUstream of_context : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamWriteValue64, of_context, word, 1, 0);
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamWaitValue32, of_context, word, 0, 0);
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamBatchMemOp, of_context, 1, &item, 0);
    }
    OK(cuStreamWriteValue32, stream, word, 5, 0);
    OK(cuStreamWaitValue32, stream, word, 5, CU_STREAM_WAIT_VALUE_EQ);
    OK(cuStreamBatchMemOp, stream, 1, &item, 0);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuStreamSynchronize, stream);
    std::uint64_t seen = 0;
    OK(cuMemcpyDtoH, &seen, word, sizeof seen);
    EXPECT(seen == (std::uint64_t{7} << 32 | 5));
}

SIM_TEST("no context: arrays are destroyed", {}) {
    const Gpu gpu;
    CUarray array = nullptr;
    const CUDA_ARRAY_DESCRIPTOR shape{16, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuArrayCreate, &array, &shape);
    OK(cuCtxSetCurrent, nullptr);
    OK(cuArrayDestroy, array);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, array);
}

}  // namespace
