// The simulated GPUs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/physical.h"
#include "tools/simcuda/driver/pieces.h"

namespace simcuda::driver {

class Context;
class Scheduler;
struct MemoryPool;

struct Device {
    Device(int ordinal, std::uint64_t capacity);

    const int ordinal;
    PhysicalPool memory;
    std::atomic<std::uint64_t> created_bytes = 0;  // of `memory`, by cuMemCreate; no less than is taken
    Pieces pieces{memory};
    Scheduler& scheduler;  // lives as long as the process

    std::mutex mutex;                  // guards what follows
    std::shared_ptr<Context> primary;  // null while inactive
    unsigned primary_references = 0;
    unsigned primary_flags = CU_CTX_SCHED_AUTO;
    std::shared_ptr<MemoryPool> default_pool, current_pool;
};

// Sets up the address space and the devices; what cuInit does. Idempotent. Throws Failure.
void initialise();
bool initialised();

std::span<Device> devices();               // empty before initialise()
Device& checked_device(CUdevice ordinal);  // throws Failure with CUDA_ERROR_INVALID_DEVICE

// The device a location names. Throws Failure: CUDA_ERROR_NOT_SUPPORTED for the host,
// CUDA_ERROR_INVALID_VALUE for a kind of place there is not, `no_such_device` for a number.
Device& device_at(const CUmemLocation& location, CUresult no_such_device = CUDA_ERROR_INVALID_VALUE);

PhysicalPool& host_pool();  // page-locked and host-located memory

// cuDeviceGetAttribute. Throws Failure with CUDA_ERROR_INVALID_VALUE for an attribute that does not exist.
int device_attribute(const Device& device, CUdevice_attribute attribute);

}  // namespace simcuda::driver
