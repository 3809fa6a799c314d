#include "shim/util/host_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace lms::util {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The files of one version of the memory controller.
struct Controller {
    const char* mount;
    const char* limit;
    const char* usage;
    const char* cache;  // the line of memory.stat with file cache that is dropped before anything is refused
};
constexpr Controller kV1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file"};
constexpr Controller kV2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

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

std::uint64_t available_bytes(const std::string& root) {
    if (const auto kib = value_in(root + "/proc/meminfo", "MemAvailable:")) return *kib * 1024;
    // Without /proc the kernel still tells what is free, if not what it would drop for us.
    struct sysinfo machine = {};
    sysinfo(&machine);
    return (std::uint64_t{machine.freeram} + machine.bufferram) * machine.mem_unit;
}

std::uint64_t left_in(const Controller& controller, const std::string& folder) {
    const auto limit = number_in(folder + "/" + controller.limit);
    const auto usage = number_in(folder + "/" + controller.usage);
    if (!limit || !usage) return kNoLimit;
    const std::uint64_t cache = value_in(folder + "/memory.stat", controller.cache).value_or(0);
    const std::uint64_t held = *usage - std::min(cache, *usage);
    return *limit - std::min(held, *limit);
}

// The least that is left in `cgroup` ("/a/b") and the ones above it. Inside a container the path may be the
// host's, which is not mounted here; the folders that are missing then say nothing, and the mount point is
// the container's own.
std::uint64_t left_along(const Controller& controller, const std::string& root, std::string cgroup) {
    const std::string mount = root + controller.mount;
    std::uint64_t left = left_in(controller, mount);
    while (cgroup.size() > 1) {
        left = std::min(left, left_in(controller, mount + cgroup));
        cgroup.erase(cgroup.rfind('/'));
    }
    return left;
}

// Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has no controllers in its line.
std::uint64_t left_in_cgroups(const std::string& root) {
    std::uint64_t left = kNoLimit;
    std::ifstream file(root + "/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string id, controllers, path;
        if (!std::getline(fields, id, ':') || !std::getline(fields, controllers, ':') ||
            !std::getline(fields, path))
            continue;
        if (controllers.empty()) left = std::min(left, left_along(kV2, root, path));
        if ((',' + controllers + ',').find(",memory,") != std::string::npos)
            left = std::min(left, left_along(kV1, root, path));
    }
    return left;
}

}  // namespace

std::uint64_t host_headroom_bytes(const std::string& root) {
    return std::min(available_bytes(root), left_in_cgroups(root));
}

std::uint64_t default_host_limit_bytes() {
    static const std::uint64_t bytes = host_headroom_bytes() / 5 * 4;
    return bytes;
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
