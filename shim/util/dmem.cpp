#include "shim/util/dmem.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <sstream>

#include "shim/util/cgroups.h"
#include "shim/util/keep_errno.h"

namespace lms::util {

namespace {

// The number of the GPU's line: "nvidia/0000:65:00.0/vidmem 8589934592". None where it says "max".
std::optional<std::uint64_t> bytes_in(const std::string& path, std::string_view bus) {
    const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string region;
        std::uint64_t bytes = 0;
        if (!(words >> region >> bytes)) continue;
        if (std::search(region.begin(), region.end(), bus.begin(), bus.end(), same) != region.end())
            return bytes;
    }
    return std::nullopt;
}

}  // namespace

std::uint64_t dmem_free_bytes(std::uint64_t free_bytes, std::string_view bus, const std::string& root) {
    if (bus.empty()) return free_bytes;
    const KeepErrno keep;
    std::uint64_t most = free_bytes;
    for (const std::string& folder : cgroup_folders("", root)) {
        const auto held = bytes_in(folder + "/dmem.current", bus);
        if (!held) continue;
        if (const auto limit = bytes_in(folder + "/dmem.max", bus))
            most = std::min(most, *limit - std::min(*limit, *held));
        const std::uint64_t assured = bytes_in(folder + "/dmem.min", bus).value_or(0);
        if (assured == 0) continue;
        const std::uint64_t rest = assured - std::min(assured, *held);
        const std::uint64_t borrowed = *held - std::min(*held, assured);
        const std::uint64_t beyond = (free_bytes - std::min(free_bytes, rest + borrowed)) / 2;
        most = std::min(most, rest + beyond);
    }
    return most;
}

}  // namespace lms::util
