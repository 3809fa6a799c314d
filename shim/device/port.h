// The port to one GPU: the little the engine needs of a driver, so that it runs over the real one, the
// simulated one and the fake of the tests alike.
//
// Conventions, said once: sizes in bytes; addresses are device addresses; every call returns a CUresult and
// leaves its outputs alone unless that is CUDA_SUCCESS; every call may be made from any thread, with any or
// no context current and in any capture mode (the port sees to both); none throws. "Enqueues" means the call
// returns at once. A default stream's handle means that of the calling thread's current context.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shim/core/block.h"
#include "shim/device/cuda_api.h"
#include "shim/device/missing.h"

namespace lms::device {

using core::Place;

// Which of the shim's own streams a copy runs on. Both run at the same time, beside the app's.
enum class Direction { In, Out };

struct MemoryInfo {
    std::uint64_t free_bytes;
    std::uint64_t total_bytes;
};

// What a trial on the port's own memory has shown: that contents survive moves, and what is done in place to
// memory on the host; or moves alone; or neither. Unknown: it could not be tried, or found no end in time.
enum class Trust { Unknown, Moves, NotInPlace, Nothing };
struct Trial {
    Trust trust = Trust::Unknown;
    const char* failed = "";   // the step that showed it; static. Empty and Unknown: nothing was tried
    bool over = true;          // else the memory it was given is in use until another is
    bool remaps_wait = false;  // for unfinished work of any stream; seen, where moves were trusted
};

// Memory of the GPU for a trial: granularity() bytes, mapped at `alias` for good.
struct TrialMemory {
    CUmemGenericAllocationHandle handle;
    Address alias;
};

struct DeviceTime {
    std::uint64_t begin_ns;
    std::uint64_t end_ns;
};

class Port {
  public:
    virtual ~Port() = default;

    // Facts of the device, probed once.
    virtual std::string name() const { return {}; }  // for people
    virtual std::uint64_t granularity() const = 0;   // every size and address below is a multiple of it
    virtual bool maps_host_memory() const = 0;  // create(Place::Host) works, and kernels reach it by map()
    virtual CUresult memory_info(MemoryInfo& info) = 0;

    // Addresses. The memory behind them: physical memory, by handle; one handle may be mapped at several
    // addresses.
    virtual CUresult reserve(std::uint64_t bytes, Address& address) = 0;
    virtual CUresult unreserve(Address address, std::uint64_t bytes) = 0;
    virtual CUresult create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle) = 0;
    virtual CUresult release(CUmemGenericAllocationHandle handle) = 0;
    // Maps the whole handle, readable and writable by kernels (and, for Place::Host, by the CPU).
    virtual CUresult map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                         Place place) = 0;
    virtual CUresult unmap(Address address, std::uint64_t bytes) = 0;
    // unmap() of what is to be gone, wherever it fails: it is tried again before anything is mapped.
    virtual CUresult discard(Address address, std::uint64_t bytes) = 0;
    // Tries it again now, and what release() was refused; whether there is nothing of it any more.
    virtual bool settle() = 0;
    // What unmap() took away and map() did not bring back; unmap() takes it for mapped.
    Missing& missing() { return missing_; }
    // The same as map(), but for whom `access` names alone; and who may reach what is mapped from now on.
    virtual CUresult map_for(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                             std::span<const CUmemAccessDesc> access) = 0;
    virtual CUresult set_access(Address address, std::uint64_t bytes,
                                std::span<const CUmemAccessDesc> access) = 0;
    // Kernels and copies of `device` too may reach what is mapped from now on, and by admit() what is mapped.
    virtual void add_peer(CUdevice device) = 0;
    virtual CUresult admit(Address address, std::uint64_t bytes, Place place) = 0;

    // Pinned host memory, for devices that cannot map host memory behind an address. The pointer serves as an
    // Address in copy().
    virtual CUresult pin(std::uint64_t bytes, Address& host) = 0;
    virtual CUresult unpin(Address host) = 0;

    // Enqueues a copy on the shim's stream of that direction.
    virtual CUresult copy(Address destination, Address source, std::uint64_t bytes, Direction direction) = 0;
    // The same of a set: all of it becomes `value`.
    virtual CUresult set(Address destination, std::uint8_t value, std::uint64_t bytes,
                         Direction direction) = 0;
    virtual CUstream stream(Direction direction) const = 0;
    // From now on it is noted when copies begin and end, as the device sees it (which costs two events each),
    // or no more; when the latest copy to `destination` did, CLOCK_MONOTONIC, if it is over and query() has
    // told so since of anything behind it. Told once. Calls no driver.
    virtual void time_copies([[maybe_unused]] bool on) {}
    virtual std::optional<DeviceTime> time_of_copy([[maybe_unused]] Address destination) { return {}; }
    // As long as that is noted: the same of a piece of the program's work, which is submitted to `stream`
    // between begin and end, or dropped. It has a number from then on; 0: it is not timed (its stream is of
    // another context than the port's, or too many are that are not over).
    virtual std::uint64_t begin_timing([[maybe_unused]] CUstream stream) { return 0; }
    virtual void end_timing([[maybe_unused]] std::uint64_t piece, [[maybe_unused]] CUstream stream) {}
    virtual void drop_timing([[maybe_unused]] std::uint64_t piece) {}
    virtual std::optional<DeviceTime> time_of_work([[maybe_unused]] std::uint64_t piece) { return {}; }

    // Events without timing. record() leaves a fence in `stream` (an app's, of whatever context, or ours);
    // the event is the caller's until recycle(), and a name for the port's calls alone.
    virtual CUresult record(CUstream stream, CUevent& event) = 0;
    // The same with an event that record() gave for that stream, and that has passed: it is the caller's
    // still, recorded or not.
    virtual CUresult record_again(CUstream stream, CUevent event) = 0;
    virtual CUresult record_legacy(CUcontext context, CUevent& event) = 0;  // in its legacy default stream
    // The same behind what that was given so far, in a blocking stream of the port's: no work of the
    // program's waits for it, but what the legacy stream is given later.
    virtual CUresult record_behind_legacy(CUcontext context, CUevent& event) = 0;
    // Behind the work of all its streams, also of those that nobody knows, and holding none up. Not while any
    // stream is captured: that would end. Refused by drivers older than 12.5.
    virtual CUresult record_context(CUcontext context, CUevent& event) = 0;
    virtual CUresult query(CUevent event) = 0;  // CUDA_SUCCESS: passed; CUDA_ERROR_NOT_READY: not yet
    // The same of all that an app's stream, or a context's legacy default stream, has been given so far;
    // or the error of a capture that forbids to ask. Enqueues nothing.
    virtual CUresult query_stream(CUstream stream) = 0;
    virtual CUresult query_legacy(CUcontext context) = 0;
    virtual void recycle(CUevent event) = 0;
    // Work submitted to `stream` from now on waits for `event`.
    virtual CUresult wait_in_stream(CUstream stream, CUevent event) = 0;
    // Tries moves, within a second, mostly within milliseconds; waits for nothing but the shim's own streams.
    // Without `memory` it makes some. What an earlier try has left unfinished is looked at first, in no time.
    virtual bool tries_moves() const { return false; }
    virtual Trial try_moves([[maybe_unused]] const std::optional<TrialMemory>& memory) { return {}; }
    // Whether a trial apart from the program has shown remaps to wait for all work.
    virtual bool remaps_were_seen_to_wait() const { return false; }
    // maps_host_memory() is false from now on: not once it has made any.
    virtual void map_no_host_memory() {}
    // CUDA_SUCCESS, or the error after which nothing on this device works any more (a kernel's fault is
    // sticky).
    virtual CUresult health() = 0;
    // Blocks until all that `stream` was given so far is done. Not for whole contexts: to wait for one ends
    // what is captured on its GPU.
    virtual CUresult wait_for_stream(CUstream stream) = 0;

    // Contexts. Of the calling thread; null without one.
    virtual CUcontext current_context() = 0;
    // Works through `context` from now on, with streams of its own there; null: through none, until it is
    // given one. What it worked through before still exists, and nothing of this port runs.
    virtual CUresult work_through(CUcontext context) = 0;
    // `context` is gone, or all its work is done and it is about to go: events in it have passed, and are
    // never touched again. If the port worked through it, it has none from now on.
    virtual void leave(CUcontext context) = 0;

  private:
    Missing missing_;
};

}  // namespace lms::device
