// What is wrong with locks is noticed, by the thread that does it and before it waits; what is right is not.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "shim/util/mutex.h"

namespace {

// What the calling thread does once it has let go of a mutex; null: nothing.
thread_local const std::function<void()>* after_unlock = nullptr;

}  // namespace

extern "C" int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
    static const auto unlock =
        reinterpret_cast<decltype(&::pthread_mutex_unlock)>(dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
    const int status = unlock(mutex);
    if (after_unlock) (*after_unlock)();
    return status;
}

namespace lms::util {
namespace {

// While it lives, what is reported is thrown: a lock that is wrong is not taken.
class Thrown {
  public:
    Thrown() {
        lock_checks::report = [](const char* what) { throw std::logic_error(what); };
    }
    ~Thrown() { lock_checks::report = before_; }
    Thrown(const Thrown&) = delete;
    Thrown& operator=(const Thrown&) = delete;

  private:
    const lock_checks::Report before_ = lock_checks::report;
};

// Takes one lock, then the other.
template <typename First, typename Second>
void take(First& first, Second& second) {
    const Lock outer(first);
    const Lock inner(second);
}

TEST_CASE("locks: those taken in order are in order") {
    const Thrown thrown;
    Mutex sessions(LockOrder::Sessions), session(LockOrder::Session), leaf(LockOrder::Leaf);
    SharedMutex table(LockOrder::Table);
    for (int again = 0; again < 2; ++again) {
        const Lock first(sessions);
        const Lock second(session);
        const SharedLock third(table);
        const Lock fourth(leaf);
    }
}

TEST_CASE("locks: one taken out of order is reported") {
    const Thrown thrown;
    Mutex session(LockOrder::Session), table(LockOrder::Table);
    SharedMutex shared(LockOrder::Table);
    CHECK_THROWS_WITH(take(table, session), "taken out of order");
    CHECK_THROWS_WITH(take(shared, session), "taken out of order");
    const SharedLock looking(shared);
    CHECK_THROWS_WITH(Lock{session}, "taken out of order");
}

TEST_CASE("locks: two of one kind at once are reported, and one taken twice") {
    const Thrown thrown;
    Mutex one(LockOrder::Session), other(LockOrder::Session);
    CHECK_THROWS_WITH(take(one, other), "taken out of order");
    CHECK_THROWS_WITH(take(one, one), "taken by the thread that holds it");
    take(one, *std::make_unique<Mutex>(LockOrder::Table));
}

TEST_CASE("locks: one that is missing is reported, whoever else holds it") {
    const Thrown thrown;
    Mutex mutex(LockOrder::Session);
    CHECK_THROWS_WITH(mutex.check_held(), "not held where it is needed");
    Lock lock(mutex);
    mutex.check_held();
    std::thread([&] {
        CHECK_THROWS_WITH(mutex.check_held(), "not held where it is needed");
        CHECK_THROWS_WITH(mutex.check_leaving(), "dropped by a thread that does not hold it");
    }).join();
    unlocked(lock, [&] { CHECK_THROWS_WITH(mutex.check_held(), "not held where it is needed"); });
    mutex.check_held();
}

TEST_CASE("locks: one held across a call of the driver is reported, but for those that may be") {
    const Thrown thrown;
    for (const LockOrder order :
         {LockOrder::PointerTables, LockOrder::Session, LockOrder::Table, LockOrder::Leaf}) {
        Mutex mutex(order);
        Lock lock(mutex);
        CHECK_THROWS_WITH(check_calling_driver(), "held across a call of the driver");
        unlocked(lock, [] { check_calling_driver(); });
    }
    Mutex sessions(LockOrder::Sessions), owed(LockOrder::Driver);
    const Lock opening(sessions);
    const Lock settling(owed);
    check_calling_driver();
}

TEST_CASE("locks: what is dropped is another's, and comes back") {
    const Thrown thrown;
    Mutex outer(LockOrder::Sessions), inner(LockOrder::Session);
    Lock lock(inner);
    CHECK_THROWS_WITH(Lock{outer}, "taken out of order");
    const int answer = unlocked(lock, [&] {
        take(outer, inner);
        return 7;
    });
    CHECK(answer == 7);
    inner.check_held();
    CHECK_THROWS_WITH(Lock{outer}, "taken out of order");
}

TEST_CASE("locks: a notification between the unlock and the sleep is not lost") {
    Mutex mutex(LockOrder::Session);
    Condition changed;
    bool done = false;
    const std::function<void()> notify = [&] {
        after_unlock = nullptr;
        {
            const Lock lock(mutex);
            done = true;
        }
        changed.notify_all();
    };
    Lock lock(mutex);
    changed.wait(lock, [&] {
        if (!done) after_unlock = &notify;
        return done;
    });
    CHECK(done);
}

TEST_CASE("locks: a wait drops its lock and holds it again") {
    const Thrown thrown;
    Mutex mutex(LockOrder::Session);
    Condition changed;
    bool asked = false, answered = false;
    std::thread other([&] {
        Lock lock(mutex);
        changed.wait(lock, [&] { return asked; });
        mutex.check_held();
        answered = true;
        changed.notify_all();
    });
    {
        Lock lock(mutex);
        asked = true;
        changed.notify_all();
        changed.wait_for(lock, std::chrono::hours(1), [&] {
            mutex.check_held();
            return answered;
        });
        changed.wait_for(lock, std::chrono::nanoseconds(1));
        mutex.check_held();
    }
    other.join();
    CHECK(answered);
    CHECK_THROWS_WITH(mutex.check_held(), "not held where it is needed");
}

}  // namespace
}  // namespace lms::util
