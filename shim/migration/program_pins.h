// Chunks that the program wants kept on the device (<lms/lms.h>).
#pragma once

#include "shim/migration/state.h"

namespace lms::engine {

// All need the session's lock.

// Bytes of all that is pinned so, each chunk once.
std::uint64_t pinned_bytes(const State& state);
bool is_program_pinned(const State& state, core::ChunkId id);
// The pin itself stays in the list.
void end_pin(State& state, const ProgramPin& pin);
// Of a buffer that is freed.
void end_pins_of(State& state, core::AllocationId id);
// For work that cannot run beside them; said once. False: there are none.
bool give_up_pins(State& state);

}  // namespace lms::engine
