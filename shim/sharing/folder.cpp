#include "shim/sharing/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "shim/util/keep_errno.h"

namespace lms::sharing {
namespace {

std::string distrusted_folder(int folder) {
    struct stat status {};
    if (fstat(folder, &status) != 0) return std::strerror(errno);
    if (status.st_uid != geteuid())
        return fmt::format("belongs to user {}, expected user {}", status.st_uid, geteuid());
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return fmt::format("has mode {:04o}, expected 0700", status.st_mode & 07777);
    return {};
}

}  // namespace

SharingFolder::SharingFolder(const std::string& path) {
    const util::KeepErrno keep;
    if (path.empty()) {
        number_ = live_.emplace().number();
        if (number_ < 0) problem_ = "there is no folder for live pages";
        return;
    }
    number_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    std::string problem = number_ < 0 ? std::strerror(errno) : distrusted_folder(number_);
    if (problem.empty()) return;
    if (number_ >= 0) ::close(number_);
    number_ = -1;
    problem_ = fmt::format("LMS_SHARE_DIR={}: {}", path, problem);
}

SharingFolder::~SharingFolder() {
    const util::KeepErrno keep;
    if (!live_ && number_ >= 0) ::close(number_);
}

}  // namespace lms::sharing
