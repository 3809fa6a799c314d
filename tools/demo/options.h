// The command line.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace demo {

struct Options {
    std::size_t memory = std::size_t{96} << 20;  // bytes of GPU memory the model is made for
    int steps = 120;
    std::string losses;              // file to write, or empty
    std::vector<std::string> texts;  // files
    std::size_t leave = 0;           // bytes; not 0: train nothing, hold the rest of the GPU's memory
    bool help = false;
};

class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

extern const char* const kHelp;

// Throws UsageError, whose text names the option, what was found and what is accepted.
Options parse_options(int argc, char** argv);

}  // namespace demo
