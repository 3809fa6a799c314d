// Locks that are checked: in which order they are taken by builds with LMS_CHECK_LOCKS (the sanitizers', and
// tests/locks), what needs which by clang (-Wthread-safety, which clang-tidy runs with). Neither costs the
// shipped library anything.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

#ifdef LMS_CHECK_LOCKS
#include "shim/util/lock_checks.h"
#endif

#ifdef __clang__
#define LMS_LOCKS(attribute) __attribute__((attribute))
#else
#define LMS_LOCKS(attribute)
#endif
// Of a class; of one that holds a lock while it lives; of a variable; of a function that needs a lock.
#define LMS_CAPABILITY LMS_LOCKS(capability("mutex"))
#define LMS_HOLDS LMS_LOCKS(scoped_lockable)
#define LMS_GUARDED_BY(mutex) LMS_LOCKS(guarded_by(mutex))
#define LMS_REQUIRES(mutex) LMS_LOCKS(requires_capability(mutex))

namespace lms::util {

// All locks of the shim, outermost first. A thread takes them in this order, never two of one kind.
enum class LockOrder : std::uint8_t {
    Sessions,       // opening a session; held across driver calls, for that happens once a GPU
    PointerTables,  // where pointers lie in memory; sessions are asked whose they are meanwhile
    Session,        // all that one session knows; never held across a driver call
    Table,          // one list of the program's things each: streams, contexts, graphs, code
    Leaf,           // nothing is taken, nobody asked, while one is held
};

// `Base` is std::mutex or std::shared_mutex.
template <typename Base>
class LMS_CAPABILITY Checked {
  public:
#ifdef LMS_CHECK_LOCKS
    explicit Checked(LockOrder order) : order_(order) {}
    void check_taking() const {
        lock_checks::taking(this, static_cast<int>(order_));
    }
    void check_leaving() const {
        lock_checks::leaving(this);
    }
    void check_held() const {
        lock_checks::needs(this);
    }
#else
    constexpr explicit Checked(LockOrder) {}
    void check_taking() const {}
    void check_leaving() const {}
    // The calling thread holds it.
    void check_held() const {}
#endif
    Checked(const Checked&) = delete;
    Checked& operator=(const Checked&) = delete;

    // For the classes below.
    Base base;

#ifdef LMS_CHECK_LOCKS
  private:
    LockOrder order_;
#endif
};
using Mutex = Checked<std::mutex>;
using SharedMutex = Checked<std::shared_mutex>;

// Holds a mutex, alone, while it lives, except within unlocked() and Condition.
template <typename Base>
class LMS_HOLDS Lock {
  public:
    explicit Lock(Checked<Base>& mutex) LMS_LOCKS(acquire_capability(mutex)) : mutex_(mutex) { take(); }
    ~Lock() LMS_LOCKS(release_capability()) { leave(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    Checked<Base>& mutex() const { return mutex_; }
    void take() {
        mutex_.check_taking();
        mutex_.base.lock();
    }
    void leave() {
        mutex_.check_leaving();
        mutex_.base.unlock();
    }

  private:
    Checked<Base>& mutex_;
};

// Shares one with others who only look.
class LMS_HOLDS SharedLock {
  public:
    explicit SharedLock(SharedMutex& mutex) LMS_LOCKS(acquire_shared_capability(mutex)) : mutex_(mutex) {
        mutex_.check_taking();
        mutex_.base.lock_shared();
    }
    ~SharedLock() LMS_LOCKS(release_capability()) {
        mutex_.check_leaving();
        mutex_.base.unlock_shared();
    }
    SharedLock(const SharedLock&) = delete;
    SharedLock& operator=(const SharedLock&) = delete;

  private:
    SharedMutex& mutex_;
};

// Calls `call` with the lock dropped, and returns what it does: what the lock guards may be another's
// afterwards.
template <typename Base, typename Call>
decltype(auto) unlocked(Lock<Base>& lock, Call&& call) {
    struct Dropped {
        explicit Dropped(Lock<Base>& held) : lock(held) { lock.leave(); }
        ~Dropped() { lock.take(); }
        Lock<Base>& lock;
    };
    const Dropped dropped(lock);
    return call();
}

// Drops the lock while it waits.
class Condition {
  public:
    void notify_all() { base_.notify_all(); }

    template <typename Done>
    void wait(Lock<std::mutex>& lock, Done&& done) LMS_LOCKS(no_thread_safety_analysis) {
        while (!done()) with(lock, [&](auto& held) { base_.wait(held); });
    }
    template <typename Duration>
    void wait_for(Lock<std::mutex>& lock, Duration duration) {
        with(lock, [&](auto& held) { base_.wait_for(held, duration); });
    }
    template <typename Duration, typename Done>
    void wait_for(Lock<std::mutex>& lock, Duration duration, Done&& done)
        LMS_LOCKS(no_thread_safety_analysis) {
        const auto deadline = std::chrono::steady_clock::now() + duration;
        while (!done() && std::chrono::steady_clock::now() < deadline)
            with(lock, [&](auto& held) { base_.wait_until(held, deadline); });
    }

  private:
    template <typename Wait>
    static void with(Lock<std::mutex>& lock, Wait&& wait) {
        lock.mutex().check_leaving();
        std::unique_lock held(lock.mutex().base, std::adopt_lock);
        wait(held);
        held.release();
        lock.mutex().check_taking();
    }

    std::condition_variable base_;
};

}  // namespace lms::util
