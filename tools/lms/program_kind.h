// What can be told of a program from its file.
#pragma once

#include <string>

namespace lms::tool {

// Why no process of a run of this program told of itself: one sentence without a full stop.
std::string why_untouched(const std::string& program);

}  // namespace lms::tool
