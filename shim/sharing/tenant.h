// What a process says of itself to others on the same GPU.
#pragma once

#include <cstdint>

#include "shim/util/share_terms.h"

namespace lms::sharing {

inline constexpr std::uint32_t kMostWeight = util::ShareTerms::kMostWeight;
inline constexpr std::uint32_t kMostPriority = util::ShareTerms::kMostPriority;

// On the machine's page: bytes of host memory, over all GPUs.
struct HostShare {
    std::uint64_t promised_bytes = 0;    // pinned, or to be whenever it needs them
    std::uint64_t asked_bytes = 0;       // more, about to be promised or not
    std::uint64_t returnable_bytes = 0;  // pinned, and given back where others lack them
    std::uint64_t lacking_bytes = 0;     // refused, and waited for
    std::uint64_t group = 0;             // the cgroup that bounds it (util::HostSpare); 0: none does
};

struct Tenant {
    std::uint64_t allocated_bytes = 0;   // by its program: what it could use
    std::uint64_t resident_bytes = 0;    // of those, on the GPU
    std::uint64_t granted_bytes = 0;     // what it holds itself to; 0: nothing yet
    std::uint64_t pinned_bytes = 0;      // of host memory
    std::uint64_t least_bytes = 0;       // kept for it, or without room on the host, as far as it wants them
    std::uint32_t weight = 1;            // 1 to kMostWeight
    std::uint32_t priority = 0;          // to kMostPriority; a higher one goes first
    std::uint64_t last_use_ns = 0;       // it submitted work, or some was unfinished; CLOCK_MONOTONIC
    std::uint64_t waiting_since_ns = 0;  // for a turn; 0: it does not wait
    std::uint64_t waited_ns = 0;         // for turns, ever
    std::uint64_t moved_bytes = 0;       // to the GPU, ever
    std::uint64_t link_bytes_per_s = 0;  // to the GPU, as its copies were seen to go; 0: not known
    std::uint64_t came_ns = 0;           // it began to use the GPU, or did so again after it had been idle
    HostShare host;
};

}  // namespace lms::sharing
