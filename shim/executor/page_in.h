// Chunks in to device memory, carried out: the engine decides what may come (engine/engine.h).
#pragma once

#include <span>

#include "shim/executor/core.h"
#include "shim/executor/session_lock.h"

namespace lms::executor {

enum class Outcome {
    Moved,      // at least one
    Cancelled,  // other work came in between; trying again may do
    Failed,     // the driver refused
};

// Maps the blocks and enqueues the copies; does not wait for them. Needs `lock`, the session's, and drops it
// around driver calls. Only for the migrator whose turn it is.
Outcome page_in(Core& core, std::span<const engine::PageIn> fills, SessionLock& lock) LMS_LOCKED;

}  // namespace lms::executor
