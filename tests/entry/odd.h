// Memory that is out, for calls whose answers are compared with and without the shim.
#pragma once

#include <cstdio>
#include <string>

#include "tests/entry/both_ways.h"

namespace rig {

// Not a multiple of anything memory is mapped in.
inline constexpr std::size_t kOdd = kBuffer + 1000;

inline void tell_number(const std::string& what, std::size_t value) {
    std::printf("%s: %zu\n", what.c_str(), value);
}

struct Out {
    Buffer a{kOdd, 1};
    Buffer b{kBuffer, 2};
    Crowd crowd;
    Out() {
        for (int i = 0; i < 3; ++i) crowd.press();
    }
};

}  // namespace rig
