// What the system says that this process holds.
#pragma once

#include <cstdint>
#include <string>

namespace facts {

// A line of a file like /proc/self/status, "VmRSS", in bytes; 0 where there is none.
std::uint64_t line_bytes(const std::string& path, const std::string& name);

// What the process's cgroup has charged, in bytes; empty `path`: it has none that can be read.
struct Cgroup {
    std::string path;  // of the file with the number
    std::uint64_t bytes = 0;
};
Cgroup cgroup_memory();

}  // namespace facts
