// Memory and events between processes that each have this driver loaded.
//
// Device memory is a memory file of its process; another process of the same user opens that file through
// /proc and maps the same pages. So the process that owns the memory must be there when it is opened, and
// must keep the allocation while it is used, as CUDA demands.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/memory.h"

namespace simcuda::driver {

class Context;

// What handles of 64 bytes carry.
struct SharedMemory {
    static constexpr std::uint64_t kMark = 0x31636d6d6973;
    static constexpr std::size_t kExtents = 2;

    std::uint64_t mark = 0;
    std::int32_t process = 0;
    std::int32_t file = -1;  // its descriptor there
    std::uint32_t device = 0;
    std::uint32_t extents = 0;
    std::uint64_t bytes = 0;
    Extent extent[kExtents] = {};
};

// Describes an allocation. Throws Failure with CUDA_ERROR_OUT_OF_MEMORY if its memory is in too many pieces.
SharedMemory describe(const Region& region);

// Maps memory of a process; the region is in the map already. Throw Failure: CUDA_ERROR_INVALID_HANDLE for
// what is no description, CUDA_ERROR_MAP_FAILED (and say why on stderr).
RegionPtr map_shared(Context& context, const SharedMemory& memory, Region::Kind kind,
                     std::shared_ptr<MemoryPool> pool = nullptr);

// cuIpcOpenMemHandle and cuIpcCloseMemHandle: one mapping per context and allocation, counted. Throw Failure;
// with CUDA_ERROR_INVALID_CONTEXT for memory of this process, as for its events.
CUdeviceptr open_shared(Context& context, const SharedMemory& memory);
void close_shared(Context& context, CUdeviceptr address);
void forget_shared(const Context& context);  // its mappings end with it

// How far an event of several processes is: a page they all map.
class SharedEvent {
  public:
    static std::shared_ptr<SharedEvent> create();                              // throws Failure
    static std::shared_ptr<SharedEvent> open(const CUipcEventHandle& handle);  // throws Failure
    ~SharedEvent();
    SharedEvent(const SharedEvent&) = delete;
    SharedEvent& operator=(const SharedEvent&) = delete;

    CUipcEventHandle handle() const;

    std::uint64_t begin_record();         // its number, from 1
    void complete(std::uint64_t record);  // the stream has come to it
    std::uint64_t latest() const;         // number of the latest record, 0 if there is none
    bool reached(std::uint64_t record) const;
    std::uint64_t counter_address() const;  // device address of the number last reached

  private:
    struct Page {
        std::uint64_t mark;
        std::atomic<std::uint64_t> recorded, reached;
    };
    explicit SharedEvent(int file);

    int file_;
    Page* page_;
};

}  // namespace simcuda::driver
