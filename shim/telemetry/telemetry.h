// What is told of one GPU: counters (LMS_STATS), the page that `lms top` reads, the trace (LMS_TRACE) and
// messages for the user. A message is said once: one line of at most 160 characters that says what happened,
// what it costs and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/device/port.h"
#include "shim/engine/engine.h"
#include "shim/telemetry/launch_samples.h"
#include "shim/telemetry/link_speeds.h"
#include "shim/trace/events.h"
#include "shim/trace/writer.h"
#include "shim/util/settings.h"

namespace lms::telemetry {

// Needs the session's lock.
class Telemetry {
  public:
    Telemetry(int device, device::Port& port, const engine::Engine& engine, const Settings& settings)
        : device_(device), port_(port), engine_(engine), settings_(settings) {}

    // The trace that is written knows what there is; before, it is told nothing.
    bool traced = false;
    LaunchSamples samples;             // for it
    LinkSpeeds speeds;                 // as the device was seen to copy
    std::uint64_t moved_in_bytes = 0;  // ever

    // Tells the trace of all that there is.
    void note_standing() const;
    // Bytes on the device or the host have changed.
    void note_levels() const;
    // Of the GPU's memory so much is not managed, nor free.
    void note_unmanaged(std::uint64_t bytes);
    // What it may take of a GPU that other processes use too has changed; 0: they do not.
    void note_grant(std::uint64_t granted_bytes) const;
    // What went as it was, without a copy, is a move of no bytes. Answers when the device made the copy,
    // where that is known; `is_timed`: something else than the trace wants to know.
    std::optional<device::DeviceTime> note_move(trace::Direction direction, engine::ChunkId chunk,
                                                trace::MoveReason reason, std::uint64_t begin_ns,
                                                std::uint64_t end_ns, bool copied, bool is_timed);
    // Of the work of a kernel, if it has one, that lacked so much at first.
    void note_stall(std::string_view kernel, trace::StallCause cause,
                    std::span<const engine::ChunkRequest> lacked, std::uint64_t begin_ns,
                    std::uint64_t end_ns) const;
    void note_allocation(engine::AllocationId id, std::span<const std::string> call_site) const;
    // In the order of that stream; its memory is given back later.
    void note_stream_free(engine::AllocationId id, CUstream stream) const;
    // It is about to be removed.
    void note_free(engine::AllocationId id) const;
    // What was launched then is over, and what its stream was given before.
    void note_work_over(std::uint64_t launched_ns) const;
    // Of work that is submitted, of a kernel or, without one, a copy or set. The time is from `begin_ns` to
    // now.
    void note_launch(std::string_view kernel, trace::Copied copied, CUstream stream,
                     std::span<const engine::ChunkRequest> needs, const engine::ChunkPins& hold,
                     std::uint64_t begin_ns) const;
    // Of launches in the sample, and of copies, that are over.
    void note_work_times();

    // The first eviction, or the first allocation beyond the GPU.
    void announce_pressure() const;
    // A launch has waited for as long as it should, and waits on.
    void announce_wait() const;
    // A trial of moves has shown that contents are lost, in place or altogether.
    void announce_distrust(const device::Trial& trial) const;
    // The driver's remaps wait for all work that is unfinished.
    void announce_remaps_wait() const;
    // A launch that names `bytes` fails: more than the GPU has room for, and it cannot reach host memory.
    void announce_too_large(std::uint64_t bytes) const;
    // An allocation of `bytes` fails: GPU and host limit together are full, or no more host memory is to be
    // had.
    void announce_no_capacity(std::uint64_t bytes) const;
    void announce_no_host_memory(std::uint64_t bytes) const;
    // The context has failed for good, as all its calls say: what moved when that was noticed.
    void announce_failure(CUresult error) const;
    // Where LMS_RESERVE, LMS_LIMIT or other processes leave nothing of a GPU of `total_bytes`.
    void announce_no_budget(std::uint64_t total_bytes) const;

  private:
    trace::Writer* writer() const;
    void note_beyond(std::uint64_t allocated_bytes) const;
    void note_allocated(std::uint64_t bytes) const;
    std::vector<trace::Touched> touched(std::span<const engine::ChunkRequest> needs,
                                        std::span<const engine::ChunkId> in_place) const;
    void tell_allocation(engine::AllocationId id, std::span<const std::string> call_site) const;
    void tell_speeds() const;
    void tell_levels() const;
    void tell_unmanaged() const;
    std::uint64_t held_host_bytes() const { return engine_.pool(engine::Place::Host).held_bytes(); }

    const int device_;
    device::Port& port_;
    const engine::Engine& engine_;
    const Settings& settings_;
    std::optional<std::uint64_t> unmanaged_bytes_;  // when it was last looked at
};

// The rest needs no lock.

// A trace is written: tells it of the GPU. Asks the driver.
void note_gpu(int device, device::Port& port) LMS_UNLOCKED;

// A launch works on `missing_bytes` of the `bytes` it names in host memory; `late`: because unfinished work
// holds the GPU's memory.
void announce_in_place(std::uint64_t missing_bytes, std::uint64_t bytes, bool late);
// The driver has no room for memory that is not managed, for it is smaller than the threshold.
void announce_too_small(std::uint64_t bytes, std::uint64_t threshold_bytes);

// Something could not be mapped: whether it may have been one mapping too many for the kernel.
bool announce_no_mappings();

// The program's pins, of so many bytes, are given up, for work cannot run beside them.
void announce_pins_given_up(std::uint64_t bytes);

// A GPU of `total_bytes` is not served, for its and the host's memory find no addresses.
void announce_no_addresses(CUdevice device, std::uint64_t total_bytes, std::uint64_t host_bytes);

// Where LMS_HOST_LIMIT is more than there is.
void announce_host_limit(const Settings& settings, std::uint64_t in_force_bytes);

}  // namespace lms::telemetry
