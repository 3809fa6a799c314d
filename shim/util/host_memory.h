// How much host memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace lms::util {

// Bytes: the smaller of what the machine has available and what is left in this process's memory cgroup and
// each cgroup above it (v1 or v2; file cache that can be dropped counts as free). `root` is put before every
// path, for tests. 0 if the machine does not tell.
std::uint64_t host_headroom_bytes(const std::string& root = "");

// What LMS_HOST_LIMIT is when unset: 80 % of that.
std::uint64_t default_host_limit_bytes();

}  // namespace lms::util
