// A report as one page that needs nothing else: tables, and pictures in SVG.
#pragma once

#include <string>
#include <vector>

#include "tools/lms/analysis.h"

namespace lms::tool {

std::string html_report(const Trace& trace, const Analysis& all, const std::vector<std::string>& sentences);

}  // namespace lms::tool
