// What reads bytes that the shim did not write, each as a function of those bytes alone. A target crashes
// where something is wrong; libFuzzer makes inputs for it (fuzz.cpp), and every test run gives it those that
// are kept (replay_test.cpp).
#pragma once

#include <span>
#include <string_view>

namespace fuzz {

struct Target {
    std::string_view name;  // its inputs are kept in corpus/<name>
    void (*run)(std::string_view input);
};

std::span<const Target> targets();
const Target* find(std::string_view name);

}  // namespace fuzz
