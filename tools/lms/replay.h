// A traced program's use of memory, moved by another policy or in another amount of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/lms/modelled_moves.h"
#include "tools/lms/replay_script.h"

namespace lms::tool {

// Orders that know the future. The first moves the fewest bytes: its victims may be in use still, so moves
// wait for them, and the program does not. The second moves what a policy could move: idle victims, chunks
// brought in ahead.
inline constexpr const char* kFewestBytes = "fewest-bytes";
inline constexpr const char* kForesight = "foresight";
inline constexpr const char* kLeastTime = "least-time";  // a row of `lms replay`: the fastest of all replayed

struct ReplayWith {
    std::string policy;  // as LMS_POLICY, kFewestBytes or kForesight
    double in_bytes_per_s = 25e9;
    double out_bytes_per_s = 25e9;
    std::optional<double> frac = {};
    std::uint64_t threshold_bytes = 0;
    double remap_seconds = 0;             // of the thread that moves a chunk, before and after its copy
    double launch_seconds = 0;            // of the thread that launches, where not all fits
    bool retains = false;                 // what nothing has written goes out without a copy
    bool clears = false;                  // new memory that found no room comes in without one
    std::vector<std::size_t> marks = {};  // steps, in order, after which Replayed::reached is noted
};

// How far a replay has come, once the GPU has done what it was given.
struct Reached {
    double seconds = 0;
    double fitting_seconds = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
};

struct Replayed : Moved {
    std::uint64_t in_place = 0;         // works that found no room for all they named
    double seconds = 0;                 // as modelled
    double fitting_seconds = 0;         // if nothing had to move
    std::uint64_t peak_bytes = 0;       // of all buffers at once
    std::uint64_t peak_host_bytes = 0;  // of evicted chunks, and of host copies that are kept
    std::vector<Reached> reached = {};  // by mark

    std::uint64_t bytes() const { return bytes_in + bytes_out; }
};

Replayed replay(const ReplayScript& script, const ReplayWith& with);

}  // namespace lms::tool
