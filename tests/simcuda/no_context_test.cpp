// Calls that need no current context, or only for the default streams.
#include "tests/simcuda/kernels.h"

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

// `api/memory.cpp` has who says so.
SIM_TEST("no context: memory is freed, behind the work that uses it, and page-locked memory given back", {}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    const Kernels kernels;
    constexpr unsigned kWords = 1 << 20;
    CUdeviceptr from = 0, to = 0, managed = 0, of_pool = 0;
    void* pinned = nullptr;
    std::vector<std::uint8_t> registered(8192, 3);
    OK(cuMemAlloc, &from, 4 * kWords);
    OK(cuMemAlloc, &to, 4 * kWords);
    OK(cuMemAllocManaged, &managed, 4096, CU_MEM_ATTACH_GLOBAL);
    OK(cuMemAllocAsync, &of_pool, 4096, nullptr);
    OK(cuMemHostAlloc, &pinned, 4096, 0);
    OK(cuMemHostRegister, registered.data(), registered.size(), 0);
    for (int i = 0; i < 10; ++i) LAUNCH(kernels["increment"], kWords / 256, 256, nullptr, to, from, kWords);
    OK(cuCtxSetCurrent, nullptr);
    for (const CUdeviceptr p : {from, to, managed, of_pool}) {
        OK(cuMemFree, p);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, p);
    }
    OK(cuMemFreeHost, pinned);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, pinned);
    OK(cuMemHostUnregister, registered.data());
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, registered.data());
    EXPECT(registered == std::vector<std::uint8_t>(8192, 3));
    // What belongs to nobody has no context either.
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemFree, 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc, &from, 4096);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetAddressRange, &from, nullptr, to);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuCtxSynchronize);
    OK(cuModuleUnload, kernels.module);
    EXPECT(free_bytes() == before);
}

SIM_TEST("no context: what has a handle is destroyed by it", {}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUmipmappedArray levels = nullptr;
    CUlinkState linker = nullptr;
    CUtexObject texture = 0;
    const CUDA_ARRAY3D_DESCRIPTOR shape{16, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    const std::size_t before = free_bytes();
    const Kernels kernels;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &event, 0);
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphInstantiate, &exec, graph, 0);
    OK(cuMipmappedArrayCreate, &levels, &shape, 2);
    OK(cuLinkCreate, 0, nullptr, nullptr, &linker);
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4096);
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {p, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4096};
    const CUDA_TEXTURE_DESC sampling{};
    OK(cuTexObjectCreate, &texture, &resource, &sampling, nullptr);
    LAUNCH(kernels["store"], 1, 1, stream, p, 1u);

    OK(cuCtxSetCurrent, nullptr);
    OK(cuModuleUnload, kernels.module);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload, kernels.module);
    OK(cuStreamDestroy, stream);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy, stream);
    OK(cuEventDestroy, event);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy, event);
    OK(cuGraphExecDestroy, exec);
    OK(cuMipmappedArrayDestroy, levels);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy, levels);
    OK(cuLinkDestroy, linker);
    // These are numbers in a context.
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuTexObjectDestroy, texture);
    OK(cuMemFree, p);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuTexObjectDestroy, texture);
    OK(cuCtxSynchronize);
    EXPECT(free_bytes() == before);
}

SIM_TEST("no context: in one that has failed nothing is given back, in none or another it is",
         {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    const Kernels kernels;
    CUcontext other = nullptr;
    CUdeviceptr there[2] = {}, here = 0;
    OK(cuMemAlloc, &here, 4096);
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    OK(cuCtxSetCurrent, other);
    for (CUdeviceptr& p : there) OK(cuMemAlloc, &p, 4096);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuMemFree, there[0]);
    LAUNCH(kernels["store"], 1, 1, nullptr, std::uint64_t{64}, 1u);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree, here);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree, there[1]);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuModuleUnload, kernels.module);
    OK(cuCtxSetCurrent, nullptr);
    OK(cuMemFree, there[1]);
}

}  // namespace
