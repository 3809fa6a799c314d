#include "tools/gpu_facts/process_accounts.h"

#include <fstream>
#include <sstream>

namespace facts {

std::uint64_t line_bytes(const std::string& path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, name.size() + 1, name + ":") != 0) continue;
        std::uint64_t kib = 0;
        std::istringstream(line.substr(name.size() + 1)) >> kib;
        return kib << 10;
    }
    return 0;
}

// Version 2 has one line "0::/path", version 1 one with "memory" among the controllers. Inside a container
// the path may be that of another view; its root then holds the container's own.
Cgroup cgroup_memory() {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1),
                          path = line.substr(second + 1);
        const bool unified = controllers.empty();
        if (!unified && controllers.find("memory") == controllers.npos) continue;
        const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        const std::string name = unified ? "/memory.current" : "/memory.usage_in_bytes";
        for (const std::string& folder : {root + path, root}) {
            Cgroup found{folder + name, 0};
            if (std::ifstream(found.path) >> found.bytes) return found;
        }
    }
    return {};
}

}  // namespace facts
