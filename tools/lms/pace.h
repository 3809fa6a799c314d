// How far a replayed program has come, as modelled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tools/lms/replay_script.h"

namespace lms::tool {

// Where the program is, and the GPU: the works of a stream follow one another.
struct Pace {
    explicit Pace(std::size_t streams) : free(streams) {}

    // When the work ends, which waits for what comes in.
    double submit(const ReplayScript::Step& step, double ready) {
        double& end = free[step.stream];
        end = std::max({end, ready, now}) + static_cast<double>(step.ran_ns) / 1e9;
        ends.push_back(end);
        return end;
    }
    // When the program has nothing else to do, and when it has waited for what it did: so many works were
    // over then.
    double waits_from(const ReplayScript::Step& step) const {
        return now + static_cast<double>(step.took_ns) / 1e9;
    }
    double waits_until(const ReplayScript::Step& step) const {
        const std::size_t over = std::min<std::size_t>(step.over, ends.size());
        return std::max(waits_from(step), over > 0 ? ends[over - 1] : 0);
    }
    // When it goes on.
    double next(const ReplayScript::Step& step) const {
        return waits_until(step) + static_cast<double>(step.after_ns) / 1e9;
    }

    double now = 0;
    std::vector<double> free;  // by stream, its last work is over
    std::vector<double> ends;  // of works
};

}  // namespace lms::tool
