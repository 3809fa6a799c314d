#include "shim/util/start_folder.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <cstring>

#include "shim/util/keep_errno.h"

namespace lms::util {
namespace {

// Where that is not known, or not yet: the folder of the moment.
constinit char folder[PATH_MAX] = ".";

[[gnu::constructor]] void note_folder() {
    const KeepErrno keep;
    if (char now[PATH_MAX]; getcwd(now, sizeof now)) std::strcpy(folder, now);
}

}  // namespace

std::string from_start(std::string_view path) {
    return path.starts_with('/') ? std::string(path) : fmt::format("{}/{}", folder, path);
}

}  // namespace lms::util
