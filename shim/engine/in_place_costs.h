// Whether work had better use memory in place, over the link, than wait for it to be brought in: found out by
// trying both. What reads each byte once loses little in place; what reads it often, much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace lms::engine {

// `kind` stands for work that does the same each time: a kernel, and how many bytes it wants.
class InPlaceCosts {
  public:
    struct Choice {
        bool in_place;
        bool timed;  // ran() is to be told how long it took
    };
    // Work of that kind lacks some memory; moving a byte of it takes so long, the way out of what makes room
    // included.
    Choice choose(std::uint64_t kind, double move_ns_per_byte);
    // It took `ns` on the GPU with `in_place_bytes` in place. Of those with none the least counts, for others
    // may have run beside it; of the rest the latest.
    void ran(std::uint64_t kind, std::uint64_t in_place_bytes, std::uint64_t ns);

  private:
    static constexpr double kUnknown = -1;
    // A try whose time has not come after so much work of its kind is made again; one that has, ever later.
    static constexpr std::uint64_t kLost = 64, kLeastBetween = 16, kMostBetween = 4096;
    static constexpr std::size_t kMostKinds = 4096;

    struct Kind {
        double resident_ns = kUnknown;
        double more_ns_per_byte = kUnknown;  // in place
        std::uint64_t works = 0;
        std::uint64_t next_try = 0;  // by `works`
        std::uint64_t between = kLeastBetween;
    };

    std::unordered_map<std::uint64_t, Kind> kinds_;
};

}  // namespace lms::engine
