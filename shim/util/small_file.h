// Files of the kernel's, which are read at once.
#pragma once

#include <string>

namespace lms::util {

// What the file begins with, 4 KiB at most; empty: it cannot be read. May throw std::bad_alloc.
std::string small_file(const std::string& path);

}  // namespace lms::util
