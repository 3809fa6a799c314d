// Before the first chunk moves, the driver shows on memory of the shim's own that moves can be trusted.
#pragma once

#include "shim/executor/core.h"

namespace lms::executor {

// A block of the GPU's for the trial: when that is due the GPU is full. Not where there is room for none,
// or enough beyond what chunks may take.
// Drops the lock.
void set_trial_block_apart(Core& core, SessionLock& lock) LMS_LOCKED;
// Its context is gone, and nothing of the port runs.
void give_back_trial_block(Core& core) LMS_LOCKED;

// Until a trial has told something, or some have not; who comes meanwhile waits. Where moves cannot be
// trusted no host memory is used from then on, so that nothing moves and the GPU stays as large as it is.
// Drops the lock.
void check_moves(Core& core, SessionLock& lock) LMS_LOCKED;

}  // namespace lms::executor
