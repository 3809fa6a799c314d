// How the end-to-end tests run a program.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace e2e {

using Environment = std::map<std::string, std::string>;

// A run under the shim, what LMS_STATS says of it, and how often the simulated driver saw a rule broken.
struct Run : support::Result {
    std::map<std::string, std::uint64_t> stats;
    std::uint64_t violations = 0;
};

// Runs build/apps/<arguments[0]> on a simulated GPU of `memory` ("8M"), without the shim.
support::Result run_bare(const std::vector<std::string>& arguments, const std::string& memory,
                         const Environment& more = {});

// The same under the shim, which comes behind what LD_PRELOAD names. Chunks and the threshold are small, so
// that small programs move a lot.
Run run_shimmed(const std::vector<std::string>& arguments, const std::string& memory,
                const Environment& more = {});

}  // namespace e2e
