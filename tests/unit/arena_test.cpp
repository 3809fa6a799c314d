// The arena against a naive list of the ranges given out.
#include "shim/engine/arena.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lms::engine {
namespace {

constexpr Address kBegin = 0x7000;
constexpr std::uint64_t kGranule = 16;

struct Range {
    Address address;
    std::uint64_t bytes;  // as asked for
};

std::uint64_t rounded(std::uint64_t bytes) {
    return (bytes + kGranule - 1) / kGranule * kGranule;
}

// Where `bytes` go with a guard on both sides: the lowest of the smallest gaps that hold them; 0 when there
// is none.
Address smallest_fit(const std::vector<Range>& taken, std::uint64_t span, std::uint64_t guard,
                     std::uint64_t bytes) {
    std::vector<std::pair<Address, Address>> ends{
        {kBegin, kBegin + guard}};  // of what is taken, guard and all
    for (const Range& range : taken)
        ends.emplace_back(range.address, range.address + rounded(range.bytes) + guard);
    ends.emplace_back(kBegin + span, kBegin + span);
    std::sort(ends.begin(), ends.end());
    Address best = 0;
    std::uint64_t smallest = ~std::uint64_t{0};
    for (std::size_t i = 1; i < ends.size(); ++i) {
        const std::uint64_t gap = ends[i].first - ends[i - 1].second;
        if (gap < rounded(bytes) + guard || gap >= smallest) continue;
        smallest = gap;
        best = ends[i - 1].second;
    }
    return best;
}

TEST_CASE("arena: random takes and returns agree with a naive search") {
    for (const std::uint64_t guard : {std::uint64_t{0}, kGranule, 3 * kGranule}) {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            INFO("guard ", guard, ", seed ", seed);
            std::mt19937_64 random(seed);
            constexpr std::uint64_t kSpan = 100 * kGranule;
            Arena arena(kBegin, kSpan, kGranule, guard);
            std::vector<Range> taken;
            std::uint64_t free = kSpan - guard;
            for (int step = 0; step < 1000; ++step) {
                if (taken.empty() || random() % 2 == 0) {
                    const std::uint64_t bytes = 1 + random() % (20 * kGranule);
                    const Address expected = smallest_fit(taken, kSpan, guard, bytes);
                    const auto address = arena.take(bytes);
                    REQUIRE(address.value_or(0) == expected);
                    if (!address) continue;
                    taken.push_back({*address, bytes});
                    free -= rounded(bytes) + guard;
                } else {
                    const std::size_t index = random() % taken.size();
                    arena.give_back(taken[index].address, taken[index].bytes);
                    free += rounded(taken[index].bytes) + guard;
                    taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(index));
                }
                REQUIRE(arena.free_bytes() == free);
            }
            // Given back in any order, it is one range again.
            for (const Range& range : taken) arena.give_back(range.address, range.bytes);
            CHECK(arena.take(kSpan - 2 * guard) == kBegin + guard);
        }
    }
}

TEST_CASE("arena: what it holds, and sizes beyond it") {
    Arena arena(kBegin, 10 * kGranule, kGranule, kGranule);
    CHECK_FALSE(arena.contains(kBegin - 1));
    CHECK(arena.contains(kBegin));
    CHECK(arena.contains(kBegin + 10 * kGranule - 1));
    CHECK_FALSE(arena.contains(kBegin + 10 * kGranule));
    CHECK_FALSE(arena.contains(0));
    CHECK_FALSE(arena.take(9 * kGranule));  // one guard has no room
    CHECK_FALSE(arena.take(~std::uint64_t{0}));
    CHECK(arena.take(8 * kGranule) == kBegin + kGranule);
    CHECK_FALSE(arena.take(1));
    CHECK(arena.free_bytes() == 0);
}

}  // namespace
}  // namespace lms::engine
