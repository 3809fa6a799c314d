// C++ names as people write them.
#pragma once

#include <string>

namespace lms::trace {

// The source form of a mangled name; any other name, and one of which that is longer than 64 KiB, as it is.
// May throw std::bad_alloc.
std::string demangled(const std::string& symbol);

}  // namespace lms::trace
