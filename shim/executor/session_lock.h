// The lock of a session (Core::mutex), as its parts hand it on: what takes a SessionLock& may drop it
// meanwhile, and its caller looks again; what is LMS_LOCKED and takes none keeps it.
#pragma once

#include <mutex>
#include <utility>

#include "shim/util/mutex.h"

namespace lms::executor {

class LMS_HOLDS SessionLock : public util::Lock<std::mutex> {
  public:
    explicit SessionLock(util::Mutex& mutex) LMS_LOCKS(acquire_capability(util::session_held))
        LMS_LOCKS(no_thread_safety_analysis)
        : Lock(mutex) {}
    ~SessionLock() LMS_LOCKS(release_capability()) {}
};

// `call` uses nothing that the lock guards.
template <typename Call>
decltype(auto) unlocked(SessionLock& lock, Call&& call) LMS_LOCKED {
    return util::unlocked(lock, std::forward<Call>(call));
}

}  // namespace lms::executor
