// The lock of a session (State::mutex), as its parts hand it on: what takes a SessionLock& may drop it
// meanwhile, and its caller looks again; what needs the lock and takes none keeps it.
#pragma once

#include "shim/util/mutex.h"

namespace lms::shim {

using SessionLock = util::Lock<std::mutex>;

}  // namespace lms::shim
