// What a program was told when it asked how much memory a GPU has. One that finds it too little ends by
// itself, before anything could be moved for it: when the process ends so, one line says what it was told and
// what changes that.
#pragma once

#include <cstdint>

namespace lms::engine {

// Any thread, any number of times. `free_bytes` is 0 where it asked for the whole alone.
void note_memory_told(std::uint64_t total_bytes, std::uint64_t free_bytes) noexcept;

}  // namespace lms::engine
