// Stream-ordered allocation: what a CUmemoryPool points to.
//
// Memory is had when the call is made and given back when the stream reaches the free: an access after that
// faults. A pool keeps nothing it was given back, so its release threshold has nothing to release.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/memory.h"

namespace simcuda::driver {

class Context;
class Stream;
struct Device;
struct SharedMemory;

struct MemoryPool {
    explicit MemoryPool(Device& owner) : device(owner) {}

    Device& device;
    bool shareable = false;  // made for other processes to import
    bool imported = false;   // of another process: allocates nothing
    CUmemoryPool handle() { return reinterpret_cast<CUmemoryPool>(this); }

    std::mutex mutex;                             // guards what follows
    std::uint64_t used = 0, high = 0, limit = 0;  // bytes; limit 0: none
    std::uint64_t release_threshold = 0;
    int reuse_follow_event = 1, reuse_opportunistic = 1, reuse_internal = 1;
    std::set<CUdeviceptr> freeing;                 // a free is on its way in some stream
    std::map<int, CUmemAccess_flags> peer_access;  // by device ordinal; none if it is not here

    void begin_free(CUdeviceptr address);  // throws Failure where a free is on its way already
    void forget(const Region& region);     // which is no longer of the pool
};

// Throws Failure with CUDA_ERROR_INVALID_VALUE for anything that is not a live pool.
std::shared_ptr<MemoryPool> checked_pool(CUmemoryPool handle);
std::shared_ptr<MemoryPool> create_pool(Device& device);
void destroy_pool(CUmemoryPool handle);  // what it gave out stays valid

std::shared_ptr<MemoryPool> default_pool(Device& device);
std::shared_ptr<MemoryPool> current_pool(Device& device);
void set_current_pool(Device& device, std::shared_ptr<MemoryPool> pool);

// Throw Failure.
CUdeviceptr allocate_async(Stream& stream, const std::shared_ptr<MemoryPool>& pool, std::uint64_t bytes);
void free_async(Stream& stream, CUdeviceptr address);

// Between processes. A pool's file says only what device it is of; each allocation is shared by itself. Throw
// Failure.
int export_pool(const MemoryPool& pool);
std::shared_ptr<MemoryPool> import_pool(int file);
CUdeviceptr import_allocation(Context& context, const std::shared_ptr<MemoryPool>& pool,
                              const SharedMemory& memory);

// Gives the memory back now. False if somebody else has.
bool free_to_pool(const Region& region);

}  // namespace simcuda::driver
