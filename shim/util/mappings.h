// How many mappings this process has, of those that the kernel allows it (vm.max_map_count).
#pragma once

#include <cstdint>

namespace lms::util {

struct Mappings {
    std::uint64_t there;
    std::uint64_t allowed;  // 0: not known

    // So near the end that what could not be mapped may have been one too many.
    bool at_end() const { return allowed != 0 && there + allowed / 64 >= allowed; }
};

// Reads all of /proc/self/maps: milliseconds where there are many. `root` is put before the paths, for tests.
// Takes no memory, for there may be none to be had.
Mappings mappings(const char* root = "") noexcept;

}  // namespace lms::util
