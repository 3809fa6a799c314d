// Where the memory behind an address is, asked of the simulated driver itself, past the shim.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <utility>

#include "shim/device/cuda_api.h"

namespace where {

constexpr std::size_t kGranule = 64 << 10;

// glibc's dlsym, found by its version. The shim's would give the hooks.
using Lookup = void* (*)(void*, const char*);
inline Lookup glibc_lookup() {
    static const auto lookup = reinterpret_cast<Lookup>(dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5"));
    return lookup;
}

// The simulated driver's own function of that name.
inline void* simulated(const char* name) {
    static void* const library = dlopen(std::getenv("ENTRY_SIMULATED"), RTLD_NOW | RTLD_LOCAL);
    return glibc_lookup()(library, name);
}

#define SIM(name) (reinterpret_cast<decltype(&::name)>(::where::simulated(#name)))

inline bool on_device(CUdeviceptr address) {
    CUmemGenericAllocationHandle handle = 0;
    if (SIM(cuMemRetainAllocationHandle)(&handle, reinterpret_cast<void*>(address)) != CUDA_SUCCESS)
        return false;
    CUmemAllocationProp properties{};
    const CUresult result = SIM(cuMemGetAllocationPropertiesFromHandle)(&properties, handle);
    SIM(cuMemRelease)(handle);
    return result == CUDA_SUCCESS && properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

// How many granules of a range are on the device, and how many it has.
inline std::pair<std::size_t, std::size_t> granules_on_device(CUdeviceptr address, std::size_t bytes) {
    std::size_t count = 0;
    std::size_t all = 0;
    for (CUdeviceptr at = address / kGranule * kGranule; at < address + bytes; at += kGranule) {
        ++all;
        if (on_device(at)) ++count;
    }
    return {count, all};
}

inline bool all_on_device(CUdeviceptr address, std::size_t bytes) {
    const auto [count, all] = granules_on_device(address, bytes);
    return count == all;
}

}  // namespace where
