// How much host memory this process may still take.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shim/util/clock.h"
#include "shim/util/mutex.h"

namespace lms::util {

// Bytes: the smaller of what the machine has available and what is left in this process's memory cgroup and
// each cgroup above it (v1 or v2; file cache that can be dropped counts as free). `root` is put before every
// path, for tests.
std::uint64_t host_headroom_bytes(const std::string& root = "");

// The same less what is always left: a sixteenth of the machine's memory, and of what each of those cgroups
// may have. By level, of which others share the machine, and some this process's cgroups.
struct HostSpare {
    std::uint64_t machine_bytes;
    std::uint64_t group_bytes;  // of the cgroups; UINT64_MAX where none has a limit
    std::uint64_t group;        // names the outermost with a limit, to all processes of the machine; 0: none
    std::uint64_t bytes() const { return std::min(machine_bytes, group_bytes); }
};
HostSpare host_spare(const std::string& root = "");

// The machine's memory.
std::uint64_t machine_bytes(const std::string& root = "");

// What LMS_HOST_LIMIT means: at most all the machine has; unset, 80 % of the headroom when first asked, the
// same ever after.
std::uint64_t host_limit_bytes(std::optional<std::uint64_t> setting);

// What the host can spare now, for all GPUs of the process. Any thread; its lock is a leaf.
class HostMemory {
  public:
    // As it was at most `age` ago; looking takes some 100 us.
    HostSpare spare(std::chrono::milliseconds age);
    std::uint64_t spare_bytes(std::chrono::milliseconds age) { return spare(age).bytes(); }
    // For tests: looks below `root` from now on, where so much of the machine is taken that it does not tell
    // of.
    void look_below(const std::string& root, std::uint64_t (*taken_bytes)() = nullptr);

  private:
    using Clock = util::Clock;

    Mutex mutex_{LockOrder::Leaf};
    std::string root_ LMS_GUARDED_BY(mutex_);
    std::uint64_t (*taken_bytes_)() LMS_GUARDED_BY(mutex_) = nullptr;
    bool looked_ LMS_GUARDED_BY(mutex_) = false;
    Clock::time_point when_ LMS_GUARDED_BY(mutex_);
    HostSpare spare_ LMS_GUARDED_BY(mutex_){};
};

HostMemory& host_memory();

// The NUMA nodes of the host that have memory: `nearest` first, then the others in their order; `nearest`
// alone where the machine does not tell. Asked for memory of a node that has none, drivers before 595 have
// crashed (NVIDIA/nccl#2106). A negative `nearest` is no node. `root` as above.
std::vector<int> numa_nodes_by_preference(int nearest, const std::string& root = "");

}  // namespace lms::util
