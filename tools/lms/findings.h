// What a trace shows that its user can change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/lms/analysis.h"

namespace lms::tool {

struct Finding {
    std::string evidence;
    std::string action;
};

// What moves cost the run, as far as the GPU felt it.
struct Cost {
    // The time of the run over that with room for all, as replayed; nothing: the trace does not show it.
    std::optional<double> slowdown;
    // Of the run; all waiting of threads where no slowdown is known.
    double seconds = 0;
};
Cost cost_of(const Trace& trace, const Analysis& all);

// What would help most first; none where nothing moved.
std::vector<Finding> findings_of(const Trace& trace, const Analysis& all, const Cost& cost);

}  // namespace lms::tool
