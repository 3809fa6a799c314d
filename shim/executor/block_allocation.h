// Blocks within the budget and the host limit.
#pragma once

#include <optional>

#include "shim/executor/core.h"
#include "shim/executor/session_lock.h"

namespace lms::executor {

// Both need `lock`, the session's, and drop it around driver calls.

// A device block for `bytes` that keeps the device within `limit` resident bytes: pooled, or new if the
// budget allows. `drains`: free blocks of other sizes make room also where that has to wait for the program's
// work (Core::remaps_wait).
std::optional<Block> device_block(Core& core, std::uint64_t bytes, std::uint64_t limit, SessionLock& lock,
                                  bool drains = false) LMS_LOCKED;
// A host block within LMS_HOST_LIMIT and what the machine can spare.
std::optional<Block> host_block(Core& core, std::uint64_t bytes, SessionLock& lock) LMS_LOCKED;
// For what will have to go to the host when a new chunk of `bytes` comes in. False: the driver does not pin
// as much as it may be asked for. Then it is the allocation that fails, not what the program does with it.
bool pin_ahead(Core& core, std::uint64_t bytes, SessionLock& lock) LMS_LOCKED;

}  // namespace lms::executor
