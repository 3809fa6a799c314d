// The page that a command writes beside its answer (--html).
#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "tools/lms/to_stderr.h"

namespace lms::tool {

// False, and one line that says why, where it cannot be written.
inline bool write_html(std::string_view command, const std::string& path, const std::string& page) {
    errno = 0;
    std::ofstream file(path);
    file << page;
    if (file.flush()) return true;
    to_stderr("lms {}: --html {}: {}\n", command, path, errno ? std::strerror(errno) : "cannot be written");
    return false;
}

}  // namespace lms::tool
