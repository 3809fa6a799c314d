// Small cases of the engine, in all orders of events, and larger ones at random.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/explore/explorer.h"

namespace {

using explore::Case;
using explore::Found;
using explore::WorkPlan;
using Kind = WorkPlan::Kind;

WorkPlan reads(std::uint8_t slot, std::uint8_t stream = 0) {
    return {.stream = stream, .names = {{slot, false}}};
}
WorkPlan writes(std::uint8_t slot, std::uint8_t stream = 0) {
    return {.stream = stream, .names = {{slot}}};
}
WorkPlan copies(std::uint8_t from, std::uint8_t to, std::uint8_t stream = 0) {
    return {.stream = stream, .names = {{from, false}, {to, true, true}}};
}
WorkPlan frees(std::uint8_t slot) {
    return {.kind = Kind::Free, .names = {{slot}}};
}
WorkPlan pins(std::uint8_t slot) {
    return {.kind = Kind::PinGraph, .names = {{slot}}};
}
WorkPlan unpins(std::uint8_t slot) {
    return {.kind = Kind::UnpinGraph, .names = {{slot}}};
}
WorkPlan opaque(std::uint8_t hidden, std::uint8_t stream = 0) {
    return {.stream = stream, .opaque = true, .hidden = hidden};
}
WorkPlan unseen(std::uint8_t hidden, std::uint8_t stream = 0) {
    return {.stream = stream, .unseen = true, .hidden = hidden};
}

const std::vector<Case>& cases() {
    static const std::vector<Case> all{
        {.name = "two buffers take turns on a GPU for one, and the driver refuses",
         .buffers = 2,
         .on_device = 1,
         .budget = 1,
         .host_limit = 3,
         .threads = {{writes(0), writes(1), reads(0)}, {writes(1, 1), reads(0, 1)}},
         .refusals = 1,
         .cancels = true},
        {.name = "three buffers on a GPU for two, foreseen",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 3,
         .threads = {{writes(0), reads(1), writes(2)}, {reads(2, 1), reads(0, 1)}},
         .foresight = true},
        {.name = "what is read stays clean, and goes without a copy",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 5,
         .threads = {{reads(2), reads(0), reads(1)}, {reads(1, 1), writes(2, 1)}},
         .refusals = 1,
         .foresight = true},
        {.name = "clean copies are given up for want of host memory",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 2,
         .threads = {{reads(2), reads(0), reads(1), reads(2)}, {writes(1, 1)}},
         .foresight = true},
        {.name = "opaque work writes what it does not name",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{writes(0), writes(2)}, {opaque(1, 1), reads(2, 1)}},
         .refusals = 1,
         .foresight = true,
         .cancels = true},
        {.name = "opaque work writes while clean chunks leave",
         .buffers = 2,
         .on_device = 1,
         .budget = 1,
         .host_limit = 3,
         .threads = {{reads(1), reads(0), reads(1)}, {opaque(0, 1), opaque(1, 1)}},
         .foresight = true},
        {.name = "unseen work writes while clean chunks leave",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{reads(2), reads(0), reads(2)}, {unseen(2, 1), unseen(0, 1)}},
         .refusals = 1,
         .foresight = true},
        {.name = "a buffer is freed while others move",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{writes(0), frees(0)}, {writes(2, 1), reads(1, 1)}},
         .refusals = 1,
         .foresight = true,
         .cancels = true},
        {.name = "a buffer is freed while it leaves or comes in",
         .buffers = 2,
         .on_device = 1,
         .budget = 1,
         .host_limit = 3,
         .threads = {{writes(0), frees(0)}, {reads(1, 1), writes(1, 1), frees(1)}},
         .refusals = 1,
         .foresight = true,
         .cancels = true},
        {.name = "a graph records a mapping",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{pins(0), writes(0), unpins(0), writes(2)}, {writes(2, 1), reads(1, 1)}},
         .refusals = 1,
         .foresight = true},
        {.name = "what is missing is used in place",
         .buffers = 3,
         .on_device = 1,
         .budget = 1,
         .host_limit = 4,
         .threads = {{writes(1), reads(0)}, {writes(1, 1), writes(2, 1)}},
         .refusals = 1,
         .in_place = true},
        {.name = "the budget falls at any moment",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{writes(0), writes(1)}, {writes(2, 1), reads(0, 1)}},
         .refusals = 1,
         .shrinks = true},
        {.name = "work from before pressure may write anything",
         .buffers = 2,
         .on_device = 1,
         .budget = 1,
         .host_limit = 3,
         .threads = {{writes(1), reads(0)}, {reads(1, 1)}},
         .refusals = 1,
         .earlier = true,
         .foresight = true},
        {.name = "what is overwritten whole comes in without its contents",
         .buffers = 3,
         .on_device = 1,
         .budget = 2,
         .host_limit = 4,
         .threads = {{copies(0, 1), copies(1, 2)}, {copies(1, 2, 1), reads(0, 1)}},
         .refusals = 1,
         .foresight = true},
        {.name = "two buffers are needed at once, by two threads",
         .buffers = 4,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{copies(0, 1), copies(2, 3)}, {copies(2, 3, 1), copies(0, 1, 1)}}},
        {.name = "chunks leave because room is foretold to be lacking",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{writes(0), reads(2)}, {writes(1, 1), frees(1)}},
         .refusals = 1,
         .foresight = true,
         .foretells = true},
        {.name = "opaque work writes while chunks leave ahead of need",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{writes(0), reads(2)}, {opaque(1, 1), unseen(0, 1)}},
         .foresight = true,
         .cancels = true,
         .foretells = true},
        {.name = "three threads, three buffers",
         .buffers = 3,
         .on_device = 2,
         .budget = 2,
         .host_limit = 4,
         .threads = {{writes(0)}, {writes(1, 1), writes(2, 1)}, {reads(2), reads(0)}},
         .foresight = true},
    };
    return all;
}

// Too large to be explored whole.
Case large(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::uint64_t n) { return static_cast<std::uint8_t>(random() % n); };
    Case plan{.name = "random " + std::to_string(seed)};
    plan.buffers = static_cast<std::uint8_t>(3 + up_to(4));
    plan.budget = plan.on_device = static_cast<std::uint8_t>(1 + up_to(plan.buffers - 1));
    plan.host_limit = static_cast<std::uint8_t>(plan.buffers + up_to(3));
    plan.refusals = up_to(5);
    plan.in_place = up_to(2) == 0;
    plan.foresight = up_to(2) == 0;
    plan.cancels = up_to(2) == 0;
    plan.foretells = up_to(2) == 0;
    plan.earlier = up_to(4) == 0;
    plan.shrinks = plan.budget > 1 && up_to(4) == 0;
    plan.sees_all_writes = up_to(4) != 0;
    const std::uint8_t threads = static_cast<std::uint8_t>(2 + up_to(2));
    for (std::uint8_t thread = 0; thread < threads; ++thread) {
        // The last buffers are one thread's each: it may free them.
        const auto own = static_cast<std::uint8_t>(plan.buffers - 1 - thread);
        const auto shared = static_cast<std::uint64_t>(std::max(plan.buffers - threads, 1));
        std::vector<WorkPlan> works;
        for (std::uint8_t i = 0; i < 6; ++i) {
            const auto stream = static_cast<std::uint8_t>(thread % 2);
            const std::uint8_t any = up_to(3) == 0 && own >= shared ? own : up_to(shared);
            switch (up_to(8)) {
                case 0:
                    works.push_back(opaque(up_to(shared), stream));
                    break;
                case 1:
                    works.push_back(unseen(up_to(shared), stream));
                    break;
                case 2:
                case 3:
                case 4:
                    works.push_back(reads(any, stream));
                    break;
                case 5:
                    // Both have to be on the device at once.
                    if (plan.budget > 1 + plan.shrinks && up_to(shared) != any) {
                        works.push_back(copies(up_to(shared), any, stream));
                        if (works.back().names[0].slot == any) works.pop_back();
                        break;
                    }
                    [[fallthrough]];
                default:
                    works.push_back(writes(any, stream));
            }
        }
        if (own >= shared && up_to(2) == 0) works.push_back(frees(own));
        plan.threads.push_back(std::move(works));
    }
    return plan;
}

}  // namespace

TEST_CASE("explore: all orders of events of small cases") {
    // Of each case; a larger one is explored as far as so many states go.
    constexpr std::uint64_t kMostStates = 1'000'000;
    std::uint64_t states = 0;
    for (const Case& plan : cases()) {
        CAPTURE(plan.name);
        const Found found = explore::explore(plan, kMostStates);
        CHECK_MESSAGE(found.wrong.empty(), plan.name, ": ", found.wrong, " after",
                      explore::to_string(found.path));
        if (found.states < kMostStates) CHECK(found.ends > 0);
        MESSAGE(plan.name, ": ", found.states, " states");
        states += found.states;
    }
    MESSAGE(states, " states in all");
}

TEST_CASE("explore: random orders of events of larger cases") {
    std::uint64_t ends = 0;
    for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
        CAPTURE(seed);
        const Case plan = large(seed);
        const Found found = explore::walk(plan, seed, 600);
        REQUIRE_MESSAGE(found.wrong.empty(), found.wrong, " after", explore::to_string(found.path));
        ends += found.ends;
    }
    CHECK(ends > 15'000);
    MESSAGE(ends, " of 20,000 walks came to the end of their program");
}
