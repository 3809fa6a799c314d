// How often what is at some address has changed: a buffer, a mapping of the program's, memory that is not
// managed.
#pragma once

#include <atomic>
#include <cstdint>

namespace lms::program {

// Counted under the lock of what has changed, or after the call that changed it, before the program is
// answered. Who reads it first and then looks, by that lock, has found what is there as long as this stays.
inline constinit std::atomic<std::uint64_t> memory_changes{0};

}  // namespace lms::program
