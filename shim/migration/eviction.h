// Chunks out to host memory, in two steps: the copy is enqueued ahead of need and waited for by nobody; the
// address is remapped when the room is wanted. In between a launch may claim the chunk back at no cost.
#pragma once

#include <cstdint>
#include <span>

#include "shim/migration/page_in.h"
#include "shim/migration/session_lock.h"
#include "shim/migration/state.h"

namespace lms::engine {

// All need `lock`, the session's. Only the migrator whose turn it is may call the first three; they drop the
// lock around driver calls.

enum class Start { Enough, NoVictims, NoHostMemory, Failed };
// Enqueues copies of the policy's victims, idle ones only, until those that leave have as many bytes together
// as are wanted, and of `ahead` more those that come before the first clean one, which can go at any time.
Start start_evictions(State& state, const core::VictimRequest& wanted, std::uint64_t ahead,
                      SessionLock& lock);

// The same of those that are on the device, idle and not kept there.
Start start_evictions_of(State& state, std::span<const ChunkRequest> those, SessionLock& lock);

enum class Finish { Moved, NothingReady, Failed };
// Remaps chunks whose copies are complete, until they have `bytes` together or no other is complete.
Finish complete_evictions(State& state, std::uint64_t bytes, SessionLock& lock);

// Bytes of the chunks that leave: whose copy has begun and that no launch has claimed back.
std::uint64_t pending_eviction_bytes(const State& state);

// How much is to be copied out before it is needed: nothing where the next launches would only end it.
std::uint64_t ahead_bytes(const State& state);

// Stops the evictions that can still be stopped: work that may reach any chunk is about to be submitted.
void cancel_evictions(State& state);

// Stops those that much work has passed by: a kernel may have written through a pointer that nobody saw, and
// the longer a copy waits for its remap, the more likely that is. What is needed is copied again.
void cancel_stale(State& state);

// Whether the chunk may be a victim. One that the driver does not let go, time and again, is none for a
// while: others leave in its place, or the call that needs room is out of memory, instead of trying for ever.
bool may_leave(const State& state, core::ChunkId id);
// All may again.
void forget_refusals(State& state);

// Whether the chunk leaves as it is. Guards want to see it copied (complete_evictions).
bool needs_no_copy(const State& state, core::ChunkId id);

// Gives back the memory of copies that are complete and of no use. Drops nothing.
void sweep_evictions(State& state);

}  // namespace lms::engine
