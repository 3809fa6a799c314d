#include "shim/engine/chunking.h"

#include <algorithm>
#include <bit>

namespace lms::engine {

std::uint64_t largest_chunk(std::uint64_t budget_bytes, std::uint64_t granularity) {
    constexpr std::uint64_t kMost = 16, kFit = 64;
    return granularity *
           std::bit_floor(std::clamp<std::uint64_t>(budget_bytes / kFit / granularity, 1, kMost));
}

std::vector<std::uint64_t> cut(std::uint64_t bytes, std::uint64_t granularity, std::uint64_t largest) {
    std::uint64_t granules = bytes / granularity + (bytes % granularity != 0);
    std::vector<std::uint64_t> sizes;
    while (granules > 0) {
        const std::uint64_t piece = std::min(largest / granularity, std::bit_floor(granules));
        sizes.push_back(piece * granularity);
        granules -= piece;
    }
    return sizes;
}

}  // namespace lms::engine
