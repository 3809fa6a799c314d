// Relative paths in settings, which mean the same wherever the program goes.
#pragma once

#include <string>
#include <string_view>

namespace lms::util {

// `path` from the folder in which the process was when the shim was loaded. May throw std::bad_alloc.
std::string from_start(std::string_view path);

}  // namespace lms::util
