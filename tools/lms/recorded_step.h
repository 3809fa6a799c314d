// Recorded steps: the texts of tools/experiments/steps (tools/experiments/recorder.py says what their lines
// mean).
#pragma once

#include <cstdint>
#include <string>

#include "tools/lms/workload.h"

namespace lms::tool {

// The step at size n, done six times, each tensor from cudaMallocAsync. `problem` is one line where the text
// is no such step.
Workload read_step(const std::string& path, std::uint64_t n, std::string& problem);

// What n counts, as the text says it; empty where the file is no recorded step.
std::string size_of_step(const std::string& path);

}  // namespace lms::tool
