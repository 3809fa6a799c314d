// Runs through the states of a case: all of them, or at random and far.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/explore/world.h"

namespace explore {

struct Found {
    std::uint64_t states = 0;  // visited, each once
    std::uint64_t ends = 0;    // of those, where the program is over
    std::string wrong;         // empty: nothing is
    std::vector<Action> path;  // to there
};

// All orders of events, breadth first, so that the path to what is wrong is a shortest one; at most so many
// states.
Found explore(const Case& plan, std::uint64_t most_states);

// One random walk until the program is over; a path that goes wrong is shrunk.
Found walk(const Case& plan, std::uint64_t seed, std::size_t most_steps);

// The same steps again, as far as each is possible.
std::string replay(const Case& plan, const std::vector<Action>& path);

std::string to_string(const std::vector<Action>& path);

}  // namespace explore
