// lms run: a program with the shim in front of the GPU's driver.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lms::tool {

struct RunOptions {
    // Values of the options that settings have, by the option's name; only those given.
    std::map<std::string, std::string> settings;
    std::string summary = "text";  // what is said at the end, on stderr: that, "json", or "off"
    bool simulated = false;
    std::string simulated_memory;      // a size; empty: the simulated GPU's own default
    std::vector<std::string> command;  // the program and its arguments; not empty
};

// Why the options cannot be used, in one line; empty if they can. Values are checked as the shim will.
std::string refuse(const RunOptions& options);

// Puts the shim in front of the driver, or of the simulated one, for programs that this process starts. Why
// it cannot, in one line; empty if it has.
std::string put_in_front(bool simulated);

// Who made a script to be run by Python need not have made it executable. (tools/package: the Python that
// runs lms.)
std::vector<std::string> with_interpreter(std::vector<std::string> command);

// Sets the environment up, runs the program, says what came of it and ends as it did; without a summary
// becomes the program. Returns only if it cannot be started, with the exit status, having said why on stderr.
int run(const RunOptions& options);

}  // namespace lms::tool
