// The port to one GPU: what the engine needs of a driver. It runs over the real driver, the simulated one and
// the fake of the tests.
//
// Conventions. Sizes are bytes, addresses are device addresses. Every size and address is a multiple of
// granularity(), except in copy(), set() and pin(). A CUresult other than CUDA_SUCCESS leaves the outputs and
// the state as they were, unless the call says otherwise. Any thread may call, with any or no context current
// and in any capture mode; the port restores both. No call throws.
//
// Blocking. "Enqueues" means that the call returns before the work is done; it may still block while the
// stream's queue is full. Calls marked "may block" can take as long as the driver does, or as unfinished work
// takes. The caller holds no lock across those, which are LMS_UNLOCKED.
//
// Ownership. The caller owns what a call hands out, and gives it back: addresses by unreserve(), handles by
// release(), pinned memory by unpin(), events by recycle(). Contexts, streams and the memory of a trial are
// borrowed. A default stream's handle means that of the calling thread's current context.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shim/device/cuda_api.h"
#include "shim/device/missing.h"
#include "shim/engine/block.h"
#include "shim/util/mutex.h"

namespace lms::device {

using engine::Place;

// Which of the shim's own streams a copy runs on. Both run at the same time, beside the program's.
enum class Direction { In, Out };

struct MemoryInfo {
    std::uint64_t free_bytes;
    std::uint64_t total_bytes;
};

// What a trial on memory of the shim's own has shown.
enum class Trust {
    Unknown,     // it could not be tried, or did not finish in time
    Moves,       // contents survive moves and work in place, on host memory
    NotInPlace,  // contents survive moves alone
    Nothing,     // contents are lost
};
struct Trial {
    Trust trust = Trust::Unknown;
    const char* failed = "";   // the step that failed; static. Empty and Unknown: nothing was tried
    bool over = true;          // false: the trial's memory stays in use until another trial is over
    bool remaps_wait = false;  // a remap was seen to wait for unfinished work of other streams
};

// GPU memory for a trial: granularity() bytes, mapped at `alias` permanently.
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

    // Facts of the device, probed once. No driver call, except for the first and the last.
    virtual std::string name() const { return {}; }  // for people
    virtual std::uint64_t granularity() const = 0;
    virtual bool maps_host_memory() const = 0;  // create(Place::Host) works, and kernels reach it by map()
    virtual CUresult memory_info(MemoryInfo& info) LMS_UNLOCKED = 0;

    // Addresses and the physical memory behind them. A handle may be mapped at several addresses. All of
    // these may block in the driver, unmap() also for unfinished work (Trial::remaps_wait).
    virtual CUresult reserve(std::uint64_t bytes, Address& address) LMS_UNLOCKED = 0;
    virtual CUresult unreserve(Address address, std::uint64_t bytes) LMS_UNLOCKED = 0;
    virtual CUresult create(std::uint64_t bytes, Place place,
                            CUmemGenericAllocationHandle& handle) LMS_UNLOCKED = 0;
    // If the driver refuses, the port keeps the handle and releases it later (settle()).
    virtual CUresult release(CUmemGenericAllocationHandle handle) LMS_UNLOCKED = 0;
    // Maps the whole handle, readable and writable by kernels (and, for Place::Host, by the CPU). A failure
    // leaves the address unmapped; what the driver does not unmap then is unmapped later (settle()).
    virtual CUresult map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                         Place place) LMS_UNLOCKED = 0;
    // Of one mapping, or of several side by side: all or none. The caller makes sure that no unfinished work
    // can reach them.
    virtual CUresult unmap(Address address, std::uint64_t bytes) LMS_UNLOCKED = 0;
    // unmap() of an address that is not used again. After a failure the port tries again, before it maps
    // anything.
    virtual CUresult discard(Address address, std::uint64_t bytes) LMS_UNLOCKED = 0;
    // Tries now what release(), map() and discard() left behind. True: nothing is left.
    virtual bool settle() LMS_UNLOCKED = 0;
    // Addresses that unmap() took away and map() did not bring back; unmap() of one succeeds. No driver call.
    Missing& missing() { return missing_; }
    // map() with `access` in place of the default (none: the GPU may not reach it yet); and a change of
    // access to what is mapped, of one mapping or several side by side. Without success the mapping, or its
    // access, is as before.
    virtual CUresult map_for(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                             std::span<const CUmemAccessDesc> access) LMS_UNLOCKED = 0;
    virtual CUresult set_access(Address address, std::uint64_t bytes,
                                std::span<const CUmemAccessDesc> access) LMS_UNLOCKED = 0;
    // Gives `device` access to all that map() maps from now on, or no more. No driver calls. False: it has
    // that already. admit(): the default, to what is mapped already, one or several side by side.
    virtual bool add_peer(CUdevice device) = 0;
    virtual void remove_peer(CUdevice device) = 0;
    virtual CUresult admit(Address address, std::uint64_t bytes, Place place) LMS_UNLOCKED = 0;

    // Pinned host memory, for devices that map no host memory. The pointer serves as an Address in copy().
    // May block for milliseconds.
    virtual CUresult pin(std::uint64_t bytes, Address& host) LMS_UNLOCKED = 0;
    virtual CUresult unpin(Address host) LMS_UNLOCKED = 0;

    // Enqueue a copy, or a set of all bytes to `value`, on the shim's stream of that direction. Memory must
    // stay mapped until an event behind it has passed.
    virtual CUresult copy(Address destination, Address source, std::uint64_t bytes,
                          Direction direction) LMS_UNLOCKED = 0;
    virtual CUresult set(Address destination, std::uint8_t value, std::uint64_t bytes,
                         Direction direction) LMS_UNLOCKED = 0;
    virtual CUstream stream(Direction direction) const = 0;  // the port's; no driver call
    // Copies are timed on the device from now on, by two events each. May block until the shim's stream is
    // idle. The next two make no driver call.
    virtual void time_copies() LMS_UNLOCKED {}
    virtual void time_no_copies() {}
    // When the latest copy to `destination` ran, in CLOCK_MONOTONIC. Reported once, after query() has seen an
    // event behind it pass.
    virtual std::optional<DeviceTime> time_of_copy([[maybe_unused]] Address destination) { return {}; }
    // The same of a piece of the program's work, submitted to `stream` between begin and end, or dropped.
    // begin answers its number; 0: it is not timed, for its stream is of another context, or too many are
    // unfinished.
    virtual std::uint64_t begin_timing([[maybe_unused]] CUstream stream) LMS_UNLOCKED { return 0; }
    virtual void end_timing([[maybe_unused]] std::uint64_t piece,
                            [[maybe_unused]] CUstream stream) LMS_UNLOCKED {}
    virtual void drop_timing([[maybe_unused]] std::uint64_t piece) {}
    virtual std::optional<DeviceTime> time_of_work([[maybe_unused]] std::uint64_t piece) { return {}; }

    // Events, without timing; a handle is a name for the port's calls alone. record() leaves a fence in
    // `stream`, the program's of any context, or the shim's. It enqueues.
    virtual CUresult record(CUstream stream, CUevent& event) LMS_UNLOCKED = 0;
    // Records an event again that record() gave for that stream, and that has passed. The caller keeps it,
    // whether it was recorded or not.
    virtual CUresult record_again(CUstream stream, CUevent event) LMS_UNLOCKED = 0;
    virtual CUresult record_legacy(CUcontext context,
                                   CUevent& event) LMS_UNLOCKED = 0;  // in its legacy default stream
    // Behind all that the legacy stream was given so far, in a blocking stream of the port's. Of the
    // program's work only what the legacy stream is given later waits for it.
    virtual CUresult record_behind_legacy(CUcontext context, CUevent& event) LMS_UNLOCKED = 0;
    // Behind the work of all streams of the context, known or not; no work waits for it. It ends captures in
    // the context, so none may be under way. Drivers before 12.5 refuse.
    virtual CUresult record_context(CUcontext context, CUevent& event) LMS_UNLOCKED = 0;
    // CUDA_SUCCESS: passed; CUDA_ERROR_NOT_READY: not yet. Does not wait.
    virtual CUresult query(CUevent event) LMS_UNLOCKED = 0;
    // The same of all that a stream of the program's, or a context's legacy default stream, has been given so
    // far; or the error of a capture that forbids the question. Enqueues nothing.
    virtual CUresult query_stream(CUstream stream) LMS_UNLOCKED = 0;
    virtual CUresult query_legacy(CUcontext context) LMS_UNLOCKED = 0;
    // Takes an event back, whether it has passed or not. No driver call.
    virtual void recycle(CUevent event) = 0;
    // Work submitted to `stream` from now on waits for `event`, which the caller keeps. Enqueues.
    virtual CUresult wait_in_stream(CUstream stream, CUevent event) LMS_UNLOCKED = 0;
    // Tries moves. May block for a second, mostly for milliseconds, on the shim's own streams alone. Without
    // `memory` it creates some. An earlier trial that did not finish is looked at first, without waiting.
    virtual bool tries_moves() const { return false; }
    virtual Trial try_moves([[maybe_unused]] const std::optional<TrialMemory>& memory) LMS_UNLOCKED {
        return {};
    }
    // A trial in another process has seen a remap wait for unfinished work. No driver call.
    virtual bool remaps_were_seen_to_wait() const { return false; }
    // maps_host_memory() is false from now on. Only before any was created.
    virtual void map_no_host_memory() {}
    // CUDA_SUCCESS, or the error that all later calls on this device answer (a kernel's fault is sticky).
    virtual CUresult health() LMS_UNLOCKED = 0;
    // Blocks until all that `stream` was given so far is done. There is no such wait for a context: it would
    // end captures on its GPU.
    virtual CUresult wait_for_stream(CUstream stream) LMS_UNLOCKED = 0;

    // Contexts. The calling thread's; null: it has none.
    virtual CUcontext current_context() LMS_UNLOCKED = 0;
    // Works through `context` from now on, with streams of its own there; null: through none, until the next
    // call. The context before still exists, and nothing of this port runs in it. After a failure the port
    // works through that one still.
    virtual CUresult work_through(CUcontext context) LMS_UNLOCKED = 0;
    // `context` is destroyed, or is about to be and all its work is done. Its events count as passed and are
    // not touched again. If the port worked through it, it has none from now on. No driver call: what it has
    // of the driver's still is left to settle().
    virtual void leave(CUcontext context) = 0;

  private:
    Missing missing_;
};

}  // namespace lms::device
