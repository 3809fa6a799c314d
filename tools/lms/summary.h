// What `lms run` says of a run that has ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "tools/lms/pages.h"

namespace lms::tool {

// The pages of the processes of this run (`run`: LivePage::run), which are taken away from their folder; the
// counters of those that were killed are put where LMS_STATS says.
Pages take_pages(const trace::ProcessName& run);

// A few lines, each behind "lms: ". `command`: the program that was run, for when no page tells of it.
// `now_ns` (CLOCK_MONOTONIC) is the end of processes that were killed.
std::string summary(const Pages& pages, const std::string& command, std::uint64_t now_ns);
// The same as a JSON object: the processes, and the sums over them.
std::string summary_json(const Pages& pages, std::uint64_t now_ns);

}  // namespace lms::tool
