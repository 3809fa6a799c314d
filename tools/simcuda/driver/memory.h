// What lies at which address: every allocation, registration and mapping the program knows of.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/physical.h"

namespace simcuda::driver {

class Context;
class GraphMemory;
struct Device;
struct MemoryPool;
struct VmmAllocation;

// A stretch of the unified address space. Immutable while in the map; a change replaces it.
struct Region {
    enum class Kind {
        Device,      // cuMemAlloc
        Async,       // from a memory pool
        Pinned,      // cuMemHostAlloc
        Registered,  // cuMemHostRegister
        Managed,     // cuMemAllocManaged
        Mapping,     // cuMemMap
        Imported,    // cuIpcOpenMemHandle
        Internal,    // arrays and conditional handles: not memory to the program
    };

    // What a device's memory was allocated as.
    enum class Pages {
        Own,    // pages of its own and a free one behind them
        Few,    // so too, but small: one of those that are counted
        Piece,  // cut from one of the device's pieces
    };

    Kind kind = Kind::Device;
    Pages pages = Pages::Own;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;  // as the program asked
    Device* device = nullptr;
    std::weak_ptr<Context> context;  // made in; empty for mappings
    std::uint64_t buffer_id = 0;     // unique per process
    unsigned flags = 0;              // of the call that made it
    bool sync_memops = false;        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    // Write-combined host memory has two addresses (cuda.h, "Disjoint Addressing"), and a region at each.
    // This is the other one; 0 where there is none.
    std::uint64_t twin = 0;
    std::shared_ptr<Physical> physical;
    std::shared_ptr<MemoryPool> pool;                               // Async, but not of graphs
    std::shared_ptr<GraphMemory> graph_memory;                      // Async, of graphs
    std::shared_ptr<VmmAllocation> allocation;                      // Mapping
    std::vector<CUmemAccess_flags> device_access;                   // Mapping: per device ordinal
    CUmemAccess_flags host_access = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // Mapping

    std::uint64_t end() const { return address + bytes; }
    bool on_host() const;                // where the bytes are
    std::uint64_t host_address() const;  // of the same bytes
    std::uint64_t device_address() const;
    bool accessible(const Device& by) const;  // for copies and kernels of that device
};
using RegionPtr = std::shared_ptr<const Region>;

std::uint64_t next_buffer_id();

// Thread-safe.
class MemoryMap {
  public:
    void insert(RegionPtr region);                // must not overlap; same start replaces
    RegionPtr remove(std::uint64_t address);      // by start; null if there is none
    RegionPtr find(std::uint64_t address) const;  // that contains it; null
    std::vector<RegionPtr> overlapping(std::uint64_t address, std::uint64_t bytes) const;  // in order

    // True if every byte lies in a region and each such region fulfils `condition`.
    bool covers(std::uint64_t address, std::uint64_t bytes,
                const std::function<bool(const Region&)>& condition) const;

    // Takes out and returns all regions made in the context.
    std::vector<RegionPtr> remove_of(const Context& context);

  private:
    mutable std::shared_mutex mutex_;
    std::map<std::uint64_t, RegionPtr> regions_;  // guarded by mutex_
};

MemoryMap& memory_map();

// A region with an id of its own, of no memory and no address yet; not in the map.
std::shared_ptr<Region> new_region(Region::Kind kind, std::uint64_t bytes, Device& device, Context& context);

// cuMemAlloc. Throws Failure with CUDA_ERROR_OUT_OF_MEMORY. The memory is accessible to kernels at once.
RegionPtr allocate_device(Context& context, std::uint64_t bytes, Region::Kind kind = Region::Kind::Device,
                          std::shared_ptr<MemoryPool> pool = nullptr);

// Takes the time that page-locking so much host memory takes.
void spend_pinning(std::uint64_t bytes);

// Host memory of the driver's own: pinned or managed. Throws Failure.
RegionPtr allocate_host(Context& context, std::uint64_t bytes, unsigned flags, Region::Kind kind);

// Page-locks existing memory / gives it back. Throw Failure with the error codes of
// cuMemHostRegister/Unregister.
void register_host(Context& context, std::uint64_t address, std::uint64_t bytes, unsigned flags);
void unregister_host(std::uint64_t address);

// Waits for all work that could use the memory. A failed context has none left.
void finish_work_on(const Region& region);

// Ends a region's life: unmaps it; the memory returns to its pool with the last reference. The region must be
// out of the map already.
void dispose(const Region& region);

}  // namespace simcuda::driver
