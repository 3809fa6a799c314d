// Waits go by the kernel's clock, also where a preload bends libc's.
#include "shim/util/clock.h"

#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "shim/util/mutex.h"

// As under libfaketime: a day late. Who waits for such a time waits for a day.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
    const long status = syscall(SYS_clock_gettime, clock, time);
    time->tv_sec += 24 * 60 * 60;
    return static_cast<int>(status);
}

using namespace lms::util;
using namespace std::chrono_literals;

TEST_CASE("clock: a bent clock of libc's bends no other") {
    CHECK(std::chrono::steady_clock::now().time_since_epoch() - Clock::now().time_since_epoch() > 23h);
}

TEST_CASE("clock: waits end though libc's clock is bent") {
    Mutex mutex(LockOrder::Session);
    Condition changed;
    const auto begin = Clock::now();
    {
        Lock lock(mutex);
        changed.wait_for(lock, 1ms);
        changed.wait_for(lock, 1ms, [] { return false; });
        pause(1ms);
    }
    CHECK(Clock::now() - begin >= 1ms);
}

TEST_CASE("clock: who is notified before it sleeps does not sleep") {
    std::atomic<std::uint32_t> word{1};
    sleep_on(word, 0);
    std::thread waker([&] {
        word = 2;
        wake_all(word);
    });
    while (word != 2) sleep_on(word, 1);
    waker.join();
    CHECK(word == 2);
}

TEST_CASE("clock: errno is the caller's") {
    errno = EDOM;
    std::atomic<std::uint32_t> word{1};
    sleep_on(word, 1, 1ns);
    sleep_on(word, 0, 1h);
    wake_all(word);
    pause(1ns);
    CHECK(errno == EDOM);
}
