#include "tools/simcuda/driver/shared/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

namespace simcuda::driver::shared {
namespace {

struct Status {
    Identity identity;
    char state = 0;
    std::uint64_t threads = 0;
};

// /proc/PID/stat, see proc(5). False if there is no such process.
bool read_status(std::int32_t process, Status& out) {
    char text[2048];
    std::snprintf(text, sizeof text, "/proc/%d/stat", process);
    const int file = ::open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t bytes = ::read(file, text, sizeof text - 1);
    ::close(file);
    if (bytes <= 0) return false;
    text[bytes] = '\0';
    const char* at = std::strrchr(text, ')');  // the name may hold anything
    if (at == nullptr || at[1] == '\0') return false;
    out = {{process, 0, 0}, at[2], 0};
    at += 3;
    for (int field = 4; field <= 28; ++field) {
        char* end = nullptr;
        const std::uint64_t value = std::strtoull(at, &end, 10);
        if (end == at) return false;
        at = end;
        if (field == 20) out.threads = value;
        if (field == 22) out.identity.started = value;
        if (field == 28) out.identity.stack = value;
    }
    return true;
}

}  // namespace

Identity own_identity() {
    Status status;
    return read_status(::getpid(), status) ? status.identity : Identity{::getpid(), 0, 0};
}

bool is_alive(const Identity& identity) {
    Status now;
    if (identity.process <= 0 || !read_status(identity.process, now)) return false;
    // The main thread may have ended before others.
    const bool ended = (now.state == 'Z' || now.state == 'X') && now.threads <= 1;
    const bool same_stack = now.identity.stack == identity.stack || now.identity.stack == 0;
    return !ended && now.identity.started == identity.started && same_stack;
}

Activity activity_of(std::int32_t process) {
    const std::string folder = "/proc/" + std::to_string(process) + "/task";
    const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir(folder.c_str()), ::closedir);
    Activity activity{threads != nullptr, 0};
    while (const dirent* const entry = threads != nullptr ? ::readdir(threads.get()) : nullptr) {
        if (entry->d_name[0] == '.') continue;
        std::ifstream status(folder + "/" + entry->d_name + "/status");
        for (std::string name, value; status >> name && std::getline(status, value);) {
            if (name == "State:" && value.find_first_of("RD") < 2) activity.asleep = false;
            if (name.ends_with("voluntary_ctxt_switches:")) activity.switches += std::stoull(value);
        }
    }
    return activity;
}

}  // namespace simcuda::driver::shared
