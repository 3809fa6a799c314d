// lms demo: a model trained on a big GPU, a small one, and the small one with the shim.
#pragma once

#include <string>
#include <vector>

namespace lms::tool {

struct DemoOptions {
    int steps = 120;
    std::vector<std::string> texts;  // files to train on; none: the project's documents
};

// Becomes the demo; an exit status where that cannot be.
int demo(const DemoOptions& options);

}  // namespace lms::tool
