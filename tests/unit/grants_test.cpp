#include "shim/sharing/grants.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "shim/sharing/turns.h"

namespace {

using namespace lms::sharing;

constexpr std::uint64_t kNow = 100'000'000'000, kUsed = kNow - 1, kUnused = kNow - 600'000'000;

Tenant tenant(std::uint64_t allocated, std::uint32_t weight = 1, std::uint64_t last_use_ns = kUsed,
              std::uint64_t least = 0) {
    return {.allocated_bytes = allocated, .least_bytes = least, .weight = weight, .last_use_ns = last_use_ns};
}

using Grants = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("grants: one alone has all, and none has none") {
    CHECK(grants({}, 100, kNow).empty());
    CHECK(grants(std::vector{tenant(500)}, 100, kNow) == Grants{100});
    CHECK(grants(std::vector{tenant(5)}, 100, kNow) == Grants{100});
    CHECK(grants(std::vector{tenant(5, 1, kUnused)}, 100, kNow) == Grants{100});
}

TEST_CASE("grants: those that use the GPU have the same, or what they have allocated") {
    CHECK(grants(std::vector{tenant(500), tenant(500)}, 100, kNow) == Grants{50, 50});
    CHECK(grants(std::vector{tenant(500), tenant(20), tenant(500)}, 100, kNow) == Grants{40, 20, 40});
    // What is left over is to grow into.
    CHECK(grants(std::vector{tenant(30), tenant(20)}, 100, kNow) == Grants{55, 45});
}

TEST_CASE("grants: by weight") {
    CHECK(grants(std::vector{tenant(500), tenant(500, 2), tenant(500, 4)}, 70, kNow) == Grants{10, 20, 40});
    CHECK(grants(std::vector{tenant(500), tenant(5, 1000)}, 70, kNow) == Grants{65, 5});
}

TEST_CASE("grants: idle ones give first, but what is kept for them") {
    CHECK(grants(std::vector{tenant(500), tenant(500, 1, kUnused)}, 100, kNow) == Grants{100, 0});
    CHECK(grants(std::vector{tenant(70), tenant(500, 1, kUnused)}, 100, kNow) == Grants{70, 30});
    CHECK(grants(std::vector{tenant(500), tenant(500, 1, kUnused, 20)}, 100, kNow) == Grants{80, 20});
    CHECK(grants(std::vector{tenant(500), tenant(5, 1, kUnused, 20)}, 100, kNow) == Grants{95, 5});
    CHECK(grants(std::vector{tenant(500, 1, kUnused), tenant(500, 1, kUnused)}, 100, kNow) == Grants{50, 50});
}

TEST_CASE("grants: more is kept than there is") {
    CHECK(grants(std::vector{tenant(500, 1, kUsed, 90), tenant(500, 1, kUsed, 30)}, 60, kNow) ==
          Grants{40, 20});  // 60 of the first, at most, and 30
}

TEST_CASE("grants: in a turn its holder has all that it can use, then who comes next") {
    std::vector<Tenant> all{tenant(500), tenant(50), tenant(60)};
    all[0].waiting_since_ns = 9;
    all[2].waiting_since_ns = 7;
    CHECK(grants_in_turn(all, 0, 100, kNow) == Grants{100, 0, 0});
    CHECK(grants_in_turn(all, 1, 100, kNow) == Grants{0, 50, 50});
    CHECK(grants_in_turn(all, 1, 200, kNow) == Grants{90, 50, 60});
    all[0].priority = 1;
    CHECK(grants_in_turn(all, 1, 100, kNow) == Grants{50, 50, 0});
    all[2].least_bytes = 20;
    CHECK(grants_in_turn(all, 0, 100, kNow) == Grants{80, 0, 20});
    CHECK(grants_in_turn(std::vector{tenant(30), tenant(50)}, 0, 100, kNow) == Grants{50, 50});
    CHECK(grants_in_turn({}, 0, 100, kNow).empty());
}

TEST_CASE("grants: whatever tenants there are, together within the GPU, fair and with nothing wasted") {
    for (unsigned seed = 0; seed < 20'000; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const auto bytes = [&] { return random() >> (random() % 64); };
        const std::uint64_t capacity = bytes() >> (random() % 2 * 20);
        std::vector<Tenant> tenants(1 + random() % 8);
        for (Tenant& each : tenants) {
            each = tenant(bytes(), static_cast<std::uint32_t>(random() >> (random() % 32 + 32)),
                          random() % 2 == 0 ? kUsed : bytes(), random() % 2 == 0 ? 0 : bytes());
        }
        const auto all = grants(tenants, capacity, kNow);
        REQUIRE(all.size() == tenants.size());
        std::uint64_t sum = 0;
        for (const std::uint64_t each : all) REQUIRE_FALSE(__builtin_add_overflow(sum, each, &sum));
        CHECK(sum <= capacity);

        std::uint64_t weights = 0;
        bool short_of_some = false;
        std::vector<std::uint64_t> most, least, weight;
        for (std::size_t i = 0; i < tenants.size(); ++i) {
            weight.push_back(std::clamp(tenants[i].weight, 1u, kMostWeight));
            weights += weight.back();
            most.push_back(std::min(tenants[i].allocated_bytes, capacity));
            least.push_back(std::min(tenants[i].least_bytes, most.back()));
            short_of_some |= all[i] < most[i];
        }
        // Less than a byte for each unit of weight is left to nobody.
        CHECK(capacity - sum <= weights);
        unsigned __int128 kept = 0;
        for (const std::uint64_t each : least) kept += each;
        for (std::size_t i = 0; i < tenants.size(); ++i) {
            if (kept <= capacity) CHECK(all[i] >= least[i]);
            if (short_of_some) CHECK(all[i] <= most[i]);
            for (std::size_t j = 0; kept <= capacity && j < tenants.size(); ++j) {
                const bool used_i = kNow - std::min(kNow, tenants[i].last_use_ns) < 500'000'000;
                const bool used_j = kNow - std::min(kNow, tenants[j].last_use_ns) < 500'000'000;
                if (all[i] >= most[i]) continue;
                // Where i lacks some, an idle j has no more than is kept for it, and one in use no more by
                // weight.
                if (used_i && !used_j) CHECK(all[j] <= least[j] + weights);
                if (used_i != used_j || all[j] <= least[j]) continue;
                CHECK(static_cast<unsigned __int128>(all[j]) * weight[i] <=
                      static_cast<unsigned __int128>(all[i] + weight[i]) * weight[j]);
            }
        }
    }
}

TEST_CASE("turns: their length is nine times what a change takes, within a bound") {
    CHECK(turn_length_ns(1'000'000'000, 10'000'000'000) == 972'000'000);
    CHECK(turn_length_ns(0, 10'000'000'000) == 72'000'000);
    CHECK(turn_length_ns(1'000'000'000, 0) == 72'000'000);
    CHECK(turn_length_ns(~std::uint64_t{0}, 1) == 30'000'000'000);
}

TEST_CASE("turns: one word holds a turn, and any word is one or none") {
    const Turn turn{254, 123'456'000'000'000, 30'000'000'000};
    const Turn same = turn_of(word_of(turn), turn.began_ns);
    CHECK(same.holder == turn.holder);
    CHECK(same.began_ns == turn.began_ns);
    CHECK(same.length_ns == turn.length_ns);
    CHECK(turn_of(word_of(turn), turn.began_ns - 1).holder == kNoTenant);
    CHECK(word_of({kNoTenant, 1, 1}) == 0);
    CHECK(word_of({255, 1, 1}) == 0);
    std::mt19937_64 random(1);
    for (int i = 0; i < 100'000; ++i) {
        const Turn any = turn_of(random(), kNow);
        CHECK((any.holder == kNoTenant || any.holder < 255));
        CHECK(any.began_ns <= kNow);
        CHECK(any.length_ns < 33'000'000'000);
    }
}

TEST_CASE("turns: the next is of the highest priority, and has waited longest of these") {
    std::vector<Tenant> tenants(4);
    CHECK(next_tenant(tenants) == kNoTenant);
    tenants[1].waiting_since_ns = 5;
    tenants[2].waiting_since_ns = 3;
    CHECK(next_tenant(tenants) == 2);
    tenants[3].waiting_since_ns = 9;
    tenants[3].priority = 1;
    CHECK(next_tenant(tenants) == 3);
    CHECK(next_tenant(tenants, 3) == 2);
}

TEST_CASE("turns: a turn ends when it is over, unused, or another's by priority, and one waits") {
    std::vector<Tenant> tenants{tenant(1000), tenant(1000)};
    tenants[1].resident_bytes = 400;
    const auto at = [&](const Turn& turn, std::uint64_t now) {
        return turn_at(turn, tenants, 900, 50'000, now);
    };
    CHECK(at({}, kNow).holder == kNoTenant);
    tenants[0].waiting_since_ns = kNow - 10;
    tenants[1].waiting_since_ns = kNow - 5;
    const Turn first = at({}, kNow);
    CHECK(first.holder == 0);
    CHECK(first.began_ns == kNow);
    CHECK(first.length_ns == 234'000'000);  // 900 bytes at 50,000 a second and 8 ms, nine times
    tenants[0].waiting_since_ns = 0;
    const auto used_until = [&](std::uint64_t now) { tenants[0].last_use_ns = now; };
    used_until(kNow + 232'000'000);
    CHECK(at(first, kNow + 233'000'000).holder == 0);
    const Turn second = at(first, kNow + 234'000'000);
    CHECK(second.holder == 1);
    CHECK(second.length_ns == 234'000'000);  // it lacks less
    tenants[1].weight = 3;
    CHECK(at(first, kNow + 234'000'000).length_ns == 702'000'000);
    tenants[1].weight = 1;
    // Unused; but not before it can have been used.
    used_until(kNow - 1'000'000'000);
    CHECK(at(first, kNow + 29'000'000).holder == 0);
    CHECK(at(first, kNow + 30'000'000).holder == 1);
    // By priority.
    used_until(kNow + 1);
    tenants[1].priority = 1;
    CHECK(at(first, kNow + 1).holder == 1);
    // None waits.
    tenants[1].waiting_since_ns = 0;
    CHECK(at(first, kNow + 999'000'000'000).holder == 0);
    // Its holder has ended.
    tenants[1].waiting_since_ns = 1;
    CHECK(at({7, kNow, 1}, kNow).holder == 1);
}

TEST_CASE("turns: the first is of one that came last, lacks memory and uses the GPU") {
    constexpr std::uint64_t kBegan = kNow - 40'000'000;
    std::vector<Tenant> tenants{tenant(1000), tenant(1000), tenant(1000), tenant(1000)};
    for (std::uint64_t came = 1; Tenant & each : tenants) {
        each.last_use_ns = kNow - 29'000'000;
        each.came_ns = came++;
    }
    tenants[2].last_use_ns = kNow - 30'000'000;
    tenants[3].resident_bytes = 900;
    const auto first = [&](const Turn& now) { return first_turn(now, tenants, 900, 50'000, kBegan, kNow); };
    CHECK(first({}) == Turn{1, kNow, 234'000'000});
    // A turn from before does not count, whoever had it; one that began since then does.
    CHECK(first({1, kBegan - 1'000'000, 1}) == Turn{1, kNow, 234'000'000});
    CHECK(first({0, kBegan, 1}) == Turn{0, kBegan, 1});
    CHECK(first({7, kBegan, 1}).holder == 1);  // its holder has ended
    tenants[0].priority = 1;
    tenants[1].weight = 3;
    CHECK(first({}) == Turn{0, kNow, 234'000'000});
    tenants[0].priority = 0;
    tenants[0].waiting_since_ns = 1;
    CHECK(first({}) == Turn{1, kNow, 702'000'000});
    for (Tenant& each : tenants) each.resident_bytes = 900;
    CHECK(first({}) == Turn{});
}

TEST_CASE("turns: a holder gives its turn up where a pause is longer than those within its work") {
    constexpr std::uint64_t kMs = 1'000'000;
    TurnUse use;
    std::uint64_t now = kNow;
    // How long it pauses before its turn is over; it pauses on until `pause`.
    const auto patience_in = [&](std::uint64_t pause) {
        std::uint64_t patience = 0;
        use.note(false, true, now);
        for (std::uint64_t so_far = 0; so_far <= pause; so_far += kMs / 4) {
            use.note(false, patience == 0, now + so_far);
            if (patience == 0 && use.is_over(now + so_far)) patience = so_far;
        }
        use.note(true, false, now += pause);
        CHECK_FALSE(use.is_over(now));
        return patience;
    };
    const auto ms = [&](double pause) {
        return static_cast<double>(patience_in(static_cast<std::uint64_t>(pause * 1e6))) / 1e6;
    };
    CHECK(ms(29) == 0);
    CHECK(ms(200) == 30);
    CHECK(ms(200) == 15);
    CHECK(ms(200) == 7.5);
    for (int i = 0; i < 3; ++i) ms(200);
    CHECK(ms(200) == 1);
    // Those within its work, and what is longer than twice as long.
    CHECK(ms(0.5) == 0);
    CHECK(ms(4) == 1);
    CHECK(ms(7.75) == 0);
    CHECK(ms(16) == 15.5);
    CHECK(ms(29) == 0);
    CHECK(ms(200) == 30);
    // One that began without the turn tells nothing.
    use.note(false, false, now);
    CHECK_FALSE(use.is_over(now + 1000 * kMs));
    use.note(true, true, now += 1000 * kMs);
    CHECK(ms(200) == 15);
}

TEST_CASE("turns: one that waits and looks no more, stopped or gone on, gets none") {
    std::vector<Tenant> tenants{tenant(1000), tenant(1000)};
    for (Tenant& each : tenants) each.waiting_since_ns = kNow;
    const std::uint64_t later = kNow + static_cast<std::uint64_t>(kIdle.count());
    tenants[0].last_use_ns = kNow;
    tenants[1].last_use_ns = kNow + 1;
    end_stale_waits(tenants, later);
    CHECK(next_tenant(tenants) == 1);
    end_stale_waits(tenants, later + 1);
    CHECK(next_tenant(tenants) == kNoTenant);
}

TEST_CASE("turns: of those that always want one, each has the same time, whoever comes with whatever") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        std::vector<Tenant> tenants(2 + random() % 4);
        for (Tenant& each : tenants) each = tenant(1000);
        std::vector<std::uint64_t> had(tenants.size());
        Turn turn;
        std::uint64_t now = kNow;
        for (int i = 0; i < 4000; ++i) {
            const std::uint64_t step = 1 + random() % 3'000'000;
            now += step;
            for (std::size_t t = 0; t < tenants.size(); ++t) {
                tenants[t].last_use_ns = now;
                if (t == turn.holder)
                    tenants[t].waiting_since_ns = 0;
                else if (tenants[t].waiting_since_ns == 0)
                    tenants[t].waiting_since_ns = now;
            }
            turn = turn_at(turn, tenants, 1000, 0, now);
            REQUIRE(turn.holder < tenants.size());
            had[turn.holder] += step;
        }
        const auto [least, most] = std::ranges::minmax(had);
        CHECK(10 * least >= 9 * most);
    }
}
