#include "shim/trace/live_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "shim/trace/events.h"
#include "shim/trace/live_folder.h"
#include "shim/util/keep_errno.h"
#include "shim/util/log.h"
#include "shim/util/output_file.h"
#include "shim/util/settings.h"

namespace lms::trace {
namespace {

static_assert(sizeof(OwnPage) % 4096 == 0);

constexpr std::pair<const char*, Counters::Counter LiveGpu::*> kLevels[] = {
    {"budget_bytes", &LiveGpu::budget_bytes},
    {"allocated_bytes", &LiveGpu::allocated_bytes},
    {"peak_allocated_bytes", &LiveGpu::peak_allocated_bytes},
    {"most_beyond_bytes", &LiveGpu::most_beyond_bytes},
    {"resident_bytes", &LiveGpu::resident_bytes},
    {"host_bytes", &LiveGpu::host_bytes},
    {"turn_wait_ns", &LiveGpu::turn_wait_ns},
};

// Null where they are not known.
constexpr std::pair<const char*, Counters::Counter LiveGpu::*> kIfKnown[] = {
    {"granted_bytes", &LiveGpu::granted_bytes},
    {"least_granted_bytes", &LiveGpu::least_granted_bytes},
    {"in_bytes_per_s", &LiveGpu::in_bytes_per_s},
    {"out_bytes_per_s", &LiveGpu::out_bytes_per_s},
};

// The process whose page is shared; a child of fork has another number.
std::atomic<pid_t> sharing_process = 0;

// A child would count in its parent's page.
void share_nothing() {
    sharing_process = 0;
    void* const place = &own_page;
    if (mmap(place, sizeof own_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == place) {
        new (&own_page) OwnPage;
    }
}

void fill_head(LivePage& page, const std::string& stats_path) {
    page.bytes = sizeof own_page;
    page.process = this_process();
    const char* const run = secure_getenv("LMSSHIM_RUN");
    page.run = run == nullptr ? ProcessName{} : parse_process(run);
    page.began_ns = now_ns();
    std::strncpy(page.program, program_invocation_name, sizeof page.program - 1);
    settings().policy.copy(page.policy, sizeof page.policy - 1);
    // A path cut short would name another file.
    if (stats_path.size() < sizeof page.stats_path) stats_path.copy(page.stats_path, stats_path.size());
}

// Puts the file where the page is, with what the page has by now.
bool share(int file) {
    void* const shared = mmap(nullptr, sizeof own_page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) return false;
    std::memcpy(shared, static_cast<const void*>(&own_page), sizeof own_page);
    if (mremap(shared, sizeof own_page, sizeof own_page, MREMAP_MAYMOVE | MREMAP_FIXED, &own_page) !=
        MAP_FAILED) {
        return true;
    }
    munmap(shared, sizeof own_page);
    return false;
}

}  // namespace

LiveGpu& live_gpu(int device) {
    static LiveGpu nowhere;
    if (device < 0 || static_cast<std::size_t>(device) >= LivePage::kGpus) return nowhere;
    return own_page.page.gpus[device];
}

nlohmann::ordered_json to_json(const LivePage& page) {
    nlohmann::ordered_json json = to_json(page.counters);
    json["gpus"] = nlohmann::ordered_json::array();
    for (std::size_t device = 0; device < LivePage::kGpus; ++device) {
        const LiveGpu& gpu = page.gpus[device];
        if (gpu.used == 0) continue;
        nlohmann::ordered_json levels{{"gpu", device}};
        for (const auto& [name, level] : kLevels) levels[name] = (gpu.*level).load();
        for (const auto& [name, level] : kIfKnown) {
            const std::uint64_t known = (gpu.*level).load();
            levels[name] = known > 0 ? nlohmann::ordered_json(known) : nlohmann::ordered_json();
        }
        json["gpus"].push_back(levels);
    }
    return json;
}

int write_stats(const LivePage& page, const std::string& path) noexcept try {
    if (path.empty()) return 0;
    util::OutputFile file;
    const int problem = file.open(path.c_str(), util::OutputFile::Mode::Truncate);
    // Not at an offset, so that it may be a pipe or a terminal.
    return problem != 0 ? problem : file.append(to_json(page).dump(2) + "\n");
} catch (const std::exception&) {
    return ENOMEM;
}

void replace_stats(const LivePage& page) noexcept try {
    const util::KeepErrno keep;
    struct stat status;
    if (lstat(page.stats_path, &status) != 0 || !S_ISREG(status.st_mode)) return;
    // Beside it at first, so that whoever reads, or ends the program, finds it whole.
    const std::string path = page.stats_path;
    const std::string fresh = fmt::format("{}.{}", path, getpid());
    if (write_stats(page, fresh) != 0) {
        ::unlink(fresh.c_str());
        write_stats(page, path);
    } else if (::rename(fresh.c_str(), path.c_str()) != 0) {
        ::unlink(fresh.c_str());
    }
} catch (const std::exception&) {
    // Out of host memory: it stays as it is.
}

void publish(const std::string& stats_path) noexcept try {
    if (sharing_process.exchange(getpid()) == getpid()) return;
    const util::KeepErrno keep;
    const LiveFolder folder;
    fill_head(own_page.page, stats_path);
    if (!folder.is_open()) return log::debug("no folder for the live page; nothing is shared with tools");
    folder.clean();
    const std::string name = name_of(own_page.page);
    int file = folder.create(name);
    if (file < 0 && errno == EEXIST && own_page.page.process.spaces != 0) {
        // Of what the process was before an exec.
        folder.remove(name);
        file = folder.create(name);
    }
    if (file < 0) return log::debug("no live page: {}", std::strerror(errno));
    static const int at_fork = pthread_atfork(nullptr, nullptr, share_nothing);
    if (at_fork != 0 || !share(file)) folder.remove(name);
    ::close(file);
} catch (const std::exception& problem) {
    log::debug("no live page: {}", problem.what());
}

void withdraw() noexcept try {
    LivePage& page = own_page.page;
    if (sharing_process != getpid()) return;
    page.ended_ns = now_ns();
    if (page.run == ProcessName{}) LiveFolder().remove(name_of(page));
} catch (const std::exception&) {
    // Out of memory: who looks at the folder next takes it away.
}

}  // namespace lms::trace
