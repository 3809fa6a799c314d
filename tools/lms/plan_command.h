// lms plan: will it fit, and how slow will it be?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lms::tool {

struct PlanOptions {
    std::string path;                   // a trace, or a recorded step; empty: `command`
    std::vector<std::string> command;   // a program and its arguments
    std::vector<std::string> gpus;      // --gpu; none: those that are known
    std::optional<std::uint64_t> size;  // n, of a recorded step
    std::optional<double> kernel_ms;
    std::string context;  // a size
    std::string memory;   // of the simulated GPU on which the program runs
    unsigned seconds = 0;
    bool as_json = false;
    std::string html;
};

// What is wrong with the options, in one line; empty if nothing is.
std::string refuse(const PlanOptions& options);
// Returns an exit status (exit_codes.h).
int plan(const PlanOptions& options);

}  // namespace lms::tool
