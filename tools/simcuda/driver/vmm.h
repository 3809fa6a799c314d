// Virtual memory management: reservations, physical handles, mappings and access, by the driver's rules.
//
// Calls act when made; work in flight that touches what they take away faults. All functions throw Failure
// with the code the call of the same name answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/physical.h"

namespace simcuda::driver {

struct Device;

// The memory behind a CUmemGenericAllocationHandle. Lives while a handle or a mapping refers to it.
struct VmmAllocation {
    CUmemAllocationProp properties{};
    CUmemLocation location{};
    std::shared_ptr<Physical> physical;
    std::uint64_t bytes = 0;
    Device* device = nullptr;  // whose memory it takes

    CUmemGenericAllocationHandle handle = 0;
    unsigned handle_references =
        0;  // by cuMemCreate and cuMemRetainAllocationHandle; guarded by vmm.cpp's mutex
    bool was_accessible = false;  // the same

    VmmAllocation();
    ~VmmAllocation();  // counts handles alive
};

namespace vmm {

CUdeviceptr reserve(std::uint64_t bytes, std::uint64_t alignment, CUdeviceptr hint);
void free_reservation(CUdeviceptr address, std::uint64_t bytes);

struct Range {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
};
Range reservation_of(CUdeviceptr address);  // zero bytes if it lies in none

CUmemGenericAllocationHandle create(std::uint64_t bytes, const CUmemAllocationProp& properties);
void release(CUmemGenericAllocationHandle handle);

// POSIX file descriptors: the memory lives while one, a handle or a mapping is left, in whatever process. The
// descriptor is the caller's.
int export_file(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle import_file(int file);
CUmemGenericAllocationHandle retain(CUdeviceptr address);
CUmemAllocationProp properties(CUmemGenericAllocationHandle handle);

void map(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle);
void unmap(CUdeviceptr address, std::uint64_t bytes);
void set_access(CUdeviceptr address, std::uint64_t bytes, std::span<const CUmemAccessDesc> descriptions);
CUmemAccess_flags access(CUdeviceptr address, const CUmemLocation& location);

// What is alive, for the report.
struct Alive {
    std::uint64_t handles, mappings, reservations;
};
Alive alive();

// Checks a location and whether this machine has it: device memory, or host memory with SIMCUDA_HOST_VMM.
void check_location(const CUmemLocation& location);

}  // namespace vmm
}  // namespace simcuda::driver
