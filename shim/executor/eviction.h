// Chunks out to host memory, carried out: the engine chooses (engine/engine.h).
#pragma once

#include <cstdint>
#include <span>

#include "shim/executor/core.h"
#include "shim/executor/session_lock.h"

namespace lms::executor {

// All need `lock`, the session's. Only the migrator whose turn it is may call them; they drop the lock around
// driver calls.

enum class Start { Enough, NoVictims, NoHostMemory, Failed };
// Enqueues the copies of victims (engine::Engine::next_eviction).
Start start_evictions(Core& core, const engine::VictimRequest& wanted, std::uint64_t ahead,
                      SessionLock& lock) LMS_LOCKED;

// The same for room that is foretold to be lacking, a few copies at a time. NoVictims: no more is.
Start start_foretold(Core& core, SessionLock& lock) LMS_LOCKED;

// The same of those that are on the device, idle and not kept there.
Start start_evictions_of(Core& core, std::span<const ChunkRequest> those, SessionLock& lock) LMS_LOCKED;

enum class Finish { Moved, NothingReady, Failed };
// Remaps chunks whose copies are complete, until they have `bytes` together or no other is complete.
Finish complete_evictions(Core& core, std::uint64_t bytes, SessionLock& lock) LMS_LOCKED;
// Those of start_foretold() whose copies are complete.
Finish complete_foretold(Core& core, SessionLock& lock) LMS_LOCKED;

}  // namespace lms::executor
