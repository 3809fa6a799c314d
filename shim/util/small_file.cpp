#include "shim/util/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "shim/util/keep_errno.h"

namespace lms::util {

std::string small_file(const std::string& path) {
    const KeepErrno keep;
    std::string text(4096, '\0');
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    ssize_t bytes = 0;
    do bytes = ::read(file, text.data(), text.size());
    while (bytes < 0 && errno == EINTR);
    ::close(file);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return text;
}

}  // namespace lms::util
