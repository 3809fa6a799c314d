// The page of `lms report --html`: one file that fetches nothing.
#pragma once

#include <string>
#include <vector>

#include "tools/lms/findings.h"

namespace lms::tool {

std::string html_report(const Trace& trace, const Analysis& all, const std::vector<std::string>& sentences,
                        const std::vector<Finding>& findings);

}  // namespace lms::tool
