#include "shim/util/host_memory.h"

#include <sys/stat.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>

#include "shim/util/cgroups.h"
#include "shim/util/keep_errno.h"
#include "shim/util/mutex.h"

namespace lms::util {
namespace {

// The files of one version of the memory controller.
struct Controller {
    const char* name;  // as cgroup_folders() takes it
    const char* limit;
    const char* usage;
    std::array<const char*, 2> cache;  // lines of memory.stat: file cache, dropped before anything is refused
};
constexpr Controller kV1 = {
    "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr Controller kV2 = {"", "memory.max", "memory.current", {"inactive_file", "active_file"}};

// The number a file starts with; nothing if there is no such file or it says "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
    std::ifstream file(path);
    std::uint64_t number = 0;
    if (!(file >> number)) return std::nullopt;
    return number;
}

// The number after `key` in a file of lines "key number ...".
std::optional<std::uint64_t> value_in(const std::string& path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string word;
        std::uint64_t number = 0;
        if (words >> word >> number && word == key) return number;
    }
    return std::nullopt;
}

// The machine, or a cgroup: what it has in all, and what is left of it.
struct Level {
    std::uint64_t bytes;
    std::uint64_t left;
    std::string folder = {};  // of a cgroup
};

Level machine(const std::string& root) {
    const auto available = value_in(root + "/proc/meminfo", "MemAvailable:");
    const auto total = value_in(root + "/proc/meminfo", "MemTotal:");
    if (available) return {total.value_or(0) * 1024, *available * 1024};
    // Without /proc the kernel still tells what is free, if not what it would drop for us.
    struct sysinfo machine = {};
    sysinfo(&machine);
    return {std::uint64_t{machine.totalram} * machine.mem_unit,
            (std::uint64_t{machine.freeram} + machine.bufferram) * machine.mem_unit};
}

void add_level(const Controller& controller, const std::string& folder, std::vector<Level>& levels) {
    const auto limit = number_in(folder + "/" + controller.limit);
    const auto usage = number_in(folder + "/" + controller.usage);
    if (!limit || !usage) return;
    std::uint64_t cache = 0;
    for (const char* line : controller.cache) cache += value_in(folder + "/memory.stat", line).value_or(0);
    const std::uint64_t held = *usage - std::min(cache, *usage);
    levels.push_back({*limit, *limit - std::min(held, *limit), folder});
}

std::vector<Level> levels_of(const std::string& root) {
    std::vector<Level> levels{machine(root)};
    for (const Controller& controller : {kV1, kV2}) {
        for (const std::string& folder : cgroup_folders(controller.name, root))
            add_level(controller, folder, levels);
    }
    return levels;
}

std::uint64_t spare_of(const Level& level) {
    constexpr std::uint64_t kShare = 16;  // of what it has, one is always left
    return level.left - std::min(level.bytes / kShare, level.left);
}

// By which all processes know a cgroup.
std::uint64_t number_of(const std::string& folder) {
    struct stat status {};
    return ::stat(folder.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::uint64_t host_headroom_bytes(const std::string& root) {
    return std::ranges::min(levels_of(root), {}, &Level::left).left;
}

HostSpare host_spare(const std::string& root) {
    const std::vector<Level> levels = levels_of(root);
    HostSpare spare{spare_of(levels.front()), UINT64_MAX, 0};
    const Level* outermost = nullptr;  // with a limit
    for (const Level& level : std::span(levels).subspan(1)) {
        // Not beyond what the machine has: version 1 has a limit that is none.
        if (levels.front().bytes != 0 && level.bytes >= levels.front().bytes) continue;
        spare.group_bytes = std::min(spare.group_bytes, spare_of(level));
        // Folders are as long as they are deep.
        if (!outermost || level.folder.size() < outermost->folder.size()) outermost = &level;
    }
    if (outermost) spare.group = number_of(outermost->folder);
    return spare;
}

std::uint64_t machine_bytes(const std::string& root) {
    return machine(root).bytes;
}

std::uint64_t host_limit_bytes(std::optional<std::uint64_t> setting) {
    static const std::uint64_t all = machine_bytes();
    static const std::uint64_t unset = host_headroom_bytes() / 5 * 4;
    return setting ? std::min(*setting, all) : unset;
}

HostSpare HostMemory::spare(std::chrono::milliseconds age) {
    const KeepErrno keep;
    const Lock lock(mutex_);
    if (const auto now = Clock::now(); !looked_ || now - when_ >= age) {
        spare_ = host_spare(root_);
        if (taken_bytes_) spare_.machine_bytes -= std::min(spare_.machine_bytes, taken_bytes_());
        when_ = now;
        looked_ = true;
    }
    return spare_;
}

void HostMemory::look_below(const std::string& root, std::uint64_t (*taken_bytes)()) {
    const Lock lock(mutex_);
    root_ = root;
    taken_bytes_ = taken_bytes;
    looked_ = false;
}

HostMemory& host_memory() {
    static HostMemory& of_process = *new HostMemory;
    return of_process;
}

std::vector<int> numa_nodes_by_preference(int nearest, const std::string& root) {
    // A list of nodes and ranges of them: "0-1,3".
    std::ifstream file(root + "/sys/devices/system/node/has_memory");
    if (!file) return nearest < 0 ? std::vector<int>{} : std::vector<int>{nearest};
    std::vector<int> nodes;
    for (int first = 0; file >> first; file.ignore()) {
        int last = first;
        if (file.peek() == '-') file.ignore() >> last;
        for (int node = first; node <= last; ++node) nodes.push_back(node);
    }
    std::stable_partition(nodes.begin(), nodes.end(), [&](int node) { return node == nearest; });
    return nodes;
}

}  // namespace lms::util
