// Stream-ordered allocation.
#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr std::size_t kMiB = 1 << 20;

CUstream stream_of() {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}

SIM_TEST("pool: memory is freed where the stream frees it",
         {{"SIMCUDA_MEMORY", "16M"}, {"SIMCUDA_H2D_GBPS", "0.5"}}) {
    const Gpu gpu;
    const CUstream stream = stream_of();
    void* host = nullptr;
    OK(cuMemHostAlloc, &host, 8 * kMiB, 0);
    const std::size_t before = free_bytes();
    CUdeviceptr p = 0;
    OK(cuMemAllocAsync, &p, 8 * kMiB, stream);
    OK(cuMemcpyHtoDAsync, p, host, 8 * kMiB, stream);
    OK(cuMemFreeAsync, p, stream);
    EXPECT(free_bytes() == before - 8 * kMiB);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, p, stream);  // twice
    CUdeviceptr q = 0;
    OK(cuMemAllocAsync, &q, 12 * kMiB, stream);  // waits for the free to make room
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync, &p, 8 * kMiB, stream);
    OK(cuMemFreeAsync, q, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(free_bytes() == before);
}

SIM_TEST("pool: a use after the free in the stream faults", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const CUstream stream = stream_of();
    CUdeviceptr p = 0;
    OK(cuMemAllocAsync, &p, 4, stream);
    LAUNCH(kernels["store"], 1, 1, stream, p, 1);
    OK(cuMemFreeAsync, p, stream);
    LAUNCH(kernels["store"], 1, 1, stream, p, 1);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize, stream);
}

SIM_TEST("pool: pools keep account and have limits", {}) {
    const Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.maxSize = 4 * kMiB;
    CUmemoryPool pool = nullptr, current = nullptr, seen = nullptr;
    OK(cuMemPoolCreate, &pool, &properties);
    OK(cuDeviceSetMemPool, gpu.device, pool);
    OK(cuDeviceGetMemPool, &current, gpu.device);
    EXPECT(current == pool);
    CUdeviceptr p = 0, q = 0;
    OK(cuMemAllocAsync, &p, 3 * kMiB, nullptr);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync, &q, 2 * kMiB, nullptr);
    OK(cuPointerGetAttribute, &seen, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    EXPECT(seen == pool);
    cuuint64_t used = 0, high = 0;
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    EXPECT(used == 3 * kMiB);
    OK(cuMemFree, p);  // synchronously, also allowed
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high);
    EXPECT(used == 0);
    EXPECT(high == 3 * kMiB);
    cuuint64_t threshold = 123;
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    threshold = 0;
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    EXPECT(threshold == 123);
    OK(cuMemPoolDestroy, pool);
    OK(cuDeviceGetMemPool, &current, gpu.device);
    CUmemoryPool standard = nullptr;
    OK(cuDeviceGetDefaultMemPool, &standard, gpu.device);
    EXPECT(current == standard);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy, standard);
}

SIM_TEST("pools: what a context leaves behind goes back to its pool", {}) {
    const Gpu gpu;
    CUmemoryPool pool = nullptr;
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    CUcontext context = nullptr;
    OK(cuCtxCreate, &context, nullptr, 0, gpu.device);
    const CUstream stream = stream_of();
    CUdeviceptr p = 0;
    OK(cuMemAllocAsync, &p, kMiB, stream);
    cuuint64_t used = 0;
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    EXPECT(used == kMiB);
    OK(cuCtxDestroy, context);
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    EXPECT(used == 0);
}

SIM_TEST("pools: access of other devices is kept and answered", {{"SIMCUDA_DEVICES", "3"}}) {
    const Gpu gpu;
    CUmemoryPool pool = nullptr;
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    const auto access = [&](int device) {
        CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
        CUmemAccess_flags flags{};
        OK(cuMemPoolGetAccess, &flags, pool, &location);
        return flags;
    };
    EXPECT(access(0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(access(1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc wanted{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemPoolSetAccess, pool, &wanted, 1);
    EXPECT(access(1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(access(2) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    wanted.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemPoolSetAccess, pool, &wanted, 1);
    EXPECT(access(1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    wanted.location.id = 0;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess, pool, &wanted, 1);
    wanted.location.id = 3;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess, pool, &wanted, 1);
    wanted = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAccess, pool, &wanted, 1);
}

SIM_TEST("pools: none is taken in the legacy stream while a blocking stream is captured", {}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemAllocAsync, &address, 4096, nullptr);
    CUgraph graph = nullptr;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
    OK(cuMemAllocAsync, &address, 4096, nullptr);
    OK(cuMemFreeAsync, address, nullptr);
}

}  // namespace
