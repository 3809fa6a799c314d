// Blocks within the budget and the host limit.
#pragma once

#include <optional>

#include "shim/executor/session_lock.h"
#include "shim/executor/state.h"

namespace lms::shim {

// Both need `lock`, the session's, and drop it around driver calls.

// A device block for `bytes` that keeps the device within `limit` resident bytes: pooled, or new if the
// budget allows.
std::optional<Block> device_block(State& state, std::uint64_t bytes, std::uint64_t limit,
                                  SessionLock& lock) LMS_LOCKED;
// A host block within LMS_HOST_LIMIT and what the machine can spare.
std::optional<Block> host_block(State& state, std::uint64_t bytes, SessionLock& lock) LMS_LOCKED;

}  // namespace lms::shim
