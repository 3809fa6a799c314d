#include "shim/trace/process_name.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim/util/keep_errno.h"

namespace lms::trace {
namespace {

// 0: there is none, or it is dead.
std::uint64_t start_in(const char* path) noexcept {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[1024];
    const ssize_t length = ::read(file, text, sizeof text - 1);
    ::close(file);
    if (length <= 0) return 0;
    text[length] = '\0';
    // The second field is a name that may have spaces and brackets; the third and all behind it have none.
    const char* const name_end = std::strrchr(text, ')');
    const auto number_at = [&](int wanted) -> std::uint64_t {
        const char* field = name_end;
        for (int number = 2; field != nullptr && number < wanted; ++number)
            field = std::strchr(field + 1, ' ');
        return field == nullptr ? 0 : std::strtoull(field, nullptr, 10);
    };
    // The third: dead ones stay until their parent has asked for them. A main thread may have ended before
    // others, which the twentieth counts.
    const bool ended = name_end != nullptr && (name_end[2] == 'Z' || name_end[2] == 'X');
    return ended && number_at(20) <= 1 ? 0 : number_at(22);
}

std::uint64_t inode_of(const char* path) noexcept {
    struct stat status;
    return stat(path, &status) == 0 ? status.st_ino : 0;
}

// Inodes of name spaces have 32 bits. A kernel without name spaces of time has one time.
std::uint64_t spaces_of_this_process() noexcept {
    const std::uint64_t numbers = inode_of("/proc/self/ns/pid");
    return numbers == 0 ? 0 : numbers | inode_of("/proc/self/ns/time") << 32;
}

// In a new name space /proc may still be that of the one outside.
bool proc_has_our_numbers() noexcept {
    char text[32] = {};
    return readlink("/proc/self", text, sizeof text - 1) > 0 && std::atoll(text) == getpid();
}

}  // namespace

ProcessName this_process() noexcept {
    const util::KeepErrno keep;
    return {getpid(), start_in("/proc/self/stat"), spaces_of_this_process()};
}

ProcessName process_of(pid_t number) noexcept {
    const util::KeepErrno keep;
    if (!proc_has_our_numbers()) return {number, 0, 0};
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%d/stat", number);
    return {number, start_in(path), spaces_of_this_process()};
}

std::string text_of(const ProcessName& process) {
    return std::to_string(process.number) + "." + std::to_string(process.started) + "." +
           std::to_string(process.spaces);
}

ProcessName parse_process(const char* text) noexcept {
    ProcessName process;
    if (std::sscanf(text, "%" SCNd64 ".%" SCNu64 ".%" SCNu64, &process.number, &process.started,
                    &process.spaces) != 3)
        return {};
    return process;
}

Life life_of(const ProcessName& process) noexcept {
    const ProcessName here = process_of(static_cast<pid_t>(process.number));
    if (here.spaces == 0 || here.spaces != process.spaces) return Life::Unknown;
    return here == process ? Life::Runs : Life::Gone;
}

}  // namespace lms::trace
