// Chunks that the program wants kept on the device (<lms/lms.h>).
#pragma once

#include <span>

#include "shim/executor/state.h"

namespace lms::shim {

// All need the session's lock.

bool is_program_pinned(const State& state, engine::ChunkId id) LMS_LOCKED;
// Chunks that are on the device, by what the program names them by.
void begin_pin(State& state, engine::Address address, std::uint64_t bytes,
               std::span<const engine::ChunkId> chunks) LMS_LOCKED;
// One that was begun by these names; false: there is none.
bool end_pin(State& state, engine::Address address, std::uint64_t bytes) LMS_LOCKED;
// Of names in [address, address + bytes), where nothing is mapped any more.
void end_pins_at(State& state, engine::Address address, std::uint64_t bytes) LMS_LOCKED;
// Of a buffer that is freed.
void end_pins_of(State& state, engine::AllocationId id) LMS_LOCKED;
// For work that cannot run beside them; said once. False: there are none.
bool give_up_pins(State& state) LMS_LOCKED;

}  // namespace lms::shim
