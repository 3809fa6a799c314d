// Virtual memory management in few words, for tests.
#pragma once

#include "tests/simcuda/sim.h"

namespace sim {

constexpr std::size_t kGranule = 2 << 20;

inline CUmemAllocationProp on_device(int device = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
}

inline CUmemAllocationProp on_host() {
    CUmemAllocationProp properties = on_device();
    properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
    return properties;
}

inline CUmemAccessDesc device_access(CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
}

inline CUmemAccessDesc host_access() {
    return {{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

inline CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve, &address, bytes, 0, 0, 0);
    return address;
}

inline CUmemGenericAllocationHandle create(std::size_t bytes,
                                           const CUmemAllocationProp& properties = on_device()) {
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate, &handle, bytes, &properties, 0);
    return handle;
}

// Maps the handle and lets the device in.
inline void map(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle) {
    const CUmemAccessDesc access = device_access();
    OK(cuMemMap, address, bytes, 0, handle, 0);
    OK(cuMemSetAccess, address, bytes, &access, 1);
}

}  // namespace sim
