// next-use where a program does not repeat itself exactly: it leaves work out, does something in between, or
// makes what it needs of another size or elsewhere each time.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/next_use_cache.h"

using namespace caches;

TEST_CASE("next-use: it keeps its place where the program leaves work out, or does something in between") {
    const unsigned kBuffers = 20;
    const struct {
        const char* name;
        std::vector<UseStep> strays;  // after work of buffer 19
        unsigned now;                 // of which it is thought to come then
    } programs[] = {{"one in between", {{UseStep::Work, {3, 7}}}, 19},
                    {"two in between", {{UseStep::Work, {3, 7}}, {UseStep::Work, {5, 1, 2}}}, 19},
                    {"one left out", {{UseStep::Work, {1}}}, 1},
                    {"three left out", {{UseStep::Work, {3}}}, 3},
                    {"one instead of another", {{UseStep::Work, {3, 7}}, {UseStep::Work, {1}}}, 1}};
    for (const auto& [program, strays, now] : programs) {
        const std::string name = program;
        CAPTURE(name);
        Cache cache("next-use", 12);
        for (const UseStep& step : cycle(kBuffers, 40)) cache.run(step);
        for (const UseStep& step : strays) cache.run(step);
        std::vector<ChunkId> expected;
        ChunkId farthest = kNoChunk;
        for (unsigned ahead = 1; ahead < kBuffers; ++ahead) {
            const unsigned buffer = (now + ahead) % kBuffers;
            if (!cache.there(buffer)) expected.push_back(cache.chunk(buffer));
            if (cache.there(buffer)) farthest = cache.chunk(buffer);
        }
        std::array<ChunkId, 4> next{};
        REQUIRE(cache.host().upcoming(next) == 4);
        CHECK(std::equal(next.begin(), next.end(), expected.begin()));
        const ChunkId used = cache.chunk(now);
        CHECK(cache.host().next_victim({1}, [&](ChunkId id) { return cache.on_device(id) && id != used; }) ==
              farthest);
    }
}

TEST_CASE("next-use: work that comes at random in between costs little") {
    std::mt19937 random(1);
    const auto with_strays = [&](const Steps& regular, unsigned buffers) {
        Steps steps;
        for (const UseStep& step : regular) {
            steps.push_back(step);
            const unsigned one = static_cast<unsigned>(random() % buffers);
            const unsigned other = static_cast<unsigned>((one + 1 + random() % (buffers - 1)) % buffers);
            if (step.what == UseStep::Work && random() % 10 == 0)
                steps.push_back({UseStep::Work, {one, other}});
        }
        return steps;
    };
    const struct {
        const char* name;
        Steps steps;
        std::size_t room;
    } programs[] = {{"cycle", with_strays(cycle(40, 100), 40), 30},
                    {"training", with_strays(training(100, 30), 100), 60}};
    for (const auto& [program, steps, room] : programs) {
        const std::string name = program;
        CAPTURE(name);
        const std::size_t late = steps.size() / 3;
        CHECK(misses("next-use", steps, room, late) <= least_misses(steps, room, late) * 1.12);
    }
}

namespace {

// Forward and backward passes over texts, each as long as none before: outputs are of another size each time.
Steps of_many_sizes(unsigned layers, unsigned rounds) {
    std::mt19937 random(1);
    Steps steps = cycle(layers, 0);
    unsigned next = layers;
    for (unsigned round = 0; round < rounds; ++round) {
        const unsigned bytes = 4096 + static_cast<unsigned>(random() % 100'000);
        std::vector<unsigned> left;
        for (unsigned i = 0; i < layers; ++i) {
            steps.push_back({UseStep::Make, {next, bytes}});
            steps.push_back({UseStep::Work, {i, next}});
            left.push_back(next++);
        }
        for (unsigned i = layers; i-- > 0;) {
            steps.push_back({UseStep::Work, {i, left[i]}});
            steps.push_back({UseStep::Drop, {left[i]}});
        }
    }
    return steps;
}

// Inference, whose outputs lie anywhere in a pool that was made after the weights.
Steps anywhere_in_a_pool(unsigned layers, unsigned pool, unsigned rounds) {
    std::mt19937 random(1);
    Steps steps = cycle(layers + pool, 0);
    unsigned before = layers;
    for (unsigned round = 0; round < rounds; ++round) {
        for (unsigned i = 0; i < layers; ++i) {
            const unsigned step = static_cast<unsigned>(1 + random() % (pool - 1));
            const unsigned next = layers + (before - layers + step) % pool;
            std::vector<unsigned> named = {i, before, next};
            std::shuffle(named.begin(), named.end(), random);
            steps.push_back({UseStep::Work, named});
            before = next;
        }
    }
    return steps;
}

// Training, whose outputs lie in slots that were made after the weights, in another order each time.
Steps anywhere_in_slots(unsigned layers, unsigned rounds) {
    std::mt19937 random(1);
    Steps steps = cycle(2 * layers + 4, 0);
    std::vector<unsigned> slots(layers + 4);
    std::iota(slots.begin(), slots.end(), layers);
    const auto work = [&](unsigned a, unsigned b) {
        if (random() % 2 == 0) std::swap(a, b);
        steps.push_back({UseStep::Work, {a, b}});
    };
    for (unsigned round = 0; round < rounds; ++round) {
        std::shuffle(slots.begin(), slots.end(), random);
        for (unsigned i = 0; i < layers; ++i) work(i, slots[i]);
        for (unsigned i = layers; i-- > 0;) {
            work(i, slots[i]);
            work(slots[i], slots[layers + i % 4]);
        }
    }
    return steps;
}

}  // namespace

TEST_CASE("next-use: where the weights are is known whatever a step makes for itself") {
    const struct {
        const char* name;
        Steps steps;
        std::size_t room;
    } programs[] = {{"many sizes", of_many_sizes(40, 40), 30},
                    {"in a pool", anywhere_in_a_pool(40, 6, 60), 30}};
    for (const auto& [program, steps, room] : programs) {
        const std::string name = program;
        CAPTURE(name);
        const std::size_t late = steps.size() / 3;
        const std::size_t least = least_misses(steps, room, late);
        CHECK(misses("next-use", steps, room, late) <= least * 1.02);
        CHECK(misses("lru", steps, room, late) > least * 1.1);
    }
    const Steps slots = anywhere_in_slots(30, 60);
    CHECK(misses("next-use", slots, 40, slots.size() / 3) <=
          misses("lru", slots, 40, slots.size() / 3) * 0.93);
}
