// The machine's monotonic clock, and waits by it, which no other preload bends (libfaketime does that to
// libc's).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lms::util {

// CLOCK_MONOTONIC. Thread-safe; needs no memory, and changes no errno.
struct Clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;

    static time_point now() noexcept;
};

inline std::uint64_t now_ns() noexcept {
    return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
}

// Sleeps that long; a signal may end it.
void pause(Clock::duration length) noexcept;

// Sleeps as long as `word` is `seen`, until it is woken, or that long; also for no reason.
void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept;
void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, Clock::duration most) noexcept;
void wake_all(const std::atomic<std::uint32_t>& word) noexcept;
// The same of a word in memory that processes share.
void sleep_on_shared(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                     Clock::duration most) noexcept;
void wake_all_sharing(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace lms::util
