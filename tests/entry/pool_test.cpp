// Memory pools, the device's and the program's own: what is taken from them is managed, and they say so.
#include <unistd.h>

#include <cstdint>

#include "tests/entry/overlay/record.h"
#include "tests/entry/rig.h"

using namespace rig;

namespace {

CUmemoryPool default_pool(const Gpu& gpu) {
    CUmemoryPool pool = nullptr;
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    return pool;
}

CUmemoryPool own_pool(const Gpu& gpu, std::size_t limit = 0) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    properties.maxSize = limit;
    CUmemoryPool pool = nullptr;
    OK(cuMemPoolCreate, &pool, &properties);
    return pool;
}

std::uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t value = 0;
    OK(cuMemPoolGetAttribute, pool, which, &value);
    return value;
}

CUmemoryPool pool_of(CUdeviceptr address) {
    CUmemoryPool pool = nullptr;
    OK(cuPointerGetAttribute, &pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
    return pool;
}

// Takes more than the GPU has from the pool, uses it all, and gives it back.
template <typename Take, typename Give>
void more_than_the_gpu(CUmemoryPool pool, const Take& take, const Give& give) {
    constexpr std::size_t kCount = 12;
    std::vector<CUdeviceptr> buffers(kCount);
    std::vector<std::uint8_t> out(kBuffer);
    for (std::size_t i = 0; i < kCount; ++i) {
        take(&buffers[i]);
        EXPECT(pool_of(buffers[i] + 5) == pool);
        OK(cuMemcpyHtoD_v2, buffers[i], pattern(kBuffer, i).data(), kBuffer);
    }
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == kCount * kBuffer);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= kCount * kBuffer);
    for (std::size_t i = 0; i < kCount; ++i) {
        OK(cuMemcpyDtoH_v2, out.data(), buffers[i], kBuffer);
        EXPECT(out == pattern(kBuffer, i));
        give(buffers[i]);
    }
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == kCount * kBuffer);
    cuuint64_t zero = 0;
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
}

template <typename Take>
void more_than_the_gpu(CUmemoryPool pool, const Take& take) {
    more_than_the_gpu(pool, take, [](CUdeviceptr address) { OK(cuMemFreeAsync, address, nullptr); });
}

void give_back_ptsz(CUdeviceptr address) {
    OK(cuMemFreeAsync_ptsz, address, nullptr);
}

}  // namespace

FAMILY_TEST("pools: the device's own, named or not") {
    const Gpu gpu;
    const CUmemoryPool pool = default_pool(gpu);
    more_than_the_gpu(pool, [](CUdeviceptr* address) { OK(cuMemAllocAsync, address, kBuffer, nullptr); });
    more_than_the_gpu(
        pool, [&](CUdeviceptr* address) { OK(cuMemAllocFromPoolAsync, address, kBuffer, pool, nullptr); });
}

FAMILY_TEST("pools: one of the program's, named or set for the device", "own-pools") {
    const Gpu gpu;
    const CUmemoryPool pool = own_pool(gpu);
    more_than_the_gpu(
        pool, [&](CUdeviceptr* address) { OK(cuMemAllocFromPoolAsync, address, kBuffer, pool, nullptr); });
    OK(cuDeviceSetMemPool, gpu.device, pool);
    more_than_the_gpu(pool, [](CUdeviceptr* address) { OK(cuMemAllocAsync, address, kBuffer, nullptr); });
    OK(cuDeviceSetMemPool, gpu.device, default_pool(gpu));
    OK(cuMemPoolDestroy, pool);
}

FAMILY_TEST("pools: in the order of the per-thread default stream", "per-thread-pools") {
    const Gpu gpu;
    const CUmemoryPool pool = own_pool(gpu);
    more_than_the_gpu(
        default_pool(gpu), [](CUdeviceptr* address) { OK(cuMemAllocAsync_ptsz, address, kBuffer, nullptr); },
        give_back_ptsz);
    more_than_the_gpu(
        pool,
        [&](CUdeviceptr* address) { OK(cuMemAllocFromPoolAsync_ptsz, address, kBuffer, pool, nullptr); },
        give_back_ptsz);
}

// The driver gives a pool's handle out again.
FAMILY_TEST("pools: a destroyed one's levels are not those of one with its handle", "pool-destroyed") {
    const Gpu gpu;
    for (int i = 0; i < 20; ++i) {
        const CUmemoryPool pool = own_pool(gpu);
        EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
        CUdeviceptr address = 0;
        OK(cuMemAllocFromPoolAsync, &address, kBuffer, pool, nullptr);
        EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == kBuffer);
        OK(cuMemFree_v2, address);
        OK(cuMemPoolDestroy, pool);
    }
}

// That allocates nothing.
FAMILY_TEST("pools: one that is imported at a destroyed one's handle is not taken for that",
            "pool-imported") {
    const Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    CUmemoryPool exported = nullptr;
    OK(cuMemPoolCreate, &exported, &properties);
    int file = -1;
    OK(cuMemPoolExportToShareableHandle, &file, exported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    bool same = false;
    for (int i = 0; i < 100 && !same; ++i) {
        const CUmemoryPool own = own_pool(gpu);
        OK(cuMemPoolDestroy, own);
        CUmemoryPool imported = nullptr;
        OK(cuMemPoolImportFromShareableHandle, &imported,
           reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        same = imported == own;
        CUdeviceptr address = 0;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync, &address, kBuffer, imported, nullptr);
        OK(cuMemPoolDestroy, imported);
    }
    EXPECT(same);
    close(file);
    OK(cuMemPoolDestroy, exported);
}

FAMILY_TEST("pools: memory of no pool, and of cuMemFree", "poolless") {
    const Gpu gpu;
    const Buffer plain(kBuffer, 1);
    EXPECT(pool_of(plain.at()) == nullptr);
    const CUmemoryPool pool = own_pool(gpu);
    CUdeviceptr address = 0;
    OK(cuMemAllocFromPoolAsync, &address, kBuffer, pool, nullptr);
    OK(cuMemFree_v2, address);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    // What was taken from it outlives a pool.
    OK(cuMemAllocFromPoolAsync, &address, kBuffer, pool, nullptr);
    OK(cuMemPoolDestroy, pool);
    OK(cuMemsetD8_v2, address, 7, kBuffer);
    OK(cuMemFree_v2, address);
}

FAMILY_TEST("pools: what is taken from one is its own when another is made or destroyed") {
    const Gpu gpu;
    const CUmemoryPool pool = own_pool(gpu);
    CUdeviceptr address = 0;
    OK(cuMemAllocFromPoolAsync, &address, kBuffer, pool, nullptr);
    const CUmemoryPool other = own_pool(gpu);
    EXPECT(pool_of(address) == pool);
    OK(cuMemPoolDestroy, other);
    EXPECT(pool_of(address) == pool);
    OK(cuMemFreeAsync, address, nullptr);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuMemPoolDestroy, pool);
}

FAMILY_TEST("pools: a limit is the driver's to hold") {
    const Gpu gpu;
    const CUmemoryPool pool = own_pool(gpu, kBuffer);
    CUdeviceptr first = 0, second = 0;
    OK(cuMemAllocFromPoolAsync, &first, kBuffer, pool, nullptr);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync, &second, kBuffer, pool, nullptr);
    OK(cuMemFreeAsync, first, nullptr);
    OK(cuMemPoolDestroy, pool);
}

FAMILY_TEST("pools: the most that was used and the most that was held begin anew each by itself") {
    const Gpu gpu;
    const CUmemoryPool pool = own_pool(gpu);
    CUdeviceptr address = 0;
    OK(cuMemAllocFromPoolAsync, &address, kBuffer, pool, nullptr);
    OK(cuMemFreeAsync, address, nullptr);
    cuuint64_t zero = 0;
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= kBuffer);
    OK(cuMemAllocFromPoolAsync, &address, kBuffer, pool, nullptr);
    OK(cuMemFreeAsync, address, nullptr);
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == kBuffer);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) ==
           attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuMemPoolDestroy, pool);
}

FAMILY_TEST("pools: memory whose free is refused is taken still") {
    const Gpu gpu;
    const CUmemoryPool pool = default_pool(gpu);
    CUdeviceptr address = 0;
    OK(cuMemAllocAsync, &address, kBuffer, nullptr);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemFreeAsync, address, nullptr);
    CUgraph graph = nullptr;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
    EXPECT(pool_of(address) == pool);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == kBuffer);
    OK(cuMemFreeAsync, address, nullptr);
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
}

FAMILY_TEST("pools: none is taken in the legacy stream while a capture forbids it") {
    const Gpu gpu;
    const CUmemoryPool pool = default_pool(gpu);
    const CUmemoryPool own = own_pool(gpu);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    const auto check = [&](auto&& take) {
        OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        CUdeviceptr address = 0;
        EXPECT(take(&address) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        CUgraph graph = nullptr;
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
    };
    check([](CUdeviceptr* address) { return CU(cuMemAllocAsync)(address, kBuffer, nullptr); });
    check([&](CUdeviceptr* address) { return CU(cuMemAllocFromPoolAsync)(address, kBuffer, own, nullptr); });
    EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    EXPECT(attribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuMemPoolDestroy, own);
}

// The driver does not say how much it lacks.
BODY(a_large_request) {
    const Gpu gpu;
    constexpr std::size_t kLarge = 48 * kMiB, kAsked = 160 * kMiB;
    std::vector<CUdeviceptr> buffers(4);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        OK(cuMemAlloc_v2, &buffers[i], kLarge);
        OK(cuMemsetD8_v2, buffers[i], static_cast<unsigned char>(i + 1), kLarge);
    }
    const CUmemoryPool pool = own_pool(gpu, kAsked);
    CUdeviceptr asked = 0;
    OK(cuMemAllocFromPoolAsync, &asked, kAsked, pool, nullptr);
    OK(cuMemsetD8Async, asked, 99, kAsked, nullptr);
    std::vector<std::uint8_t> out(kLarge);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        OK(cuMemcpyDtoH_v2, out.data(), buffers[i], kLarge);
        EXPECT(out == std::vector<std::uint8_t>(kLarge, static_cast<std::uint8_t>(i + 1)));
    }
    OK(cuMemFreeAsync, asked, nullptr);
    OK(cuCtxSynchronize);
}

TEST_CASE("pools: room is made for what the driver is asked for, however much it is") {
    run_both("a_large_request", Driver::Simulated, {{"SIMCUDA_MEMORY", "208M"}});
}

namespace {

CUmemoryPool destroyed = nullptr, made = nullptr;

// Pools until one has the handle of that which is being destroyed.
void make_again(std::size_t limit) {
    const Gpu gpu;
    for (int i = 0; made != destroyed && i < 1000; ++i) made = own_pool(gpu, limit);
}

CUdeviceptr take_from(CUmemoryPool pool) {
    CUdeviceptr address = 0;
    OK(cuMemAllocFromPoolAsync, &address, kBuffer, pool, nullptr);
    return address;
}

}  // namespace

OVERLAY_TEST(
    "pools: one that has a handle before its last pool's destruction is over is managed from then on") {
    const Gpu gpu;
    destroyed = own_pool(gpu);
    overlay::record().handle_free = [] {
        make_again(0);
        take_from(made);
    };
    OK(cuMemPoolDestroy, destroyed);
    EXPECT(made == destroyed);
    EXPECT(attribute(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == kBuffer);
    for (int i = 0; i < 12; ++i) EXPECT(pool_of(take_from(made)) == made);
    EXPECT(attribute(made, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 13 * kBuffer);
}

OVERLAY_TEST("pools: one with a limit is not managed for that its handle was one's without") {
    const Gpu gpu;
    destroyed = own_pool(gpu);
    overlay::record().handle_free = [] {
        make_again(kBuffer);
        take_from(made);
        CUdeviceptr more = 0;
        FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync, &more, kBuffer, made, nullptr);
    };
    OK(cuMemPoolDestroy, destroyed);
    EXPECT(made == destroyed);
}

OVERLAY_TEST("pools: of managed memory, or for decompression, they are the driver's") {
    const Gpu gpu;
    for (const bool decompresses : {false, true}) {
        CUmemPoolProps properties{};
        properties.allocType = decompresses ? CU_MEM_ALLOCATION_TYPE_PINNED : CU_MEM_ALLOCATION_TYPE_MANAGED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
        properties.usage = decompresses ? CU_MEM_CREATE_USAGE_HW_DECOMPRESS : 0;
        CUmemoryPool pool = nullptr;
        OK(cuMemPoolCreate, &pool, &properties);
        const CUdeviceptr address = take_from(pool);
        cuuint64_t of_the_driver = 0;
        EXPECT(SIM(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &of_the_driver) ==
               CUDA_SUCCESS);
        EXPECT(of_the_driver == kBuffer);
        EXPECT(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == kBuffer);
        OK(cuMemFreeAsync, address, nullptr);
        OK(cuMemPoolDestroy, pool);
    }
}
