// Which files may be loaded as code into the program.
#pragma once

#include <unistd.h>

#include <string>

namespace lms::util {

// Why the file at `path` (absolute, no link in it) is not to be loaded, in words that follow its name:
// a user other than root and `user` could have written it, or could put another in its place. Empty: it may
// be. May throw std::bad_alloc.
std::string distrust(const std::string& path, uid_t user = geteuid());

}  // namespace lms::util
