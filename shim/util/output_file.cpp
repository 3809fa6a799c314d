#include "shim/util/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shim/util/keep_errno.h"
#include "shim/util/start_folder.h"
#include "shim/util/write_signals.h"

namespace lms::util {
namespace {

// Where everybody may write, others may have put a link there, of the name that is about to be written.
bool is_shared(int folder) {
    struct stat status;
    return fstat(folder, &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

// A descriptor of the folder of `path`, without which nobody can put another in its place, or -1 with errno.
int open_folder(const char* path, const char* name) noexcept {
    char folder[PATH_MAX] = ".";
    const std::size_t length = static_cast<std::size_t>(name - path);
    if (length >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (length > 0) *std::copy(path, name, folder) = '\0';
    return ::open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

// The same file by a number that is nobody's standard stream, where the program has closed those.
int beyond_standard_streams(int descriptor) noexcept {
    if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
    const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int problem = errno;
    ::close(descriptor);
    errno = problem;
    return moved;
}

// As open(2), but no link to a file is followed, and no second name of one taken, in a folder that everybody
// may write to: errno is EMLINK then.
int open_named(const char* path, int flags) noexcept {
    const char* const slash = std::strrchr(path, '/');
    const char* const name = slash == nullptr ? path : slash + 1;
    const int folder = open_folder(path, name);
    if (folder < 0) return -1;
    const bool shared = is_shared(folder);
    int descriptor = openat(folder, name, flags | (shared ? O_NOFOLLOW : 0), 0666);
    if (shared && descriptor < 0 && errno == ELOOP) errno = EMLINK;
    struct stat status;
    if (shared && descriptor >= 0 && (fstat(descriptor, &status) != 0 || status.st_nlink > 1)) {
        ::close(descriptor);
        descriptor = -1;
        errno = EMLINK;
    }
    const int problem = errno;
    ::close(folder);
    errno = problem;
    return descriptor;
}

}  // namespace

std::string expand_path(std::string_view path) {
    std::string expanded;
    for (std::size_t i = 0; i < path.size(); ++i) {
        const char next = path[i] == '%' && i + 1 < path.size() ? path[i + 1] : '\0';
        if (next == 'p') {
            expanded += std::to_string(getpid());
        } else {
            expanded += path[i];
        }
        if (next == 'p' || next == '%') ++i;
    }
    return from_start(expanded);
}

const char* OutputFile::reason(int problem) noexcept {
    switch (problem) {
        case EWOULDBLOCK:
            return "another process is writing it; %p in the name stands for the process";
        case EMLINK:
            return "a link in a world-writable folder; expected a file";
        case ENXIO:
            return "a pipe without a reader";
        case ESPIPE:
            return "a pipe or terminal; expected a file";
        default:
            return std::strerror(problem);
    }
}

int OutputFile::open(const char* path, Mode mode) noexcept {
    const KeepErrno keep;
    close();
    // The opening of a named pipe that nobody reads must not wait; a write to a slow reader must.
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (mode == Mode::Append ? O_APPEND : 0);
    descriptor_ = beyond_standard_streams(open_named(path, flags | O_NONBLOCK));
    if (descriptor_ < 0) return errno;
    struct stat status;
    bool opened = fcntl(descriptor_, F_SETFL, flags) == 0 && fstat(descriptor_, &status) == 0;
    if (opened && mode == Mode::Truncate) {
        // Some file systems of clusters have no locks; there nobody else's claim can be seen.
        opened = (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
                 (!S_ISREG(status.st_mode) || ftruncate(descriptor_, 0) == 0);
    }
    if (!opened) {
        const int problem = errno;
        ::close(descriptor_);
        descriptor_ = -1;
        return problem;
    }
    device_ = status.st_dev;
    inode_ = status.st_ino;
    return 0;
}

bool OutputFile::still_ours() const noexcept {
    struct stat status;
    return is_open() && fstat(descriptor_, &status) == 0 && status.st_dev == device_ &&
           status.st_ino == inode_;
}

void OutputFile::close() noexcept {
    const KeepErrno keep;
    if (still_ours()) ::close(descriptor_);
    descriptor_ = -1;
}

// `write(bytes)` writes some of them and returns how many, or -1 with errno.
template <typename Write>
int OutputFile::write_all(std::string_view bytes, Write write) noexcept {
    const KeepErrno keep;
    const NoWriteSignals quiet;
    if (!still_ours()) return EBADF;
    while (!bytes.empty()) {
        const ssize_t written = write(bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written == 0 ? EIO : errno;
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

int OutputFile::append(std::string_view bytes) noexcept {
    return write_all(
        bytes, [this](std::string_view rest) { return ::write(descriptor_, rest.data(), rest.size()); });
}

int OutputFile::write_at(std::uint64_t offset, std::string_view bytes) noexcept {
    return write_all(bytes, [this, end = offset + bytes.size()](std::string_view rest) {
        return pwrite(descriptor_, rest.data(), rest.size(), static_cast<off_t>(end - rest.size()));
    });
}

int OutputFile::truncate(std::uint64_t bytes) noexcept {
    const KeepErrno keep;
    if (!still_ours()) return EBADF;
    return ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

}  // namespace lms::util
