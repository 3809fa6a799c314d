// What a program was told when it asked how much memory a GPU has, or for more of it. One that finds it too
// little ends by itself, before anything, or much, could be moved for it: when the process ends so, one line
// says what it was told and what changes that.
#pragma once

#include <cstdint>

namespace lms::telemetry {

// Any thread, any number of times. `free_bytes` is 0 where it asked for the whole alone.
void note_memory_told(std::uint64_t total_bytes, std::uint64_t free_bytes) noexcept;

// LMS_SOFT_LIMIT had an allocation of so many bytes fail, and its thread has not tried again; 0: it has.
void note_refused_once(std::uint64_t bytes) noexcept;

}  // namespace lms::telemetry
