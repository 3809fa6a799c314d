// How much host memory this process may still take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lms::util {

// Bytes: the smaller of what the machine has available and what is left in this process's memory cgroup and
// each cgroup above it (v1 or v2; file cache that can be dropped counts as free). `root` is put before every
// path, for tests.
std::uint64_t host_headroom_bytes(const std::string& root = "");

// What LMS_HOST_LIMIT is when unset: 80 % of that when first asked, the same ever after.
std::uint64_t default_host_limit_bytes();

// The NUMA nodes of the host that have memory: `nearest` first, then the others in their order; `nearest`
// alone where the machine does not tell. Asked for memory of a node that has none, drivers before 595 have
// crashed (NVIDIA/nccl#2106). A negative `nearest` is no node. `root` as above.
std::vector<int> numa_nodes_by_preference(int nearest, const std::string& root = "");

}  // namespace lms::util
