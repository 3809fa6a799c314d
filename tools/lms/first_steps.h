// A program's first steps, on the simulated GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/lms/workload.h"

namespace lms::tool {

struct FirstSteps {
    std::vector<std::string> command;
    std::string memory;         // of the simulated GPU; empty: half of what the machine has
    bool skips_native = false;  // kernels of native code alone do nothing, which else end the program
    unsigned seconds = 0;       // after which the program is ended; 0: it ends by itself
};

// Runs the program and gives what it did; nothing, having said why on stderr, where `status` is to be the
// command's.
std::optional<Workload> run_first_steps(const FirstSteps& options, int& status);

}  // namespace lms::tool
