#include "shim/engine/chunking.h"

#include <algorithm>
#include <bit>

namespace lms::engine {

std::uint64_t largest_chunk(std::uint64_t budget_bytes, std::uint64_t granularity) {
    constexpr std::uint64_t kCap = 32ull << 20;
    const std::uint64_t share = std::min(budget_bytes / 32, kCap) / granularity;
    return granularity * (share == 0 ? 1 : std::bit_floor(share));
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
