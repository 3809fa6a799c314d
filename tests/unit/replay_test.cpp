// lms replay: what moves, by hand-made scripts.
#include "tools/lms/replay.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace lms::tool;
using Step = ReplayScript::Step;

namespace {

constexpr std::uint64_t kChunk = 64 << 10;

// Buffers of a chunk each, of which each work uses one, in memory for so many.
ReplayScript script_of(std::uint32_t buffers, std::uint64_t room, const std::vector<std::uint32_t>& works,
                       bool only_read, bool writes_unseen) {
    ReplayScript script;
    script.granularity = kChunk;
    script.chunks = buffers;
    script.steps.push_back({.kind = Step::Kind::Budget, .budget_bytes = room * kChunk});
    for (std::uint32_t i = 0; i < buffers; ++i) {
        script.buffers.push_back({kChunk, {kChunk}, i});
        script.steps.push_back({.kind = Step::Kind::Allocate, .buffer = i});
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
        const auto next =
            std::find(works.begin() + static_cast<std::ptrdiff_t>(i) + 1, works.end(), works[i]);
        const auto at = static_cast<std::uint32_t>(i);
        script.touches.push_back({works[i], false, false, only_read,
                                  next == works.end()
                                      ? ReplayScript::kNever
                                      : static_cast<std::uint32_t>(next - works.begin()) + 1 + buffers});
        script.steps.push_back({.kind = Step::Kind::Work,
                                .first = at,
                                .end = at + 1,
                                .took_ns = 1000,
                                .writes_unseen = writes_unseen});
    }
    return script;
}

std::vector<std::uint32_t> rounds(std::uint32_t buffers, std::uint32_t count) {
    std::vector<std::uint32_t> works;
    for (std::uint32_t i = 0; i < buffers * count; ++i) works.push_back(i % buffers);
    return works;
}

Replayed run(const ReplayScript& script, const std::string& policy, bool retains) {
    return replay(script, {.policy = policy, .retains = retains});
}

}  // namespace

TEST_CASE("replay: what nothing has written goes out without a copy, unless something may have") {
    const auto works = rounds(3, 20);
    for (const char* policy : {"lru", kOptimal}) {
        CAPTURE(policy);
        const Replayed kept = run(script_of(3, 2, works, true, false), policy, true);
        CHECK(kept.evictions > 20);
        CHECK(kept.bytes_in >= 20 * kChunk);
        // The two that began on the GPU.
        CHECK(kept.bytes_out == 2 * kChunk);
        for (const Replayed& copied : {run(script_of(3, 2, works, true, false), policy, false),
                                       run(script_of(3, 2, works, false, false), policy, true),
                                       run(script_of(3, 2, works, true, true), policy, true)}) {
            CHECK(copied.evictions == kept.evictions);
            CHECK(copied.bytes_in == kept.bytes_in);
            CHECK(copied.bytes_out == copied.evictions * kChunk);
        }
    }
}

TEST_CASE("replay: the order that knows the future puts out what is used again last") {
    constexpr std::uint32_t kBuffers = 9;
    constexpr std::uint64_t kRoom = 4;
    for (unsigned seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        std::vector<std::uint32_t> works(300);
        for (std::uint32_t& work : works) work = random() % kBuffers;
        std::set<std::uint32_t> there;
        for (std::uint32_t i = 0; i < kRoom; ++i) there.insert(i);
        std::uint64_t fills = 0;
        for (auto now = works.begin(); now != works.end(); ++now) {
            if (there.contains(*now)) continue;
            const auto last = std::ranges::max_element(
                there, {}, [&](std::uint32_t each) { return std::find(now, works.end(), each) - now; });
            there.erase(last);
            there.insert(*now);
            ++fills;
        }
        CHECK(run(script_of(kBuffers, kRoom, works, false, false), kOptimal, false).fills == fills);
    }
}
