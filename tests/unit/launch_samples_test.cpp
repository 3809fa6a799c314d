// Which launches are timed.
#include "shim/telemetry/launch_samples.h"

#include <doctest/doctest.h>

#include <map>
#include <vector>

using lms::telemetry::LaunchSamples;

TEST_CASE("launch samples: one in so many on the average, and of a program's round each launch") {
    LaunchSamples samples;
    constexpr int kLaunches = 160'000;
    // As many launches a round as there are between two samples.
    std::map<int, int> of_round;
    int all = 0, gap = 0, longest = 0;
    for (int i = 0; i < kLaunches; ++i, ++gap) {
        if (!samples.due()) continue;
        ++all;
        ++of_round[i % static_cast<int>(LaunchSamples::kOneIn)];
        longest = std::max(longest, std::exchange(gap, 0));
    }
    const int expected = kLaunches / static_cast<int>(LaunchSamples::kOneIn);
    CHECK(all > expected * 9 / 10);
    CHECK(all < expected * 11 / 10);
    CHECK(longest < 2 * static_cast<int>(LaunchSamples::kOneIn));
    REQUIRE(of_round.size() == LaunchSamples::kOneIn);
    for (const auto& [launch, count] : of_round) {
        CHECK(count > all / 16 * 8 / 10);
        CHECK(count < all / 16 * 12 / 10);
    }
}

TEST_CASE("launch samples: they are told in order, and of too many the oldest never") {
    LaunchSamples samples;
    for (std::uint64_t piece = 1; piece <= 300; ++piece) samples.put(piece, {std::to_string(piece), {}});
    std::vector<std::uint64_t> told;
    const auto up_to = [&](std::uint64_t last) {
        return [&, last](std::uint64_t piece, const LaunchSamples::Told& work) {
            if (piece > last) return false;
            CHECK(work.kernel == std::to_string(piece));
            told.push_back(piece);
            return true;
        };
    };
    samples.take(up_to(100));
    samples.take(up_to(100));
    samples.take(up_to(300));
    REQUIRE(told.size() == 256);
    for (std::size_t i = 0; i < told.size(); ++i) CHECK(told[i] == 45 + i);
}
