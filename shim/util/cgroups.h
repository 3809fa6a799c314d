// The control groups of this process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lms::util {

// The folders of the cgroup of `controller` (version 1), or of version 2 where that is empty, and of the ones
// above it; none where the process is in no such. Inside a container the path may be the host's, which is not
// mounted here: folders that are missing say nothing, and the mount point, which is among them, is the
// container's own. `root` is put before every path, for tests.
std::vector<std::string> cgroup_folders(std::string_view controller, const std::string& root);

}  // namespace lms::util
