// Memory that the program maps itself, and others: GPUs, processes, network cards, contexts that end.
#include <cstdint>
#include <functional>

#include "tests/entry/own.h"

using namespace rig;

BODY(own_peers) {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    std::vector<std::uint8_t> data(kBuffer);
    for (int round = 0; round < 2; ++round) {
        evict(crowd, a.at(), kBuffer);
        OK(cuCtxSetCurrent, other);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2, a.at(), 3, kBuffer);
        let_in(a.at(), kBuffer, 1);
        unsigned long long flags = 0;
        const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 1};
        OK(cuMemGetAccess, &flags, &location, a.at());
        EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        OK(cuMemsetD8_v2, a.at(), 3, kBuffer);
        OK(cuCtxSynchronize);
        OK(cuCtxSetCurrent, gpu.context);
        evict(crowd, a.at(), kBuffer);
        OK(cuCtxSetCurrent, other);
        OK(cuMemcpyDtoH_v2, data.data(), a.at(), kBuffer);
        EXPECT(data == std::vector<std::uint8_t>(kBuffer, 3));
        let_in(a.at(), kBuffer, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        OK(cuMemGetAccess, &flags, &location, a.at());
        EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
        OK(cuCtxSetCurrent, gpu.context);
        EXPECT(off_device(a.at(), kBuffer) || on_device(a.at(), kBuffer));
        OK(cuMemsetD8_v2, a.at(), 4, kBuffer);
        OK(cuCtxSynchronize);
    }
}

TEST_CASE("own mappings: another GPU reaches what it is let into, wherever that is, and nothing else") {
    run_both("own_peers", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

FAMILY_TEST(
    "own mappings: an exported handle is the driver's from then on, with all it held and is mapped at",
    "app-vmm-exported") {
    const Gpu gpu;
    Crowd crowd;
    CUmemAllocationProp properties = on_gpu();
    const Own plain(kBuffer, 4);
    int file = -1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle, &file, plain.handle(),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    evict(crowd, plain.at(), kBuffer);  // managed still
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const auto handle = create(kBuffer, properties);
    const CUdeviceptr p = reserve(3 * kBuffer);
    map(p, kBuffer, handle);
    map(p + kBuffer, kBuffer, handle);
    write(p, kBuffer, 1);
    evict(crowd, p, kBuffer);
    OK(cuMemExportToShareableHandle, &file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CUmemGenericAllocationHandle imported = 0;
    OK(cuMemImportFromShareableHandle, &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    map(p + 2 * kBuffer, kBuffer, imported);
    for (int i = 0; i < 3; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, 1));
    // What one writes the others read, and it stays where it is.
    write(p + 2 * kBuffer, kBuffer, 2);
    crowd.press();
    EXPECT(on_device(p, 3 * kBuffer));
    for (int i = 0; i < 3; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, 2));
    CUmemGenericAllocationHandle again = 0;
    OK(cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(p + kBuffer));
    EXPECT(again == handle);
    OK(cuMemRelease, again);
    OK(cuMemGetAllocationPropertiesFromHandle, &properties, handle);
    EXPECT(properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cuMemUnmap, p, 2 * kBuffer);
    map(p, kBuffer, handle);
    EXPECT(reads(p, kBuffer, 2));
    OK(cuMemRelease, handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease, handle);
    const std::size_t before = free_on_gpu();
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemUnmap, p + 2 * kBuffer, kBuffer);
    OK(cuMemRelease, imported);
    EXPECT(free_on_gpu() >= before);
    EXPECT(plain.holds(4));
}

FAMILY_TEST("own mappings: a shared handle is not mapped over memory that is out") {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    const auto handle = create_shareable(kBuffer);
    EXPECT(share(handle) == CUDA_SUCCESS);
    evict(crowd, a.at(), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, a.at(), kBuffer, 0, handle, 0);
    EXPECT(a.holds(1));
    OK(cuMemRelease, handle);
}

OVERLAY_TEST("own mappings: what network cards are given, or made synchronous, is the driver's from then on",
             "app-vmm-network") {
    const Gpu gpu;
    Crowd crowd;
    const unsigned on = 1;
    int descriptor = -1;
    const std::function<void(CUdeviceptr)> gives[] = {
        [&](CUdeviceptr p) {
            OK(cuMemGetHandleForAddressRange, &descriptor, p, kBuffer, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
               0);
        },
        [&](CUdeviceptr p) { OK(cuMulticastBindAddr, 1, 0, p, kBuffer, 0); },
        [&](CUdeviceptr p) { OK(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 5); }};
    std::uint32_t seed = 1;
    for (const auto& give : gives) {
        const Own a(kBuffer, seed);
        evict(crowd, a.at(), kBuffer);
        give(a.at());
        EXPECT(on_device(a.at(), kBuffer));
        crowd.press();
        EXPECT(on_device(a.at(), kBuffer));
        EXPECT(a.holds(seed++));
    }
    // By its handle.
    const std::function<void(CUmemGenericAllocationHandle)> binds[] = {
        [&](auto handle) { OK(cuLogicalEndpointBindMem, 1, 0, 0, handle, 0, kBuffer, 0); },
        [&](auto handle) { OK(cuMulticastBindMem_v2, 1, 0, 0, handle, 0, kBuffer, 0); },
        [&](auto handle) { OK(cuMulticastBindMem, 1, 0, handle, 0, kBuffer, 0); }};
    for (const auto& bind : binds) {
        const Own bound(kBuffer, seed);
        evict(crowd, bound.at(), kBuffer);
        bind(bound.handle());
        crowd.press();
        EXPECT(on_device(bound.at(), kBuffer));
        EXPECT(bound.holds(seed++));
    }
    const Own a(kBuffer, 9);
    OK(cuMulticastBindMem, 1, 0, a.handle(), 0, kBuffer, 0);
    // No tile pool is.
    CUarrayMapInfo info{};
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandle.memHandle = a.handle();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync, &info, 1, nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync_ptsz, &info, 1, nullptr);
}

FAMILY_TEST("own mappings: handles of other kinds are the driver's, which is made room for") {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
    CUmemAllocationProp properties = on_gpu();
    properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
    const auto handle = create(kBuffer, properties);
    const CUdeviceptr p = reserve(kBuffer);
    map(p, kBuffer, handle);
    write(p, kBuffer, 1);
    crowd.press();
    EXPECT(on_device(p, kBuffer));
    EXPECT(reads(p, kBuffer, 1));
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemRelease, handle);
    OK(cuMemAddressFree, p, kBuffer);
}

BODY(own_contexts) {
    OK(cuInit, 0);
    CUcontext context = nullptr;
    OK(cuCtxCreate_v2, &context, 0, 0);
    const CUdeviceptr p = reserve(12 * kBuffer);
    std::vector<CUmemGenericAllocationHandle> handles;
    for (std::uint32_t i = 0; i < 12; ++i) {
        handles.push_back(create(kBuffer));
        map(p + i * kBuffer, kBuffer, handles.back());
        write(p + i * kBuffer, kBuffer, i);
    }
    for (int round = 0; round < 3; ++round) {
        // More of its memory moves as the context ends.
        for (std::uint32_t i = 1; i < 12; ++i) bring_in(p + i * kBuffer, kBuffer, nullptr);
        OK(cuCtxSynchronize);
        OK(cuCtxDestroy_v2, context);
        if (round == 0) OK(cuMemUnmap, p, kBuffer);
        if (round == 0) OK(cuMemRelease, handles[0]);
        OK(cuCtxCreate_v2, &context, 0, 0);
        for (std::uint32_t i = 1; i < 12; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, i));
        const Buffer beside(kBuffer, 77);
        for (std::uint32_t i = 1; i < 12; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, i));
        EXPECT(beside.holds(77));
    }
    // One that was not the last, and one that did not end.
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 0);
    OK(cuCtxSetCurrent, other);
    OK(cuCtxDestroy_v2, context);
    OK(cuDevicePrimaryCtxRetain, &other, 0);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    for (std::uint32_t i = 1; i < 12; ++i) EXPECT(reads(p + i * kBuffer, kBuffer, i));
}

TEST_CASE("own mappings: memory outlives the contexts it was made and used in") {
    run_both("own_contexts", Driver::Simulated, {});
}
