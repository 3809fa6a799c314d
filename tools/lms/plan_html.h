// The page of `lms plan --html`.
#pragma once

#include <span>
#include <string>

#include "tools/lms/plan.h"

namespace lms::tool {

std::string html_plan(const Workload& load, std::span<const Planned> rows, const PlanWith& with);

}  // namespace lms::tool
