// What the engine tells of what it does: counters (LMS_STATS) and, if asked for, the trace (LMS_TRACE).
#pragma once

#include <cstdint>

#include "shim/executor/migrator.h"
#include "shim/executor/state.h"
#include "shim/trace/events.h"
#include "shim/trace/live_page.h"

namespace lms::shim {

// A trace is written: tells it of the GPU. Asks the driver.
void note_gpu(const State& state);

// All need the session's lock.

// Tells the trace of all that there is.
void note_standing(const State& state) LMS_LOCKED;
// Bytes on the device or the host have changed.
void note_levels(const State& state) LMS_LOCKED;
// What went as it was, without a copy, is a move of no bytes.
void note_move(State& state, trace::Direction direction, engine::ChunkId chunk, trace::MoveReason reason,
               std::uint64_t begin_ns, std::uint64_t end_ns, bool copied = true) LMS_LOCKED;
// Of the work of a kernel, if it has one, that lacked so much at first.
void note_stall(const State& state, std::string_view kernel, trace::StallCause cause,
                std::span<const ChunkRequest> lacked, std::uint64_t begin_ns,
                std::uint64_t end_ns) LMS_LOCKED;
void note_allocation(const State& state, engine::AllocationId id,
                     std::span<const std::string> call_site) LMS_LOCKED;
// In the order of that stream; its memory is given back later.
void note_stream_free(const State& state, engine::AllocationId id, CUstream stream) LMS_LOCKED;
// It is about to be removed.
void note_free(const State& state, engine::AllocationId id) LMS_LOCKED;
// What was launched then is over, and what its stream was given before.
void note_work_over(const State& state, std::uint64_t launched_ns) LMS_LOCKED;
// Of work that is submitted, of a kernel or, without one, a copy or set. The time is from `begin_ns` to now.
void note_launch(const State& state, std::string_view kernel, trace::Copied copied, CUstream stream,
                 std::span<const ChunkRequest> needs, const ChunkPins& hold,
                 std::uint64_t begin_ns) LMS_LOCKED;

// Of launches in the sample, and of copies, that are over.
void note_work_times(State& state) LMS_LOCKED;

}  // namespace lms::shim
