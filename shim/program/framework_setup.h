// What a CPython program finds in its environment: the variables of util/frameworks.h, set before `main`, so
// that the interpreter copies them and its children inherit them. Other programs' environments stay as they
// are.
#pragma once

#include <string_view>

namespace lms::program {

// Says at `info` which frameworks are set up, and which keep what the user has set. Any thread.
void tell_frameworks();

// The names of the frameworks that were set up when the program started, between commas. Any thread.
std::string_view frameworks_set_up() noexcept;

}  // namespace lms::program
