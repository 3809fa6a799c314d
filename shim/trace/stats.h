// The counters of a process and their JSON (LMS_STATS).
#pragma once

#include <atomic>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace lms::trace {

// Any thread; nothing is ordered by them. Bytes are of managed memory, over all devices.
struct Counters {
    using Counter = std::atomic<std::uint64_t>;

#define LMS_COUNTER(name, meaning) Counter name = 0;
#include <lms/counters.def>
};

struct CounterField {
    std::string_view name;  // its key in the JSON
    Counters::Counter Counters::*member;
    std::string_view meaning;
};

std::span<const CounterField> counter_fields();

inline void add(Counters::Counter& counter, std::uint64_t amount = 1) {
    counter.fetch_add(amount, std::memory_order_relaxed);
}

inline void set(Counters::Counter& level, std::uint64_t value) {
    level.store(value, std::memory_order_relaxed);
}

inline void raise(Counters::Counter& peak, std::uint64_t value) {
    std::uint64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

// An object with one number per field.
nlohmann::ordered_json to_json(const Counters& counters);

// From now on this process's counters (live_page.h) are shared with tools, and when it exits normally they go
// to the file `path` as it is reached now ("%p" in it is the process); to none if it is empty. A file that
// cannot be written is reported now. Children of fork write nothing unless they call it themselves. Any
// thread, any number of times: a process's first call counts. Never throws.
void begin_counters(const std::string& path) noexcept;

// Brings that file up to date, should it be a second old, by another in its place: a process that is killed
// leaves it so. Without a lock. Never throws.
void refresh_counters() noexcept;

}  // namespace lms::trace
