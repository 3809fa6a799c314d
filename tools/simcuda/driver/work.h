// What a stream does: one operation, and its place in the order of things.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/work_log.h"
#include "tools/simcuda/exec/grid.h"

namespace simcuda::driver {

class Context;
class GraphMemory;
class Stream;
struct Work;

struct KernelOp {
    exec::Launch launch;
    CUfunction function = nullptr;  // by which it was named
    bool programmatic = false;      // may begin before the kernel before it in its stream has ended
};

enum class Place : std::uint8_t {
    Device,  // address is a device address (also of host-located VMM memory and pinned memory's device side)
    Pinned,  // address is a host pointer the GPU may read: page-locked, registered or managed
    Pageable,  // address is any other host pointer; the driver reads it on the calling thread only
};

// One end of a copy: row y of slice z starts at address + (z * slice_rows + y) * pitch.
struct CopyEnd {
    Place place = Place::Device;
    std::uint64_t address = 0;
    std::size_t pitch = 0;       // bytes from row to row
    std::size_t slice_rows = 0;  // rows from slice to slice
};

struct CopyOp {
    CopyEnd from, to;
    std::size_t width = 0, height = 1, depth = 1;  // width in bytes
    std::shared_ptr<std::byte[]> staged;           // owns `from` where the source was staged
};

struct MemsetOp {
    std::uint64_t address = 0;  // device address
    std::size_t pitch = 0;      // bytes; unused with height 1
    std::size_t width = 0;      // elements
    std::size_t height = 1;
    std::uint32_t value = 0;
    unsigned element_bytes = 1;  // 1, 2 or 4
};

struct HostOp {
    std::function<void(CUresult)> function;  // is given the context's error
    bool despite_failure = false;            // cuStreamAddCallback runs in a failed context too
    CUhostFn named = nullptr;                // cuLaunchHostFunc: what `function` calls
    void* data = nullptr;
};

// cuStreamWaitValue and cuStreamWriteValue.
struct ValueOp {
    bool wait = false;
    std::uint64_t address = 0;
    std::uint64_t value = 0;
    unsigned bytes = 4;  // 4 or 8
    unsigned condition = CU_STREAM_WAIT_VALUE_GEQ;
};

// The driver's own step in stream order, such as a stream-ordered free. Must not block, nor take the
// scheduler's lock.
struct ActionOp {
    std::function<void()> run;
    // Set where a capture makes a node of it: what that allocates or frees.
    std::shared_ptr<GraphMemory> allocates = nullptr, frees = nullptr;
};

// Work that is more work: `next` adds it to an empty list, or returns false when there is none (left). Asked
// again when all of it has ended. Must not block, nor take the scheduler's lock.
struct SpawnStep;
struct SpawnOp {
    std::function<bool(std::vector<SpawnStep>& steps)> next;
};

struct MarkerOp {
};  // nothing: an event record, a wait for another stream, the end of a graph, work that has ended

using Op = std::variant<MarkerOp, KernelOp, CopyOp, MemsetOp, HostOp, ValueOp, ActionOp, SpawnOp>;

struct SpawnStep {
    Op op;
    std::vector<std::size_t> after;  // indices of earlier steps
};

class Resource;
namespace shared {
struct SharedDevice;
}

// What says when work ends in simulated time: timeline.h.
struct Timing {
    std::uint64_t from_ns = 0;                               // it cannot begin earlier
    std::uint64_t least_ns = 0;                              // that it takes
    std::vector<std::pair<Resource*, std::uint64_t>> takes;  // what it needs, and for how long
    std::vector<std::shared_ptr<Work>> after;                // until the time is known
    bool may_wait = false;                                   // for what the program does
    shared::SharedDevice* kernel_of = nullptr;  // of a kernel, where processes take turns; null: they do not
    bool known = false;                         // Work::done_ns is
    KernelWork did;                             // where that is logged
};

// One submitted operation. Guarded by the scheduler's mutex, but for `op` and `context` while an engine has
// it.
struct Work {
    std::shared_ptr<Context> context;
    std::shared_ptr<Stream> stream;  // null inside a graph
    Op op;
    unsigned blockers = 0;  // works that must end before this may start
    std::vector<std::shared_ptr<Work>> dependents;
    std::atomic<bool> done = false;  // also looked at without the mutex
    bool let_go = false;             // what may begin before it is done
    bool early = false;              // begins before what it comes behind is done
    // Launches that may begin once this has let them go; and, where they may not after all, behind what.
    std::vector<std::pair<std::shared_ptr<Work>, std::shared_ptr<Work>>> held;
    std::uint64_t done_ns = 0;  // once done; in simulated time once timing.known
    Timing timing;              // simulated time alone
};
using WorkPtr = std::shared_ptr<Work>;

}  // namespace simcuda::driver
