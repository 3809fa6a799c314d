// lms run --sim --limit 50%: a program at a share of the memory that it takes.
#pragma once

#include <string>
#include <vector>

#include "tools/lms/child.h"
#include "tools/lms/pages.h"

namespace lms::tool {

// Of "50%", 0.5; 0: it is no share from 1 to 100 %.
double share_of(const std::string& text);

// A program that was run, and the pages of its processes.
struct FinishedRun {
    Ended ended;
    Pages pages = {};
};
FinishedRun run_and_tell(const std::vector<std::string>& command);
// On stderr: "text", "json" or "off".
void say(const FinishedRun& told, const std::vector<std::string>& command, const std::string& how);
int cannot_start(const std::vector<std::string>& command, int problem);

// Runs the program with all its memory, and again with a share of what its buffers then took. Ends as the
// program does where it fails, and with kNotWell where nothing had to move: that shows nothing.
int run_at_share(const std::vector<std::string>& command, double share, const std::string& how);

}  // namespace lms::tool
