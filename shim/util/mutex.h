// Locks that are checked: in which order they are taken by builds with LMS_CHECK_LOCKS (the sanitizers', and
// tests/locks), what needs which by clang (-Wthread-safety, which clang-tidy runs with). Neither costs the
// shipped library anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

#include "shim/util/clock.h"

#ifdef LMS_CHECK_LOCKS
#include <functional>
#include <utility>

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
    Driver,         // what the driver is asked once, or owed; held across its calls
    Leaf,           // while one is held, no other lock is taken and no driver call made
};

// What a thread has that holds a session's lock (shim/executor/session_lock.h), by the name that clang knows
// it by.
struct LMS_CAPABILITY SessionHeld {};
inline constinit SessionHeld session_held;
// Of what that lock guards; of a function or a lambda that needs it, and of one that no caller holds it
// across, for it may block in the driver.
#define LMS_GUARDED LMS_GUARDED_BY(::lms::util::session_held)
#define LMS_LOCKED LMS_REQUIRES(::lms::util::session_held)
#define LMS_UNLOCKED LMS_LOCKS(locks_excluded(::lms::util::session_held))

// Where the driver is called: no lock is held but those that may be across that.
inline void check_calling_driver() {
#ifdef LMS_CHECK_LOCKS
    lock_checks::calling_driver([](int order) {
        return order == static_cast<int>(LockOrder::Sessions) || order == static_cast<int>(LockOrder::Driver);
    });
#endif
}

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
        if (always_) always_();
        lock_checks::leaving(this);
    }
    void check_held() const {
        lock_checks::needs(this);
    }
    // Called each time before it is dropped: what it guards is whole then.
    void always(std::function<void()> check) {
        always_ = std::move(check);
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
    std::function<void()> always_;
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

// Shares one with other readers.
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

// Calls `call` with the lock dropped, and returns its result. Other threads may change what the lock guards
// meanwhile.
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

// Drops the lock while it waits. By util::Clock, which a std::condition_variable's waits are not.
class Condition {
  public:
    void notify_all() {
        ++notified_;
        if (waiting_ > 0) wake_all(notified_);
    }

    template <typename Done>
    void wait(Lock<std::mutex>& lock, Done&& done) LMS_LOCKS(no_thread_safety_analysis) {
        while (!done()) once(lock, [this](std::uint32_t seen) { sleep_on(notified_, seen); });
    }
    // Once, so long at most; also for no reason.
    void wait_for(Lock<std::mutex>& lock, Clock::duration most) {
        once(lock, [&](std::uint32_t seen) { sleep_on(notified_, seen, most); });
    }
    template <typename Done>
    void wait_for(Lock<std::mutex>& lock, Clock::duration most, Done&& done)
        LMS_LOCKS(no_thread_safety_analysis) {
        const auto deadline = Clock::now() + most;
        for (auto now = Clock::now(); !done() && now < deadline; now = Clock::now())
            wait_for(lock, deadline - now);
    }

  private:
    // A notification before the lock is dropped has been seen; a later one finds this thread waiting.
    template <typename Sleep>
    void once(Lock<std::mutex>& lock, Sleep&& sleep) {
        ++waiting_;
        const std::uint32_t seen = notified_;
        unlocked(lock, [&] { sleep(seen); });
        --waiting_;
    }

    std::atomic<std::uint32_t> notified_{0};
    std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace lms::util
