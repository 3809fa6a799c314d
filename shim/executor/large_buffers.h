// Buffers that take more than their share of the GPU: what of them work is thought to use, and whether that
// is brought in.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>

#include "shim/device/port.h"
#include "shim/engine/engine.h"
#include "shim/engine/in_place_costs.h"
#include "shim/engine/parts.h"
#include "shim/trace/events.h"

namespace lms::executor {

using engine::ChunkRequest;
struct Core;

// A piece of work that is timed for engine::InPlaceCosts; none where `kind` is 0.
struct TimedWork {
    std::uint64_t kind = 0;
    std::uint64_t in_place_bytes = 0;
};

// What a session knows of its large buffers. Needs its lock.
struct LargeBuffers {
    // A piece of work was submitted that is timed for `costs`.
    void submitted(std::uint64_t piece, const TimedWork& work);
    // Takes the times of those that are over.
    void take_times(device::Port& port);

    std::uint64_t largest_bytes = 0;  // of all buffers there ever were
    engine::Parts parts;
    engine::InPlaceCosts costs;
    std::array<double, 2> ns_per_byte{};  // as copies were seen last, by trace::Direction; 0: none was
    bool timed = false;                   // the device times copies and work for their sake
    // Of work that has been submitted, as those pieces (device::Port).
    std::deque<std::pair<std::uint64_t, TimedWork>> under_way;
};

// All need the session's lock.

// More than a quarter of what may be on the GPU, where what is missing can be used in place.
bool is_large(const Core& core, std::uint64_t bytes) LMS_LOCKED;

// Of the large buffers among `needs` all but the parts that are meant is aside. If all fits at once none is,
// for parts are guessed; else sets aside too what is not there and had better be used in place. `code` stands
// for what runs. What is to be timed of it, once note_in_place() has told where it ended up.
TimedWork choose_place(Core& core, const void* code, std::span<ChunkRequest> needs) LMS_LOCKED;
void note_in_place(const engine::Residency& residency, std::span<const ChunkRequest> needs,
                   TimedWork& work) LMS_LOCKED;

// A move is over: for what is told of it, and for the costs of large buffers.
void note_move(Core& core, trace::Direction direction, engine::ChunkId chunk, trace::MoveReason reason,
               std::uint64_t begin_ns, std::uint64_t end_ns, bool copied = true) LMS_LOCKED;

}  // namespace lms::executor
