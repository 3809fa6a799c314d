// A program that takes this process's place, or is run and waited for as if it had.
#pragma once

#include <string>
#include <vector>

namespace lms::tool {

// Becomes the program, looked up on PATH. Returns only if that fails: an errno.
int become(const std::vector<std::string>& command);

struct Ended {
    int problem = 0;  // errno, where the program could not be started
    int status = 0;   // as waitpid gives it
};

// Runs it, looked up on PATH, in this process's group; signals that are sent to this process go to the
// program, and it dies where this process is killed. Returns once it has ended.
Ended run_and_wait(const std::vector<std::string>& command);

// Ends as that program did: with its exit status, or by the signal that killed it.
[[noreturn]] void end_as(int status);

}  // namespace lms::tool
