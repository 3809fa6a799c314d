// Virtual memory management keeps the driver's rules.
#include <cstring>

#include "tests/simcuda/vmm.h"

namespace {

using namespace sim;

SIM_TEST("vmm: a mapped handle holds bytes, and its memory comes back with the last reference", {}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    const CUdeviceptr p = reserve(2 * kGranule);
    EXPECT(p % kGranule == 0);
    EXPECT(free_bytes() == before);
    const auto handle = create(kGranule);
    EXPECT(free_bytes() == before - kGranule);
    map(p + kGranule, kGranule, handle);
    const auto data = pattern(kGranule, 1);
    OK(cuMemcpyHtoD, p + kGranule, data.data(), data.size());
    EXPECT(read_back(p + kGranule, kGranule) == data);
    OK(cuMemRelease, handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease, handle);
    EXPECT(read_back(p + kGranule, kGranule) == data);  // the mapping keeps it
    EXPECT(free_bytes() == before - kGranule);
    OK(cuMemUnmap, p + kGranule, kGranule);
    EXPECT(free_bytes() == before);
    OK(cuMemAddressFree, p, 2 * kGranule);
}

SIM_TEST("vmm: two mappings of one handle are the same bytes", {}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(kGranule), alias = reserve(kGranule);
    const auto handle = create(kGranule);
    map(p, kGranule, handle);
    map(alias, kGranule, handle);
    const auto data = pattern(kGranule, 2);
    OK(cuMemcpyHtoD, p, data.data(), data.size());
    EXPECT(read_back(alias, kGranule) == data);
    OK(cuMemUnmap, p, kGranule);
    EXPECT(read_back(alias, kGranule) == data);
    std::uint8_t byte = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p, 1);
}

SIM_TEST("vmm: a mapping starts without access, and access is for whole mappings", {}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(3 * kGranule);
    const auto one = create(kGranule), two = create(2 * kGranule);
    OK(cuMemMap, p, kGranule, 0, one, 0);
    OK(cuMemMap, p + kGranule, 2 * kGranule, 0, two, 0);
    std::uint8_t byte = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p, 1);
    const CUmemAccessDesc access = device_access();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess, p, 2 * kGranule, &access, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess, p + 2 * kGranule, kGranule, &access, 1);
    OK(cuMemSetAccess, p, 3 * kGranule, &access, 1);
    const auto data = pattern(3 * kGranule, 3);
    OK(cuMemcpyHtoD, p, data.data(), data.size());  // across both mappings
    EXPECT(read_back(p, data.size()) == data);
    const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    unsigned long long flags = 0;
    OK(cuMemGetAccess, &flags, &location, p + kGranule);
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const CUmemAccessDesc none = device_access(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemSetAccess, p, kGranule, &none, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p, 1);
    OK(cuMemcpyDtoH, &byte, p + kGranule, 1);
}

SIM_TEST("vmm: access is lost with the mapping", {}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(kGranule);
    const auto handle = create(kGranule);
    map(p, kGranule, handle);
    OK(cuMemUnmap, p, kGranule);
    OK(cuMemMap, p, kGranule, 0, handle, 0);
    std::uint8_t byte = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p, 1);
}

SIM_TEST("vmm: the rules of mapping", {}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(4 * kGranule);
    const auto handle = create(2 * kGranule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, p, kGranule, kGranule, handle, 0);      // offset
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, p, kGranule, 0, handle, 0);             // part of a handle
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, p + 4096, 2 * kGranule, 0, handle, 0);  // alignment
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, p + 3 * kGranule, 2 * kGranule, 0, handle,
          0);  // past the reservation
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, p, 2 * kGranule, 0, handle + 1000, 0);
    OK(cuMemMap, p, 2 * kGranule, 0, handle, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, p + kGranule, 2 * kGranule, 0, handle, 0);  // occupied
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, p, kGranule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, p, 3 * kGranule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, p + 2 * kGranule, 2 * kGranule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, p, 4 * kGranule);  // still mapped
    OK(cuMemMap, p + 2 * kGranule, 2 * kGranule, 0, handle, 0);
    OK(cuMemUnmap, p, 4 * kGranule);  // both at once
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, p, 2 * kGranule);
    OK(cuMemAddressFree, p, 4 * kGranule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, p, 2 * kGranule, 0, handle, 0);
}

SIM_TEST("vmm: creating checks sizes, places and capacity", {{"SIMCUDA_MEMORY", "16M"}}) {
    const Gpu gpu;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = on_device();
    std::size_t unit = 0;
    OK(cuMemGetAllocationGranularity, &unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    EXPECT(unit == kGranule);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &handle, kGranule / 2, &properties, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &handle, 0, &properties, 0);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &handle, 8 * kGranule, &properties, 0);
    properties.location.id = 1;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuMemCreate, &handle, kGranule, &properties, 0);
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &handle, kGranule, &properties, 0);
    CUdeviceptr p = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve, &p, kGranule / 2, 0, 0, 0);
    OK(cuMemAddressReserve, &p, std::size_t{1} << 40, 0, 0, 0);  // addresses are not memory
}

SIM_TEST("vmm: handles can be had back from a mapping", {}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    const CUdeviceptr p = reserve(kGranule), q = reserve(kGranule);
    const auto handle = create(kGranule);
    map(p, kGranule, handle);
    OK(cuMemRelease, handle);
    CUmemGenericAllocationHandle again = 0;
    OK(cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(p + 100));
    CUmemAllocationProp properties{};
    OK(cuMemGetAllocationPropertiesFromHandle, &properties, again);
    EXPECT(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    map(q, kGranule, again);
    OK(cuMemUnmap, p, kGranule);
    OK(cuMemUnmap, q, kGranule);
    EXPECT(free_bytes() == before - kGranule);
    OK(cuMemRelease, again);
    EXPECT(free_bytes() == before);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(p));
}

SIM_TEST(
    "vmm: host-located memory is reached by the device, by the CPU where it is let in, and takes no device "
    "memory",
    {}) {
    const Gpu gpu;
    int supported = 0;
    OK(cuDeviceGetAttribute, &supported, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
       gpu.device);
    EXPECT(supported == 1);
    const std::size_t before = free_bytes();
    const CUdeviceptr p = reserve(kGranule), copy = reserve(kGranule);
    map(p, kGranule, create(kGranule, on_host()));
    EXPECT(free_bytes() == before);
    map(copy, kGranule, create(kGranule));
    const auto data = pattern(kGranule, 4);
    OK(cuMemcpyHtoD, p, data.data(), data.size());
    OK(cuMemcpyDtoD, copy, p, kGranule);
    EXPECT(read_back(copy, kGranule) == data);
    EXPECT(!cpu_can_read(p));
    const CUmemAccessDesc access = host_access();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess, copy, kGranule, &access, 1);  // not on the host
    OK(cuMemSetAccess, p, kGranule, &access, 1);
    EXPECT(cpu_can_read(p));
    EXPECT(std::memcmp(reinterpret_cast<void*>(p), data.data(), kGranule) == 0);
    std::memset(reinterpret_cast<void*>(p), 0x5A, kGranule);
    EXPECT(read_back(p, kGranule) == std::vector<std::uint8_t>(kGranule, 0x5A));
    unsigned type = 0;
    OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    EXPECT(type == CU_MEMORYTYPE_HOST);
    OK(cuMemUnmap, p, kGranule);
    EXPECT(!cpu_can_read(p));
}

SIM_TEST("vmm: one address is device memory, then host memory, then device memory again", {}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(kGranule), device_alias = reserve(kGranule), host_alias = reserve(kGranule);
    const auto device = create(kGranule), host = create(kGranule, on_host());
    map(device_alias, kGranule, device);
    map(host_alias, kGranule, host);
    map(p, kGranule, device);
    const auto data = pattern(kGranule, 5);
    OK(cuMemcpyHtoD, p, data.data(), data.size());
    for (int round = 0; round < 3; ++round) {
        OK(cuMemcpyDtoD, host_alias, device_alias, kGranule);
        OK(cuCtxSynchronize);
        OK(cuMemUnmap, p, kGranule);
        map(p, kGranule, host);
        OK(cuMemsetD8, device_alias, 0xEE, kGranule);
        EXPECT(read_back(p, kGranule) == data);
        OK(cuMemcpyDtoD, device_alias, host_alias, kGranule);
        OK(cuCtxSynchronize);
        OK(cuMemUnmap, p, kGranule);
        map(p, kGranule, device);
        OK(cuMemsetD8, host_alias, 0xEE, kGranule);
        OK(cuCtxSynchronize);
        EXPECT(read_back(p, kGranule) == data);
    }
}

SIM_TEST("vmm: without the knob there is no host-located memory", {{"SIMCUDA_HOST_VMM", "0"}}) {
    const Gpu gpu;
    int supported = 1;
    OK(cuDeviceGetAttribute, &supported, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
       gpu.device);
    EXPECT(supported == 0);
    OK(cuDeviceGetAttribute, &supported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
       gpu.device);
    EXPECT(supported == 0);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = on_host();
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate, &handle, kGranule, &properties, 0);
}

SIM_TEST("vmm: host-located memory by NUMA node alone", {{"SIMCUDA_HOST_VMM", "numa"}}) {
    const Gpu gpu;
    const auto attribute = [&](CUdevice_attribute which) {
        int value = -7;
        OK(cuDeviceGetAttribute, &value, which, gpu.device);
        return value;
    };
    EXPECT(attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0);
    EXPECT(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 1);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = on_host();
    properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate, &handle, kGranule, &properties, 0);
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)};
    OK(cuMemCreate, &handle, kGranule, &properties, 0);
    properties.location.id = -1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &handle, kGranule, &properties, 0);
    properties.location.id = 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &handle, kGranule, &properties, 0);
}

SIM_TEST("vmm: every nth set-access is not ready, and changes nothing", {{"SIMCUDA_NOT_READY", "3"}}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(kGranule);
    OK(cuMemMap, p, kGranule, 0, create(kGranule), 0);
    const CUmemAccessDesc all = device_access(), none = device_access(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemSetAccess, p, kGranule, &all, 1);
    OK(cuMemSetAccess, p, kGranule, &none, 1);
    FAILS(CUDA_ERROR_NOT_READY, cuMemSetAccess, p, kGranule, &all, 1);
    std::uint8_t byte = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p, 1);
    OK(cuMemSetAccess, p, kGranule, &all, 1);
    OK(cuMemcpyDtoH, &byte, p, 1);
}

SIM_TEST("vmm: handles and mappings can be limited", {{"SIMCUDA_HANDLES", "2"}, {"SIMCUDA_MAPPINGS", "1"}}) {
    const Gpu gpu;
    const auto one = create(kGranule), two = create(kGranule);
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = on_device();
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &handle, kGranule, &properties, 0);
    OK(cuMemRelease, two);
    OK(cuMemCreate, &handle, kGranule, &properties, 0);
    const CUdeviceptr p = reserve(2 * kGranule);
    OK(cuMemMap, p, kGranule, 0, one, 0);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemMap, p + kGranule, kGranule, 0, handle, 0);
    OK(cuMemUnmap, p, kGranule);
    OK(cuMemMap, p + kGranule, kGranule, 0, handle, 0);
}

SIM_TEST("vmm: a small granularity makes small handles", {{"SIMCUDA_GRANULARITY", "64K"}}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(128 << 10);
    map(p + (64 << 10), 64 << 10, create(64 << 10));
    OK(cuMemsetD8, p + (64 << 10), 1, 64 << 10);
    EXPECT(read_back(p + (64 << 10), 64 << 10) == std::vector<std::uint8_t>(64 << 10, 1));
}

SIM_TEST("vmm: unmapping under a copy in flight makes the context fail for good",
         {{"SIMCUDA_H2D_GBPS", "0.05"}}) {
    const Gpu gpu;
    constexpr std::size_t kBytes = 8 * kGranule;
    const CUdeviceptr p = reserve(kBytes);
    map(p, kBytes, create(kBytes));
    void* host = nullptr;
    OK(cuMemHostAlloc, &host, kBytes, 0);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemcpyHtoDAsync, p, host, kBytes, stream);
    OK(cuMemUnmap, p, kBytes);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize, stream);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
    CUdeviceptr q = 0;
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc, &q, 100);
    OK(cuDevicePrimaryCtxReset, gpu.device);
    CUcontext fresh = nullptr;
    OK(cuDevicePrimaryCtxRetain, &fresh, gpu.device);
    OK(cuCtxSetCurrent, fresh);
    OK(cuMemAlloc, &q, 100);
}

SIM_TEST("vmm: with the knob, unmapping waits for the device",
         {{"SIMCUDA_H2D_GBPS", "0.05"}, {"SIMCUDA_UNMAP_DRAINS", "1"}}) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(kGranule);
    map(p, kGranule, create(kGranule));
    void* host = nullptr;
    OK(cuMemHostAlloc, &host, kGranule, 0);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemcpyHtoDAsync, p, host, kGranule, stream);
    OK(cuMemUnmap, p, kGranule);
    OK(cuStreamSynchronize, stream);
}

}  // namespace
