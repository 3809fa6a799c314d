// How far a replayed program has come, as modelled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tools/lms/replay_script.h"

namespace lms::tool {

// Where the program is, and the GPU: the works of a stream follow one another. Those of two streams do where
// one is a copy into what the other uses: a program without races makes them.
struct Pace {
    Pace(std::size_t streams, std::size_t chunks) : free(streams), copied(chunks), used(chunks) {}

    // When the work ends, which waits for what comes in, and for `link` if it is a copy over that. It takes
    // `least` seconds for what it uses in host memory.
    double submit(const ReplayScript::Step& step, std::span<const ReplayScript::Touch> touched, double ready,
                  double* link = nullptr, double least = 0) {
        double& end = free[step.stream];
        end = std::max({end, ready, now, link ? *link : 0});
        for (const ReplayScript::Touch& each : touched)
            end = std::max(end, step.code == 0 ? used[each.chunk] : copied[each.chunk]);
        end += std::max(static_cast<double>(step.ran_ns) / 1e9, least);
        if (link) *link = end;
        for (const ReplayScript::Touch& each : touched) {
            used[each.chunk] = std::max(used[each.chunk], end);
            if (step.code == 0 && !each.only_read) copied[each.chunk] = end;
        }
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

    // When the program and the GPU have both come to their end. A program may end its part first: one that
    // is traced for a while is not seen to wait for what it submitted last.
    double end() const { return std::max(now, *std::ranges::max_element(free)); }

    double now = 0;
    std::vector<double> free;    // by stream, its last work is over
    std::vector<double> copied;  // by chunk, the last copy into it is over
    std::vector<double> used;    // by chunk, whatever used it is over
    std::vector<double> ends;    // of works
};

}  // namespace lms::tool
