#include "shim/engine/timelines.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace lms::engine {
namespace {

TEST_CASE("timelines: a position is finished once its line has come that far, and for good") {
    Timelines timelines;
    const TimelineId first = timelines.create();
    const TimelineId second = timelines.create();
    CHECK(first != second);
    CHECK_FALSE(timelines.finished({first, 1}));
    timelines.complete(first, 3);
    CHECK(timelines.finished({first, 3}));
    CHECK_FALSE(timelines.finished({first, 4}));
    CHECK_FALSE(timelines.finished({second, 1}));
    // Threads look at the same fences beside each other; the later news may be the older.
    timelines.complete(first, 2);
    CHECK(timelines.completed(first) == 3);
}

TEST_CASE("timelines: position 0 is finished on any line, also where there is none") {
    const Timelines timelines;
    CHECK(timelines.finished({0, 0}));
    CHECK(timelines.finished({7, 0}));
}

TEST_CASE("timelines: of recorded uses, the latest unfinished one of each line is kept") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        INFO("seed ", seed);
        std::mt19937_64 random(seed);
        const std::size_t lines = seed % 2 ? 4 : 40;
        Timelines timelines;
        for (std::size_t i = 0; i < lines; ++i) timelines.create();
        std::vector<std::uint64_t> last(lines), recorded(lines);
        std::vector<Use> uses;
        for (int step = 0; step < 300; ++step) {
            const auto line = static_cast<TimelineId>(random() % lines);
            if (random() % 2) {
                recorded[line] = ++last[line];
                record_use(uses, {line, last[line]}, timelines);
                CHECK(uses.size() <= lines);
            } else {
                timelines.complete(line, random() % (last[line] + 1));
            }
            bool unfinished = false;
            for (TimelineId each = 0; each < lines; ++each) {
                const bool pending = recorded[each] > timelines.completed(each);
                unfinished |= pending;
                const bool kept = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
                    return use.timeline == each && use.position == recorded[each];
                });
                if (pending) CHECK(kept);
            }
            if (random() % 3 > 0) continue;
            CHECK(any_unfinished(uses, timelines) == unfinished);
            CHECK(uses.empty() == !unfinished);
        }
    }
}

}  // namespace
}  // namespace lms::engine
