// A live folder of the test's own, in which processes on one GPU meet.
#pragma once

#include <cstdlib>

#include "tests/support/scratch.h"

namespace lms::fake {

struct LivePages {
    LivePages() { setenv("XDG_RUNTIME_DIR", scratch.path().c_str(), 1); }
    ~LivePages() { unsetenv("XDG_RUNTIME_DIR"); }
    Scratch scratch;
};

}  // namespace lms::fake
