// Memory that the program maps itself, of every kind there is: what is managed moves and answers as it was
// asked for, what is not is the driver's.
#include "tests/entry/own.h"

using namespace rig;

FAMILY_TEST(
    "own mappings: a handle that asks for GPUDirect RDMA is managed, and says so until it is shared") {
    const Gpu gpu;
    Crowd crowd;
    CUmemAllocationProp properties = on_gpu();
    properties.allocFlags.gpuDirectRDMACapable = 1;
    const auto handle = create(kBuffer, properties);
    const CUdeviceptr p = reserve(kBuffer);
    map(p, kBuffer, handle);
    write(p, kBuffer, 1);
    evict(crowd, p, kBuffer);
    CUmemAllocationProp told{};
    OK(cuMemGetAllocationPropertiesFromHandle, &told, handle);
    EXPECT(told.allocFlags.gpuDirectRDMACapable == 1);
    unsigned capable = 7;
    OK(cuPointerGetAttribute, &capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, p);
    EXPECT(capable == 0);
    // Made synchronous, as libraries do before they register memory, it is what was asked for.
    const unsigned on = 1;
    OK(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    CUmemGenericAllocationHandle real = 0;
    EXPECT(SIM(cuMemRetainAllocationHandle)(&real, reinterpret_cast<void*>(p)) == CUDA_SUCCESS);
    EXPECT(SIM(cuMemGetAllocationPropertiesFromHandle)(&told, real) == CUDA_SUCCESS);
    EXPECT(told.allocFlags.gpuDirectRDMACapable == 1);
    EXPECT(SIM(cuMemRelease)(real) == CUDA_SUCCESS);
    crowd.press();
    EXPECT(on_device(p, kBuffer));
    EXPECT(reads(p, kBuffer, 1));
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemRelease, handle);
}

BODY(own_on_host) {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
    CUmemAllocationProp properties = on_gpu();
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    const std::size_t before = free_on_gpu();
    const auto handle = create(kBuffer, properties);
    EXPECT(free_on_gpu() == before);
    const CUdeviceptr p = reserve(2 * kBuffer);
    map(p, kBuffer, handle);
    let_in(p, kBuffer);
    write(p, kBuffer, 1);
    // Beside managed memory, in one array.
    const auto managed = create(kBuffer);
    map(p + kBuffer, kBuffer, managed);
    write(p + kBuffer, kBuffer, 2);
    evict(crowd, p + kBuffer, kBuffer);
    OK(cuMemcpyDtoD_v2, p + kBuffer, p, kBuffer);
    EXPECT(reads(p + kBuffer, kBuffer, 1));
    copy_by_kernel(p, p + kBuffer);
    OK(cuCtxSynchronize);
    EXPECT(on_device(p + kBuffer, kBuffer));
    unsigned type = 0;
    OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    EXPECT(type == CU_MEMORYTYPE_HOST);
    OK(cuMemUnmap, p, 2 * kBuffer);
    OK(cuMemRelease, managed);
    map(p + kBuffer, kBuffer, handle);
    EXPECT(reads(p + kBuffer, kBuffer, 1));
    OK(cuMemUnmap, p + kBuffer, kBuffer);
    OK(cuMemRelease, handle);
}

TEST_CASE("own mappings: a handle on the host is the driver's, and lies beside managed ones") {
    CHECK(run("own_on_host", Driver::Simulated, {}).failures == "");
}

OVERLAY_TEST("own mappings: a tile pool is the driver's, and mapped into arrays by its own handle") {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
    CUmemAllocationProp properties = on_gpu();
    properties.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    CUarrayMapInfo info{};
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandle.memHandle = create(kBuffer, properties);
    OK(cuMemMapArrayAsync, &info, 1, nullptr);
    OK(cuMemMapArrayAsync_ptsz, &info, 1, nullptr);
    OK(cuMemRelease, info.memHandle.memHandle);
}

FAMILY_TEST("own mappings: memory of one unit is managed, and both granularities are the driver's") {
    const Gpu gpu;
    Crowd crowd;
    const CUmemAllocationProp properties = on_gpu();
    std::size_t unit = 0;
    for (const auto which : {CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_MINIMUM}) {
        std::size_t expected = 0;
        OK(cuMemGetAllocationGranularity, &unit, &properties, which);
        EXPECT(SIM(cuMemGetAllocationGranularity)(&expected, &properties, which) == CUDA_SUCCESS);
        EXPECT(unit == expected);
    }
    const Own a(unit, 1);
    const Own b(3 * unit, 2);
    for (int round = 0; round < 2; ++round) {
        evict(crowd, a.at(), unit);
        evict(crowd, b.at(), 3 * unit);
        EXPECT(a.holds(1));
        EXPECT(b.holds(2));
    }
    CUmemGenericAllocationHandle handle = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &handle, unit + unit / 2, &properties, 0);
}

FAMILY_TEST("own mappings: what does not fit on the GPU whole is not shared, and is managed still") {
    const Gpu gpu;
    const std::size_t bytes = 6 * kMiB;
    const auto handle = create_shareable(bytes);
    const CUdeviceptr p = reserve(bytes);
    map(p, bytes, handle);
    write(p, bytes, 1);
    EXPECT(share(handle) == CUDA_ERROR_OUT_OF_MEMORY);
    const unsigned on = 1;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    EXPECT(!on_device(p, bytes));
    EXPECT(reads(p, bytes, 1));
    Crowd crowd;
    crowd.press();
    EXPECT(reads(p, bytes, 1));
    OK(cuMemUnmap, p, bytes);
    OK(cuMemRelease, handle);
}

// An array of two parts, one on each GPU.
BODY(own_two_gpus) {
    const Gpu gpu;
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    const CUdeviceptr p = reserve(2 * kBuffer);
    const CUmemGenericAllocationHandle handles[] = {create(kBuffer, on_gpu(0)), create(kBuffer, on_gpu(1))};
    for (std::size_t i = 0; i < 2; ++i) OK(cuMemMap, p + i * kBuffer, kBuffer, 0, handles[i], 0);
    // Both GPUs, both parts, at once; and nothing of it where one is no GPU.
    CUmemAccessDesc access[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                {{CU_MEM_LOCATION_TYPE_DEVICE, 5}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    const auto flags_of = [&](CUdeviceptr address, int device) {
        unsigned long long flags = 9;
        const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
        OK(cuMemGetAccess, &flags, &location, address);
        return flags;
    };
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess, p, 2 * kBuffer, access, 2);
    EXPECT(flags_of(p, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    access[1].location.id = 1;
    OK(cuMemSetAccess, p, 2 * kBuffer, access, 2);
    for (const CUdeviceptr part : {p, p + kBuffer}) {
        EXPECT(flags_of(part, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        EXPECT(flags_of(part, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    // Of one part alone it can be taken back.
    let_in(p + kBuffer, kBuffer, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT(flags_of(p, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(flags_of(p + kBuffer, 0) == CU_MEM_ACCESS_FLAGS_PROT_READ);
    let_in(p + kBuffer, kBuffer);

    Crowd here;
    OK(cuCtxSetCurrent, other);
    Crowd there;
    for (std::uint32_t round = 0; round < 3; ++round) {
        for (const CUcontext context : {gpu.context, other}) {
            OK(cuCtxSetCurrent, other);
            evict(there, p + kBuffer, kBuffer);
            OK(cuCtxSetCurrent, gpu.context);
            evict(here, p, kBuffer);
            OK(cuCtxSetCurrent, context);
            const std::uint32_t seed = 2 * round + (context == other);
            OK(cuMemsetD8_v2, p + kBuffer / 2, static_cast<unsigned char>(seed), kBuffer);
            OK(cuCtxSynchronize);
            std::vector<std::uint8_t> data(kBuffer);
            OK(cuMemcpyDtoH_v2, data.data(), p + kBuffer / 2, kBuffer);
            EXPECT(data == std::vector<std::uint8_t>(kBuffer, static_cast<std::uint8_t>(seed)));
        }
    }
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuMemUnmap, p, 2 * kBuffer);
    for (const auto handle : handles) OK(cuMemRelease, handle);
    OK(cuMemAddressFree, p, 2 * kBuffer);
}

TEST_CASE("own mappings: an array that lies on two GPUs, and is let into both at once") {
    run_both("own_two_gpus", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

// Its host copy is nobody's who is not let into the memory.
BODY(own_of_the_other_gpu) {
    const Gpu gpu;
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    OK(cuCtxSetCurrent, other);
    Crowd there;
    const CUdeviceptr p = reserve(kBuffer);
    const auto handle = create(kBuffer, on_gpu(1));
    OK(cuMemMap, p, kBuffer, 0, handle, 0);
    let_in(p, kBuffer, 1);
    write(p, kBuffer, 1);
    evict(there, p, kBuffer);
    OK(cuCtxSetCurrent, gpu.context);
    auto data = pattern(kBuffer, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, p, data.data(), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2, data.data(), p, kBuffer);
    EXPECT(data == pattern(kBuffer, 2));
    OK(cuCtxSetCurrent, other);
    EXPECT(reads(p, kBuffer, 1));
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemRelease, handle);
}

TEST_CASE("own mappings: a copy by a GPU that is not let in is refused, wherever the memory is") {
    run_both("own_of_the_other_gpu", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

OVERLAY_TEST("own mappings: textures, tensor maps and 2D copies have such memory brought in as any") {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    const Own b(kBuffer, 2);
    const Buffer out(kBuffer, 3);
    // A texture keeps it until it is destroyed.
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = a.at();
    resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = kBuffer;
    const CUDA_TEXTURE_DESC texture{};
    CUtexObject object = 0;
    evict(crowd, a.at(), kBuffer);
    OK(cuTexObjectCreate, &object, &resource, &texture, nullptr);
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(on_device(a.at(), kBuffer));
    OK(cuTexObjectDestroy, object);
    evict(crowd, a.at(), kBuffer);
    EXPECT(a.holds(1));
    // A tensor map names it.
    CUtensorMap map{};
    OK(cuTensorMapEncodeTiled, &map, {}, 1, reinterpret_cast<void*>(a.at()), nullptr, nullptr, nullptr,
       nullptr, {}, {}, {}, {});
    evict(crowd, a.at(), kBuffer);
    const unsigned one = 1;
    EXPECT(launch("add_through", kWords, nullptr, out.at(), map, one, kWords) == CUDA_SUCCESS);
    OK(cuCtxSynchronize);
    EXPECT(on_device(a.at(), kBuffer));
    // Rows.
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = b.at();
    rows.dstDevice = a.at();
    rows.srcPitch = rows.dstPitch = 4096;
    rows.WidthInBytes = 4096;
    rows.Height = kBuffer / 4096;
    evict(crowd, a.at(), kBuffer);
    evict(crowd, b.at(), kBuffer);
    OK(cuMemcpy2D_v2, &rows);
    EXPECT(a.holds(2));
}

// What is called the host's may be the GPU's, of whatever kind, and what the driver calls the host's may not
// be the CPU's to read.
BODY(copies_from_what_the_host_cannot_read) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    std::vector<CUmemAllocationProp> kinds = {on_gpu()};
    int maps_host = 0;
    OK(cuDeviceGetAttribute, &maps_host, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
       gpu.device);
    if (maps_host) {
        kinds.push_back(on_gpu());
        kinds.back().location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    }
    for (const CUmemAllocationProp& kind : kinds) {
        const CUdeviceptr p = reserve(kGranule);
        rig::map(p, kGranule, create(kGranule, kind));
        OK(cuMemsetD8_v2, p, 5, kGranule);
        void* const source = reinterpret_cast<void*>(p);
        crowd.evict(a);
        OK(cuMemcpyHtoD_v2, a.at(), source, kGranule);
        OK(cuMemcpyHtoDAsync_v2, a.at(kGranule), source, kGranule, nullptr);
        OK(cuMemcpy, a.at(2 * kGranule), p, kGranule);
        OK(cuMemcpyDtoDAsync_v2, a.at(3 * kGranule), p, kGranule, nullptr);
        auto expected = pattern(kBuffer, 1);
        std::fill_n(expected.begin(), 4 * kGranule, 5);
        EXPECT(a.read() == expected);
        OK(cuMemUnmap, p, kGranule);
    }
}

TEST_CASE("copies: from memory that the host cannot read") {
    run_both("copies_from_what_the_host_cannot_read", Driver::Simulated, {{"LMS_THRESHOLD", "128K"}});
}
