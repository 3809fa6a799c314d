#include "shim/util/mappings.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "shim/util/keep_errno.h"

namespace lms::util {
namespace {

// Calls take(text) for each part of the file.
template <typename Take>
void read_file(const char* root, const char* path, Take take) noexcept {
    char name[PATH_MAX];
    if (std::snprintf(name, sizeof name, "%s%s", root, path) >= static_cast<int>(sizeof name)) return;
    const int file = ::open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    char text[4096];
    for (ssize_t bytes; (bytes = ::read(file, text, sizeof text)) != 0;) {
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) break;
        take(std::string_view(text, static_cast<std::size_t>(bytes)));
    }
    ::close(file);
}

}  // namespace

Mappings mappings(const char* root) noexcept {
    const KeepErrno keep;
    Mappings found{};
    read_file(root, "/proc/self/maps", [&](std::string_view text) {
        found.there += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    });
    read_file(root, "/proc/sys/vm/max_map_count", [&](std::string_view text) {
        std::from_chars(text.data(), text.data() + text.size(), found.allowed);
    });
    return found;
}

}  // namespace lms::util
