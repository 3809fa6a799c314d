#include "shim/util/cgroups.h"

#include <fstream>
#include <sstream>

namespace lms::util {

// Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has no controllers in its line.
std::vector<std::string> cgroup_folders(std::string_view controller, const std::string& root) {
    std::string mount = root + "/sys/fs/cgroup";
    if (!controller.empty()) mount.append("/").append(controller);
    std::vector<std::string> folders;
    std::ifstream file(root + "/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string id, controllers, path;
        if (!std::getline(fields, id, ':') || !std::getline(fields, controllers, ':') ||
            !std::getline(fields, path))
            continue;
        const std::string own = "," + std::string(controller) + ",";
        if (("," + controllers + ",").find(own) == std::string::npos) continue;
        folders.push_back(mount);
        for (; path.size() > 1; path.erase(path.rfind('/'))) folders.push_back(mount + path);
    }
    return folders;
}

}  // namespace lms::util
