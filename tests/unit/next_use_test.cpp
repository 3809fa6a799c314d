// next-use on caches of a few chunks: what it lets go of, and what it foretells, against the best there is.
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/next_use_cache.h"

using namespace caches;

namespace {

// The same, whose buffers are freed in stream order: what they take is given back so many steps later.
Steps ahead_of_its_stream(const Steps& steps, std::size_t delay) {
    Steps late;
    std::deque<std::pair<std::size_t, UseStep>> waiting;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        late.push_back(steps[i]);
        if (steps[i].what == UseStep::Drop) {
            late.back().what = UseStep::Free;
            waiting.emplace_back(i + delay, steps[i]);
        }
        for (; !waiting.empty() && waiting.front().first == i; waiting.pop_front())
            late.push_back(waiting.front().second);
    }
    return late;
}

// Each piece of work names three buffers, each round in another order: as where an allocator of the program's
// hands out what was let go of last.
Steps shuffled(unsigned works, unsigned rounds) {
    std::mt19937 random(1);
    Steps steps = cycle(3 * works, 0);
    for (unsigned round = 0; round < rounds; ++round) {
        for (unsigned i = 0; i < works; ++i) {
            std::vector<unsigned> buffers = {3 * i, 3 * i + 1, 3 * i + 2};
            std::shuffle(buffers.begin(), buffers.end(), random);
            steps.push_back({UseStep::Work, buffers});
        }
    }
    return steps;
}

// Knows nothing but when the GPU waited.
struct Waited final : lms::engine::Asker {
    explicit Waited(std::uint64_t works_) : works(works_) {}
    lms::engine::Candidate candidate(ChunkId) override { return {}; }
    lms::engine::Links links() override { return {.works_since_wait = works}; }
    void overruled() override {}
    std::uint64_t works;
};

Steps patternless(unsigned buffers, unsigned works, unsigned seed) {
    std::mt19937 random(seed);
    Steps steps = cycle(buffers, 0);
    for (unsigned i = 0; i < works; ++i)
        steps.push_back({UseStep::Work, {static_cast<unsigned>(random() % buffers)}});
    return steps;
}

}  // namespace

TEST_CASE("next-use: once it has seen a program's iteration, it lets go of what the best order lets go of") {
    const struct {
        const char* name;
        Steps steps;
        std::size_t room;
    } programs[] = {{"cycle", cycle(20, 60), 12},
                    {"long cycle", cycle(700, 12), 300},
                    {"shuffled cycle", shuffled(20, 60), 36},
                    {"training", training(12, 40), 10},
                    {"deep training", training(100, 30), 60}};
    for (const auto& [program, steps, room] : programs) {
        const std::string name = program;
        CAPTURE(name);
        const std::size_t late = steps.size() * 2 / 3;
        const std::size_t least = least_misses(steps, room, late);
        CHECK(misses("next-use", steps, room, late) <= least * 1.05 + 1);
        CHECK(misses("lru", steps, room, late) > least * 1.05 + 1);
    }
}

namespace {

// In each round one buffer is made, named once, and given back when the first `until` of others were named.
// Then `more` are made for the rest of the round. In how many of the last 20 rounds the one had left before,
// and how often it was foretold, though no work names it again.
struct Lingering {
    unsigned left = 0, foretold = 0;
};
Lingering lingering(unsigned until, unsigned more) {
    const unsigned kOthers = 16, kRounds = 40;
    Lingering counts;
    Cache cache("next-use", 9);
    for (const UseStep& step : cycle(kOthers, 0)) cache.run(step);
    for (unsigned round = 0; round < kRounds; ++round) {
        const unsigned one = kOthers + round * (more + 1);
        cache.run({UseStep::Make, {one}});
        cache.run({UseStep::Work, {one}});
        for (unsigned i = 0; i < 2 * kOthers; ++i) {
            if (i == until) {
                if (round >= kRounds / 2) counts.left += !cache.there(one);
                if (cache.there(one)) cache.evict(one);
                std::array<ChunkId, 16> next{};
                const std::size_t count = cache.host().upcoming(next);
                counts.foretold += std::count(next.begin(), next.begin() + count, cache.chunk(one));
                cache.run({UseStep::Drop, {one}});
            }
            for (unsigned k = 1; i == until && k <= more; ++k) {
                cache.run({UseStep::Make, {one + k}});
                cache.run({UseStep::Work, {one + k}});
            }
            cache.run({UseStep::Work, {i % kOthers}});
        }
        for (unsigned k = 1; k <= more; ++k) cache.run({UseStep::Drop, {one + k}});
    }
    return counts;
}

}  // namespace

TEST_CASE(
    "next-use: what is not used again before it is given back leaves if that saves a copy, and stays away") {
    CHECK(lingering(12, 0).left == 20);
    CHECK(lingering(12, 0).foretold == 0);
    // The others must leave all the same for what is made then.
    CHECK(lingering(12, 2).left == 0);
    CHECK(lingering(12, 2).foretold == 0);
    // It goes soon.
    CHECK(lingering(2, 0).left == 0);
}

TEST_CASE("next-use: a program without a pattern misses no more than with lru") {
    for (unsigned seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        const Steps steps = patternless(40, 4000, seed);
        CHECK(misses("next-use", steps, 20, 0) <= misses("lru", steps, 20, 0) * 1.02);
        Cache cache("next-use", 20);
        for (const UseStep& step : steps) cache.run(step);
        std::array<ChunkId, 8> next{};
        CHECK(cache.host().upcoming(next) == 0);
    }
}

TEST_CASE("next-use: it foretells what comes, in order, and lets nothing go for it that is needed sooner") {
    const unsigned kBuffers = 20;
    Cache cache("next-use", 12);
    const Steps steps = cycle(kBuffers, 40);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        cache.run(steps[i]);
        if (i + kBuffers < steps.size()) continue;
        const unsigned now = steps[i].buffers[0];
        std::vector<ChunkId> expected;
        std::map<ChunkId, unsigned> distance;
        for (unsigned ahead = 1; ahead <= kBuffers; ++ahead) {
            const unsigned buffer = (now + ahead) % kBuffers;
            distance[cache.chunk(buffer)] = ahead;
            if (!cache.there(buffer)) expected.push_back(cache.chunk(buffer));
        }
        std::array<ChunkId, 4> next{};
        REQUIRE(cache.host().upcoming(next) == 4);
        CHECK(std::equal(next.begin(), next.end(), expected.begin()));
        const auto is_there = [&](ChunkId id) {
            return std::find(expected.begin(), expected.end(), id) == expected.end();
        };
        for (const ChunkId sooner : expected) {
            const ChunkId victim = cache.host().next_victim({1, Purpose::Ahead, sooner}, is_there);
            unsigned farthest = 0;
            for (const auto& [id, far] : distance)
                farthest = is_there(id) ? std::max(farthest, far) : farthest;
            // What is needed soon comes in for anything that is needed later, other things when what goes is
            // needed much later.
            const unsigned soon = distance[sooner];
            if (farthest <= (soon <= 2 ? soon : 4 * soon)) {
                CHECK(victim == kNoChunk);
            } else {
                REQUIRE(victim != kNoChunk);
                CHECK(distance[victim] == farthest);
            }
        }
    }
}

TEST_CASE(
    "next-use: where the GPU has lately waited, what comes in ahead takes the place of all that is later") {
    const unsigned kBuffers = 20;
    Cache cache("next-use", 12);
    for (const UseStep& step : cycle(kBuffers, 40)) cache.run(step);
    // The last work was of 19, which is in use. 0 is needed next, then 1: of those there and those not there
    // the last, and one that is needed a little sooner.
    unsigned farthest = 0, latest = 0;
    for (unsigned i = 0; i < kBuffers - 1; ++i) (cache.there(i) ? farthest : latest) = i;
    REQUIRE(latest > farthest);
    const unsigned sooner = farthest - 1;
    if (cache.there(sooner)) cache.evict(sooner);
    const auto victim = [&](unsigned comes, std::uint64_t works_since_wait) {
        Waited asker(works_since_wait);
        return cache.host().next_victim({1, Purpose::Ahead, cache.chunk(comes), &asker}, [&](ChunkId id) {
            return cache.on_device(id) && id != cache.chunk(kBuffers - 1);
        });
    };
    // An iteration is as long as there are buffers.
    for (const std::uint64_t lately : {0u, 1u, 2 * kBuffers})
        CHECK(victim(sooner, lately) == cache.chunk(farthest));
    for (const std::uint64_t not_lately : {std::uint64_t{2 * kBuffers + 1}, LMS_NOT_KNOWN})
        CHECK(victim(sooner, not_lately) == kNoChunk);
    // Nothing goes for what is needed later.
    CHECK(victim(latest, 0) == kNoChunk);
}

TEST_CASE("next-use: what is made in place of what was freed is foretold, before that is given back") {
    constexpr unsigned kLayers = 12, kRounds = 40;
    Cache cache("next-use", 10);
    std::array<ChunkId, 4> next{};
    std::size_t foretold = 0, missed = 0;
    for (const UseStep& step : ahead_of_its_stream(training(kLayers, kRounds), 480)) {
        const unsigned buffer = step.buffers.back();
        if (step.what == UseStep::Work && buffer >= kLayers * kRounds / 2 && !cache.there(buffer)) {
            ++missed;
            foretold += std::find(next.begin(), next.end(), cache.chunk(buffer)) != next.end();
        }
        cache.run(step);
        next.fill(kNoChunk);
        cache.host().upcoming(next);
    }
    CHECK(missed > 0);
    CHECK(foretold == missed);
}

TEST_CASE(
    "next-use: what is made anew is foretold before what comes later, though all before that was there") {
    Cache cache("next-use", 12);
    std::array<ChunkId, 4> next{};
    for (unsigned i = 0; i < 8; ++i) cache.run({UseStep::Make, {i}});
    for (unsigned made = 8; made < 50; ++made) {
        for (unsigned i = 0; i < 8; ++i) {
            if (i == 4) cache.run({UseStep::Make, {made}});
            if (made == 49 && i == 4) break;
            cache.host().upcoming(next);
            cache.run({UseStep::Work, i < 4 ? std::vector{i} : std::vector{i, made}});
        }
        if (made < 49) cache.run({UseStep::Drop, {made}});
    }
    cache.host().evicted(cache.chunk(7));
    REQUIRE(cache.host().upcoming(next) >= 2);
    CHECK(next[0] == cache.chunk(49));
    CHECK(next[1] == cache.chunk(7));
}

// What lives for a whole iteration, but no longer, is known by its size in all of it.
TEST_CASE("next-use: what iterations make for themselves is foretold, however long they are") {
    constexpr unsigned kBuffers = 110;
    Steps steps = cycle(kBuffers, 0);
    std::size_t half = 0;
    for (unsigned made = kBuffers; made < kBuffers + 40; ++made) {
        if (made == kBuffers + 20) half = steps.size();
        steps.push_back({UseStep::Make, {made}});
        for (unsigned i = 0; i < 2 * kBuffers; ++i) steps.push_back({UseStep::Work, {i % kBuffers, made}});
        steps.push_back({UseStep::Drop, {made}});
    }
    CHECK(10 * misses("next-use", steps, 60, half) <= 11 * least_misses(steps, 60, half));
}

// A round makes something, which is there for its first half; its second half reads what others do not.
TEST_CASE("next-use: what is free is kept for what will be made, until that is gone") {
    constexpr unsigned kRounds = 60;
    Cache cache("next-use", 4);
    const auto brought = [&](std::uint64_t limit_chunks) {
        std::array<ChunkId, 4> next{};
        cache.host().eviction_start(limit_chunks * 4096, 0);
        return cache.host().upcoming(next) == 0 ? kNoChunk : next[0];
    };
    for (unsigned i = 0; i < 2; ++i) cache.run({UseStep::Make, {i}});
    for (unsigned made = 2;; ++made) {
        const bool last = made == kRounds;
        cache.run({UseStep::Work, {0}});
        if (last) {
            cache.evict(1);
            CHECK(brought(2) == kNoChunk);
            // Room for both, or for neither: then something goes for it.
            CHECK(brought(3) == cache.chunk(1));
            CHECK(brought(1) == cache.chunk(1));
        }
        cache.run({UseStep::Make, {made}});
        if (last) CHECK(brought(2) == cache.chunk(made));
        cache.run({UseStep::Work, {0, made}});
        cache.run({UseStep::Work, {0}});
        if (last) CHECK(brought(3) == cache.chunk(1));
        cache.run({UseStep::Drop, {made}});
        if (last) CHECK(brought(2) == cache.chunk(1));
        if (last) break;
        cache.run({UseStep::Work, {1}});
        cache.run({UseStep::Work, {1}});
    }
}

// Each round makes eight buffers more, one beside each of eight that stay, and gives them all back at its
// end.
TEST_CASE("next-use: what is foretold to lack room has as much evicted, and nothing that is needed before") {
    constexpr unsigned kStay = 8, kRounds = 30;
    Cache cache("next-use", 2 * kStay);
    const auto going = [&](std::uint64_t limit_chunks) {
        cache.host().eviction_start(limit_chunks * 4096, 0);
        std::set<ChunkId> gone;
        const auto stays = [&](ChunkId id) { return !gone.contains(id); };
        for (ChunkId id; (id = cache.host().next_victim({1, Purpose::Foretold}, stays)) != kNoChunk;)
            gone.insert(id);
        return gone;
    };
    for (unsigned i = 0; i < kStay; ++i) cache.run({UseStep::Make, {i}});
    for (unsigned round = 0; round < kRounds; ++round) {
        const unsigned first = kStay * (round + 1);
        for (unsigned i = 0; i < kStay; ++i) {
            cache.run({UseStep::Make, {first + i}});
            cache.run({UseStep::Work, {i, first + i}});
            if (round == 0) CHECK(going(1).empty());  // nothing is foretold yet
            // Nine are there, and seven are to be made; what is needed when four more are there stays.
            if (round == kRounds - 1 && i == 0) CHECK(going(9).size() == 4);
            // Twelve are there, and four are to be made.
            if (round < kRounds - 1 || i != kStay / 2 - 1) continue;
            CHECK(going(16).empty());
            CHECK(going(14).size() == 2);
            const std::set<ChunkId> gone = going(12);
            CHECK(gone.size() == 4);
            for (unsigned soon = kStay / 2; soon < kStay; ++soon) CHECK(!gone.contains(cache.chunk(soon)));
        }
        for (unsigned i = 0; i < kStay; ++i) cache.run({UseStep::Drop, {first + i}});
    }
}

TEST_CASE("next-use: nothing goes ahead of need for what is not known to be needed") {
    const unsigned kBuffers = 20;
    Cache cache("next-use", 12);
    const Steps steps = cycle(kBuffers, 40);
    for (const UseStep& step : steps) cache.run(step);
    cache.run({UseStep::Make, {kBuffers}});
    for (std::size_t i = steps.size() - 4 * kBuffers; i < steps.size(); ++i) cache.run(steps[i]);
    const auto any = [](ChunkId) { return true; };
    CHECK(cache.host().next_victim({1, Purpose::Ahead, cache.chunk(kBuffers)}, any) == kNoChunk);
}

TEST_CASE("next-use: it finds its way again when a program changes what it does, and then changes back") {
    const Steps first = cycle(20, 60);
    Cache cache("next-use", 12);
    for (const UseStep& step : first) cache.run(step);
    // The same buffers in another order, then in the old one.
    std::vector<unsigned> order(20);
    for (unsigned i = 0; i < 20; ++i) order[i] = i * 7 % 20;
    const auto rounds = [&](unsigned count, bool changed) {
        std::size_t before = cache.misses();
        for (unsigned round = 0; round < count; ++round) {
            if (round == count / 2) before = cache.misses();
            for (unsigned i = 0; i < 20; ++i) cache.run({UseStep::Work, {changed ? order[i] : i}});
        }
        return cache.misses() - before;
    };
    // The best order misses 8 of 20 a round, or a little more.
    CHECK(rounds(40, true) <= 20 * 10);
    CHECK(rounds(40, false) <= 20 * 10);
}

TEST_CASE("next-use: of wait and what is idle first, the least recently used answers") {
    Cache cache("next-use", 12);
    for (const UseStep& step : cycle(20, 40)) cache.run(step);
    const ChunkId victim = cache.host().next_victim({1, Purpose::Wait}, [&](ChunkId id) {
        for (unsigned i = 0; i < 20; ++i) {
            if (cache.chunk(i) == id) return cache.there(i);
        }
        return false;
    });
    unsigned oldest = 0;
    while (!cache.there(oldest)) ++oldest;
    CHECK(victim == cache.chunk(oldest));
}

TEST_CASE("next-use: an older shim, which does not tell an allocation's bytes") {
    const lms_policy& policy = lms::policy::kNextUse;
    const lms_policy_config config{.size = sizeof config,
                                   .reserved = 0,
                                   .threshold_bytes = 0,
                                   .frac = -1,
                                   .options = nullptr,
                                   .option_count = 0};
    void* const state = policy.create(&config);
    REQUIRE(state != nullptr);
    std::mt19937 random(1);
    const auto add = [&](std::uint32_t id) {
        lms_policy_chunk chunk{};
        chunk.size = offsetof(lms_policy_chunk, allocation_bytes);
        chunk.chunk = id;
        chunk.bytes = 4096;
        chunk.allocation_bytes = random();  // beyond what it tells
        policy.added(state, &chunk);
    };
    const lms_policy_pressure pressure{
        .size = sizeof pressure, .reserved = 0, .budget_bytes = 1 << 20, .allocated_bytes = 0};
    policy.eviction_start(state, &pressure);
    constexpr std::uint32_t kStay = 8;
    for (std::uint32_t id = 0; id < kStay; ++id) add(id);
    // Each piece of work has a buffer made for it. None of those that stay is ever on the GPU.
    for (std::uint32_t i = 0; i < 100 * kStay; ++i) {
        add(kStay);
        policy.resident(state, kStay);
        const std::uint32_t named[] = {i % kStay, kStay};
        const lms_policy_work work{
            .size = sizeof work, .count = 2, .chunks = named, .stream = 0, .code = 0, .access = nullptr};
        policy.work(state, &work);
        policy.removed(state, kStay);
    }
    std::uint32_t next = LMS_NO_CHUNK;
    CHECK(policy.upcoming(state, &next, 1) == 1);
    CHECK(next == 0);
    policy.destroy(state);
}

// As long as nothing has to leave, nobody asks for an order.
TEST_CASE("next-use: buffers that come and go for ever take no more memory") {
    const auto host = Host::create("next-use", {}, 0);
    const auto come_and_go = [&](int times) {
        for (int i = 0; i < times; ++i) {
            host->added({0, 4096, 0, 0, 0, 4096});
            host->resident(0);
            host->removed(0);
        }
        const auto memory = mallinfo2();
        return memory.uordblks + memory.hblkhd;  // on the heap, and mapped
    };
    const std::size_t before = come_and_go(10000);
    CHECK(come_and_go(200000) < before + 100000);
}
