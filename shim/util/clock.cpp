#include "shim/util/clock.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "shim/util/keep_errno.h"

namespace lms::util {

namespace {

using ClockGettime = int(clockid_t, timespec*);

int ask_kernel(clockid_t clock, timespec* time) {
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
}

constinit std::atomic<ClockGettime*> clock_gettime_unbent{ask_kernel};

// From then on the kernel's own that needs no system call, by its name in vdso(7). Not at the first call:
// that may hold a lock which others want who have the loader's.
[[gnu::constructor]] void find_clock() {
    void* const vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void* const found = vdso ? dlvsym(vdso, "__vdso_clock_gettime", "LINUX_2.6") : nullptr;
    if (found) clock_gettime_unbent = reinterpret_cast<ClockGettime*>(found);
}

timespec span_of(Clock::duration length) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    const std::int64_t ns = length.count() > 0 ? length.count() : 0;
    return {ns / kSecond, ns % kSecond};
}

void futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* most) {
    const KeepErrno keep;
    syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), operation, value, most, nullptr, 0);
}

}  // namespace

Clock::time_point Clock::now() noexcept {
    timespec now{};
    clock_gettime_unbent.load(std::memory_order_relaxed)(CLOCK_MONOTONIC, &now);
    return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

void pause(Clock::duration length) noexcept {
    const KeepErrno keep;
    const timespec span = span_of(length);
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &span, nullptr);
}

void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
    futex(word, FUTEX_WAIT_PRIVATE, seen, nullptr);
}

void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, Clock::duration most) noexcept {
    const timespec span = span_of(most);
    futex(word, FUTEX_WAIT_PRIVATE, seen, &span);
}

void sleep_on_shared(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                     Clock::duration most) noexcept {
    const timespec span = span_of(most);
    futex(word, FUTEX_WAIT, seen, &span);
}

void wake_all_sharing(const std::atomic<std::uint32_t>& word) noexcept {
    futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

void wake_all(const std::atomic<std::uint32_t>& word) noexcept {
    futex(word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

}  // namespace lms::util
