#include "shim/util/answer_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "shim/util/write_signals.h"

namespace lms::util {
namespace {

constexpr std::size_t kMostBytes = 4096;
// What crashed for want of memory, say, is asked again some day.
constexpr time_t kGoodFor = 7 * 24 * 3600;

// Empty where there is none.
std::string folder() {
    const char* const cache = secure_getenv("XDG_CACHE_HOME");
    if (cache && cache[0] == '/') return std::string(cache) + "/lmsshim";
    const char* const home = secure_getenv("HOME");
    return home && home[0] == '/' ? std::string(home) + "/.cache/lmsshim" : std::string();
}

// The file holds its key, so that two of one name are told apart.
std::string file_of(std::string_view kind, const std::string& key) {
    const std::string in = folder();
    return in.empty() ? in : fmt::format("{}/{}-{:016x}", in, kind, XXH3_64bits(key.data(), key.size()));
}

}  // namespace

std::string cached_answer(std::string_view kind, const std::string& key) {
    const std::string path = file_of(kind, key);
    const int file = path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return {};
    struct stat status {};
    char text[kMostBytes];
    const bool own = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                     (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                     time(nullptr) - status.st_mtime < kGoodFor;
    const ssize_t bytes = own ? read(file, text, sizeof text) : -1;
    close(file);
    const std::string_view read_text(text, bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    const std::string start = key + "\n";
    if (!read_text.starts_with(start)) return {};
    const std::string_view answer = read_text.substr(start.size());
    return std::string(answer.substr(0, answer.find('\n')));
}

void keep_answer(std::string_view kind, const std::string& key, std::string_view answer) {
    const std::string path = file_of(kind, key);
    if (path.empty()) return;
    const std::string in = folder();
    mkdir(in.substr(0, in.rfind('/')).c_str(), 0700);
    mkdir(in.c_str(), 0700);
    // It appears whole.
    std::string made = path + ".XXXXXX";
    const int file = mkostemp(made.data(), O_CLOEXEC);
    if (file < 0) return;
    const std::string text = fmt::format("{}\n{}\n", key, answer);
    const NoWriteSignals quiet;
    const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(file);
    if (!written || rename(made.c_str(), path.c_str()) != 0) unlink(made.c_str());
}

}  // namespace lms::util
