// The programs of tests/apps that work through memory the shim manages.
#pragma once

#include <span>
#include <string>

#include "tests/e2e/programs.h"

namespace e2e {

struct App {
    std::string name;
    unsigned mib;  // what it works through
    Environment environment;
};

// Each needs no more than a quarter of its memory in any one launch.
std::span<const App> apps();

// A share of what the program works through, as SIMCUDA_MEMORY has it.
std::string memory_of(const App& app, double share);

// Its output on a GPU with room and without the shim; fails the running test if it fails there.
std::string reference_of(const App& app);

}  // namespace e2e
