// The table of `lms top`: what processes under the shim did between two looks at their pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/lms/pages.h"
#include "tools/lms/tenants.h"

namespace lms::tool {

struct Look {
    std::uint64_t at_ns = 0;  // CLOCK_MONOTONIC
    int process = 0;          // that one alone; 0: all
    Pages pages;              // of processes that run
    std::vector<SharedGpu> shared = {};
};

// A look at all processes of this user, or at `process` alone (0: all), and those that it shares GPUs with.
Look look_at_processes(int process);

// A line for each GPU of each process, below one of headings; what a process did stands in its first. A
// process that was not in `before` has done since it began what it is seen to have done.
std::vector<std::string> table(const Look& before, const Look& now);
// The same where lines may be so long: where they are longer, what is told of GPUs, then what is of
// processes.
std::vector<std::vector<std::string>> tables(const Look& before, const Look& now, std::size_t width);
// The buffers that moved most between the two looks, a line each, below one of headings; empty: none has ever
// moved.
std::vector<std::string> hottest(const Look& before, const Look& now);

// Who shares GPUs, a line for each process on each, below one of headings; empty: nobody does.
std::vector<std::string> tenants(const Look& now);

// What was seen, as a JSON array with an object for each process, also for one that is known by its shares
// alone, as of another container.
std::string to_json(const Look& look);

}  // namespace lms::tool
