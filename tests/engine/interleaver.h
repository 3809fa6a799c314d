// Runs threads in every order: exactly one goes at a time, from one lock, wait or sleep to the next, and
// there it is decided who goes on. Each run is one sequence of such decisions; explore() makes all in which a
// thread is made to wait, though it could go on, at most so many times.
//
// The test program's own pthread functions (interleaver.cpp) see what threads do. Those that are not run here
// notice nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace lms::fake {

using Bodies = std::vector<std::function<void()>>;

struct Explored {
    std::size_t runs = 0;
    std::size_t longest = 0;  // decisions in one run
    bool all_well = true;     // `check` said so of every run
};

// `make` sets up and gives the threads of one run, `check` looks at what they left and says whether to go on.
Explored explore(std::size_t preemptions, const std::function<Bodies()>& make,
                 const std::function<bool()>& check);

}  // namespace lms::fake
