// What the simulated GPU wrote of a program's kernels (SIMCUDA_WORK), matched with the launches of its trace.
#pragma once

#include <string>

#include "tools/lms/workload.h"

namespace lms::tool {

// Gives the workload, which is of a trace, the times of its kernels and the program's pace.
void use_simulated_work(Workload& load, const std::string& path);

}  // namespace lms::tool
