// What a trace shows that somebody can do something about.
#pragma once

#include <string>
#include <vector>

#include "tools/lms/analysis.h"

namespace lms::tool {

struct Finding {
    std::string evidence;
    std::string action;
};

// What would help most first; none where nothing moved.
std::vector<Finding> findings_of(const Trace& trace, const Analysis& all);

}  // namespace lms::tool
