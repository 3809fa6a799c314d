// Before the first chunk moves, the driver shows on memory of the shim's own that moves can be trusted.
#pragma once

#include "shim/migration/state.h"

namespace lms::engine {

// Once in a session; who comes meanwhile waits. Where moves cannot be trusted no host memory is used from
// then on, so that nothing moves and the GPU stays as large as it is. Drops the lock.
void check_moves(State& state, SessionLock& lock);

}  // namespace lms::engine
