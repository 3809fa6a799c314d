// How buffers are cut: exactly, in powers of two, into chunks of which enough fit on the GPU.
#include "shim/engine/chunking.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <numeric>

namespace lms::engine {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST_CASE("chunking: pieces are powers of two, largest first, and make up the whole") {
    for (const std::uint64_t granularity : {std::uint64_t{64}, std::uint64_t{4096}, 2 * kMiB}) {
        for (const std::uint64_t largest : {granularity, 4 * granularity, 16 * granularity}) {
            for (std::uint64_t granules = 0; granules < 70; ++granules) {
                for (const std::uint64_t less : {std::uint64_t{0}, std::uint64_t{1}, granularity - 1}) {
                    if (granules == 0 && less > 0) continue;
                    const auto sizes = cut(granules * granularity - less, granularity, largest);
                    CHECK(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}) ==
                          granules * granularity);
                    CHECK(std::is_sorted(sizes.rbegin(), sizes.rend()));
                    for (const std::uint64_t size : sizes) {
                        CHECK(size <= largest);
                        CHECK(size % granularity == 0);
                        CHECK(std::has_single_bit(size / granularity));
                    }
                    // As few as there can be.
                    const std::uint64_t whole = largest / granularity;
                    CHECK(sizes.size() ==
                          granules / whole + static_cast<std::size_t>(std::popcount(granules % whole)));
                }
            }
        }
    }
}

TEST_CASE("chunking: the largest chunk") {
    CHECK(largest_chunk(64 * kMiB, 2 * kMiB) == 2 * kMiB);
    CHECK(largest_chunk(255 * kMiB, 2 * kMiB) == 2 * kMiB);
    CHECK(largest_chunk(256 * kMiB, 2 * kMiB) == 4 * kMiB);
    CHECK(largest_chunk(2048 * kMiB, 2 * kMiB) == 32 * kMiB);
    CHECK(largest_chunk(80 * 1024 * kMiB, 2 * kMiB) == 32 * kMiB);
    CHECK(largest_chunk(80 * 1024 * kMiB, 32 * 1024) == 512 * 1024);
    CHECK(largest_chunk(64 * kMiB, 64 * kMiB) == 64 * kMiB);
    CHECK(largest_chunk(0, 2 * kMiB) == 2 * kMiB);
    for (std::uint64_t budget = 128 * kMiB; budget < 4096 * kMiB; budget += 7 * kMiB) {
        const std::uint64_t largest = largest_chunk(budget, 2 * kMiB);
        CHECK(std::has_single_bit(largest));
        CHECK(64 * largest <= budget);
        CHECK((largest == 32 * kMiB || 128 * largest > budget));
    }
}

}  // namespace
}  // namespace lms::engine
