#include "shim/util/trust.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

namespace lms::util {

std::string distrust(const std::string& path, uid_t user) {
    const std::string above = path.substr(0, path.rfind('/') + 1);
    struct stat file;
    struct stat folder;
    if (lstat(path.c_str(), &file) != 0 || stat(above.c_str(), &folder) != 0)
        return fmt::format("cannot be looked at: {}", std::strerror(errno));
    if (file.st_uid != 0 && file.st_uid != user)
        return fmt::format("belongs to user {}, expected root or user {}", file.st_uid, user);
    if ((file.st_mode & S_IWOTH) != 0)
        return fmt::format("is world-writable (mode {:04o}), expected {:04o}", file.st_mode & 07777,
                           file.st_mode & 07777 & ~S_IWOTH);
    // With the sticky bit, what is there stays its owner's.
    if ((folder.st_mode & S_IWOTH) != 0 && (folder.st_mode & S_ISVTX) == 0)
        return fmt::format("is in a world-writable folder (mode {:04o}), expected {:04o}",
                           folder.st_mode & 07777, folder.st_mode & 07777 & ~S_IWOTH);
    return {};
}

}  // namespace lms::util
