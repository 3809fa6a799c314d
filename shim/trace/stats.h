// The counters of a process and their JSON (LMS_STATS).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lms::trace {

// Any thread; nothing is ordered by them. Bytes are of managed memory, over all devices.
struct Counters {
    using Counter = std::atomic<std::uint64_t>;

    Counter allocations = 0;
    Counter frees = 0;
    Counter refusals = 0;
    Counter launches = 0;
    Counter in_place_launches = 0;
    Counter fills = 0;
    Counter fills_ahead = 0;
    Counter bytes_in = 0;
    Counter evictions = 0;
    Counter bytes_out = 0;
    Counter peak_resident_bytes = 0;
    Counter peak_host_bytes = 0;
    Counter stalls = 0;
    Counter stall_ns = 0;
    Counter self_checks = 0;
    Counter self_checks_failed = 0;
    Counter self_check_ns = 0;
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

inline void raise(Counters::Counter& peak, std::uint64_t value) {
    std::uint64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

// An object with one number per field, indented, ending in a line break.
std::string to_json(const Counters& counters);

// The counters of this process.
inline constinit Counters counters_of_process;
inline Counters& counters() {
    return counters_of_process;
}

// From now on, when the process exits normally, the counters go to the file `path` as it is reached now ("%p"
// in it is the process); none if it is empty. One that cannot be written is told now. Children of fork write
// nothing unless they call it themselves. Any thread, any number of times: a process's first path counts.
// Never throws.
void write_counters_at_exit(const std::string& path) noexcept;

}  // namespace lms::trace
