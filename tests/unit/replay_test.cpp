// lms replay: what moves, by hand-made scripts.
#include "tools/lms/replay.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace lms::tool;
namespace trace = lms::trace;
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
    for (const char* policy : {"lru", kFewestBytes}) {
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

TEST_CASE("replay: new memory that found no room comes in without a copy, once") {
    const ReplayScript script = script_of(3, 2, {0, 1, 2, 0, 1, 2}, false, false);
    const Replayed copied = replay(script, {.policy = "lru"});
    const Replayed cleared = replay(script, {.policy = "lru", .clears = true});
    CHECK(cleared.fills == copied.fills - 1);
    CHECK(cleared.bytes_in == copied.bytes_in - kChunk);
    CHECK(cleared.bytes_out == copied.bytes_out);
}

TEST_CASE(
    "replay: of a chunk that found no room what the program asked for goes over the link, and no more") {
    const auto seconds = [](std::uint64_t asked_bytes) {
        ReplayScript script = script_of(3, 1, {}, true, false);
        for (ReplayScript::Buffer& buffer : script.buffers) buffer.asked_bytes = asked_bytes;
        for (const std::uint32_t chunk : {0u, 1u, 2u})
            script.touches.push_back({chunk, false, false, true, ReplayScript::kNever});
        script.steps.push_back({.kind = Step::Kind::Work, .first = 0, .end = 3, .took_ns = 1000});
        const Replayed all =
            replay(script, {.policy = "lru", .in_bytes_per_s = kChunk, .marks = {script.steps.size() - 1}});
        CHECK(all.in_place == 1);
        return all.reached[0].seconds;
    };
    CHECK(seconds(kChunk) == doctest::Approx(2));
    CHECK(seconds(kChunk / 4) == doctest::Approx(0.5));
}

TEST_CASE("replay: a run that is not seen to wait for its work lasts until that is over") {
    ReplayScript script = script_of(1, 1, {0, 0, 0, 0}, true, false);
    for (Step& step : script.steps)
        if (step.kind == Step::Kind::Work) step.ran_ns = 1'000'000;
    const Replayed all = replay(script, {.policy = "lru"});
    CHECK(all.seconds == doctest::Approx(0.004));
    CHECK(all.fitting_seconds == doctest::Approx(0.004));
}

TEST_CASE("replay: memory that was freed last in a stream's order is given out first") {
    // There is room for one: the first is on the GPU, the second on the host, and the third is given one of
    // them.
    ReplayScript script = script_of(2, 1, {}, false, false);
    script.chunks = 3;
    script.buffers.push_back({kChunk, {kChunk}, 2});
    for (std::uint32_t buffer : {0u, 1u})
        script.steps.push_back({.kind = Step::Kind::StreamFree, .buffer = buffer});
    script.steps.push_back({.kind = Step::Kind::Revive, .buffer = 2});
    script.touches.push_back({2, false, false, false, ReplayScript::kNever});
    script.steps.push_back({.kind = Step::Kind::Work, .first = 0, .end = 1, .took_ns = 1000});
    CHECK(run(script, "lru", false).fills == 1);
}

TEST_CASE("replay: memory that was freed in a stream's order is taken over though the stream is long past") {
    // It is on the host, and there is room on the GPU by then. Nobody looked for what can be given back.
    ReplayScript script = script_of(2, 1, {0}, false, false);
    script.steps.insert(script.steps.end() - 1, {.kind = Step::Kind::StreamFree, .buffer = 1});
    Step& work = script.steps.back();
    work.ran_ns = 1'000'000;
    work.waits = true;
    work.over = 1;
    script.chunks = 3;
    script.buffers.push_back({kChunk, {kChunk}, 2});
    script.steps.push_back({.kind = Step::Kind::Free, .buffer = 0});
    script.steps.push_back({.kind = Step::Kind::Revive, .buffer = 2});
    script.touches.push_back({2, false, false, false, ReplayScript::kNever});
    script.steps.push_back({.kind = Step::Kind::Work, .first = 1, .end = 2, .took_ns = 1000});
    CHECK(run(script, "next-use", false).fills == 1);
}

TEST_CASE("replay: of a stream with much unfinished work only every so many works tell of their end") {
    lms::engine::Timelines timelines;
    ModelledFences fences(2, timelines);
    double end = 0;
    std::vector<lms::engine::Use> works;
    const auto add = [&] { works.push_back(fences.add(0, ++end, fences.is_deep(0))); };
    while (works.size() < 16) add();
    CHECK(fences.end_of(works[15]) == 16);
    CHECK(fences.is_deep(0));
    add();
    add();
    CHECK(fences.end_of(works[16]) == 18);  // the idle stream would tell
    add();
    CHECK(fences.end_of(works[16]) == 19);
    CHECK(fences.end_of(works[17]) == 19);
    // What another stream copies is told of one by one.
    const lms::engine::Use copy = fences.add(1, 2.5);
    CHECK(fences.next_end() == 1);
    fences.poll(2);
    CHECK(timelines.finished(works[1]));
    CHECK_FALSE(timelines.finished(works[2]));
    CHECK(fences.next_end() == 2.5);
    CHECK(fences.end_of(works[1]) == 0);
    CHECK(fences.end_of_first({works[1], copy, works[2]}) == 2.5);
    CHECK(fences.number_of(works[2]) < fences.number_of(copy));
    fences.poll(18.5);
    CHECK_FALSE(timelines.finished(works[16]));
    fences.poll(19);
    CHECK(timelines.finished(works[18]));
    CHECK(fences.next_end() == ModelledFences::kNever);
    CHECK_FALSE(fences.is_deep(0));
}

TEST_CASE("replay: a free in a stream's order tells of the works before it that left no event") {
    // Room for two: what the seventeenth work of the first stream used can go before the long one behind it
    // is over, so the other stream's long one runs beside that.
    std::vector<std::uint32_t> works(16, 0);
    works.insert(works.end(), {1, 0, 3});
    ReplayScript script = script_of(4, 2, works, false, false);
    script.streams = 2;
    for (Step& step : script.steps) step.ran_ns = 1'000'000;
    script.steps.back().stream = 1;
    script.steps.back().ran_ns = 100'000'000;
    Step& last_of_first = *(script.steps.end() - 2);
    last_of_first.ran_ns = 100'000'000;
    CHECK(run(script, "lru", false).seconds > 0.2);
    script.steps.insert(script.steps.end() - 2, {.kind = Step::Kind::StreamFree, .buffer = 2});
    const Replayed freed = run(script, "lru", false);
    CHECK(freed.evictions == 1);
    CHECK(freed.seconds < 0.2);
}

TEST_CASE("replay: how long it takes if all fits is the time of that replay, the GPU's work included") {
    const auto with_kernels = [](std::uint64_t room) {
        ReplayScript script = script_of(3, room, rounds(3, 20), false, false);
        std::uint32_t works = 0;
        for (Step& step : script.steps) {
            if (step.kind != Step::Kind::Work) continue;
            step.ran_ns = 500'000;
            step.over = works++;  // the program waits for the work before
        }
        return script;
    };
    const Replayed fits = run(with_kernels(3), "lru", false);
    CHECK(fits.bytes() == 0);
    CHECK(fits.seconds >= 59 * 500e-6);
    CHECK(fits.fitting_seconds == fits.seconds);
    const Replayed small = replay(with_kernels(2), {.policy = "lru", .in_bytes_per_s = 1e8});
    CHECK(small.bytes() > 0);
    CHECK(small.seconds > small.fitting_seconds);
    CHECK(small.fitting_seconds == fits.seconds);
}

TEST_CASE(
    "replay: of the orders that know the future one moves the fewest bytes, the other is as fast as any") {
    // Each work runs for as long as a copy, and the program waits for the one before.
    ReplayScript script = script_of(8, 5, rounds(8, 30), false, false);
    std::uint32_t works = 0;
    for (Step& step : script.steps) {
        if (step.kind != Step::Kind::Work) continue;
        step.ran_ns = 500'000;
        step.waits = true;
        step.over = works++;
    }
    const auto by = [&](const char* policy) {
        return replay(
            script,
            {.policy = policy, .in_bytes_per_s = kChunk / 500e-6, .out_bytes_per_s = kChunk / 500e-6});
    };
    const Replayed fewest = by(kFewestBytes), foresight = by(kForesight);
    CHECK(foresight.fills_ahead > 0);
    CHECK(fewest.fills_ahead == 0);
    for (const char* policy : {"lru", "next-use", kForesight}) {
        CAPTURE(policy);
        CHECK(fewest.bytes() <= by(policy).bytes());
        CHECK(foresight.seconds <= by(policy).seconds);
    }
    CHECK(foresight.seconds < by("lru").seconds);
}

TEST_CASE("replay: what the rest of the GPU takes goes at once") {
    for (const char* policy : {"lru", "next-use", kFewestBytes, kForesight}) {
        CAPTURE(policy);
        ReplayScript script = script_of(3, 3, rounds(3, 2), false, false);
        script.steps.push_back({.kind = Step::Kind::Budget, .budget_bytes = kChunk});
        const Replayed less = run(script, policy, false);
        CHECK(less.fills == 0);
        CHECK(less.evictions == 2);
        CHECK(less.bytes_out == 2 * kChunk);
    }
}

TEST_CASE(
    "replay: what is foretold comes in while the program waits for the GPU, not while it is elsewhere") {
    // Four works at once, the last of which takes as long as many copies; what has to leave first is written.
    ReplayScript elsewhere = script_of(16, 7, rounds(16, 40), false, false);
    ReplayScript waiting = elsewhere;
    std::uint32_t works = 0;
    for (std::size_t i = 0; i < waiting.steps.size(); ++i) {
        if (waiting.steps[i].kind != Step::Kind::Work || ++works % 4 != 0) continue;
        elsewhere.steps[i].took_ns = elsewhere.steps[i].ran_ns = 10'000'000;
        waiting.steps[i] = elsewhere.steps[i];
        waiting.steps[i].took_ns = 0;
        waiting.steps[i].waits = true;
        waiting.steps[i].over = works;
    }
    const ReplayWith with{
        .policy = "next-use", .in_bytes_per_s = kChunk / 250e-6, .out_bytes_per_s = kChunk / 250e-6};
    const Replayed more = replay(waiting, with), fewer = replay(elsewhere, with);
    CHECK(more.fitting_seconds == fewer.fitting_seconds);
    CHECK(fewer.fills_ahead > 0);
    CHECK(more.fills_ahead > 2 * fewer.fills_ahead);
}

TEST_CASE("replay: the order with the fewest bytes evicts the chunk that is used again last") {
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
        CHECK(run(script_of(kBuffers, kRoom, works, false, false), kFewestBytes, false).fills == fills);
    }
}

namespace {

trace::Launch launch(std::uint64_t stream, std::uint64_t begin_ns, std::uint64_t end_ns,
                     std::span<const trace::Touched> touched = {}) {
    return {.device = 0,
            .kernel = "k",
            .stream = stream,
            .touched = touched,
            .begin_ns = begin_ns,
            .end_ns = end_ns};
}

std::vector<Step> works_of(const Trace& trace) {
    std::vector<Step> works = script_of(trace, 0, {}).steps;
    std::erase_if(works, [](const Step& step) { return step.kind != Step::Kind::Work; });
    return works;
}

}  // namespace

TEST_CASE("replay: how long work ran is what the trace tells of its end") {
    Trace trace;
    trace.events = {launch(1, 1000, 1100),          launch(1, 1200, 1300),          launch(2, 1400, 1500),
                    trace::WorkOver{0, 1000, 5000}, trace::WorkOver{0, 1200, 9000}, launch(1, 9500, 9600)};
    const std::vector<Step> works = works_of(trace);
    REQUIRE(works.size() == 4);
    CHECK(works[0].ran_ns == 0);  // it may have been over at once
    CHECK(works[1].ran_ns ==
          3700);  // from when it was submitted: it was not over when the first was seen to be
    CHECK(works[2].ran_ns == 8000);  // nothing tells
    CHECK(works[3].ran_ns == 0);
    CHECK(works[0].stream == works[1].stream);
    CHECK(works[0].stream != works[2].stream);
    // How many had ended when the next began, where one did while the program was on its own.
    CHECK(works[0].over == 0);
    CHECK(works[1].over == 0);
    CHECK(works[2].over == 3);
}

namespace {

constexpr std::uint64_t kMs = 1'000'000;

}  // namespace

TEST_CASE("replay: work that a thread waited for ended when that saw it, but for what it saw at first") {
    const auto ran = [](std::uint64_t seen_ns, std::uint64_t held_up_from_ns) {
        Trace trace;
        trace.events = {launch(1, kMs, 2 * kMs), trace::WorkOver{0, kMs, seen_ns},
                        trace::Stall{0, trace::StallCause::InUse, "k", 1, {}, held_up_from_ns, 9 * kMs},
                        launch(1, held_up_from_ns, 9 * kMs)};
        return works_of(trace).at(0).ran_ns;
    };
    CHECK(ran(8 * kMs, 5 * kMs) == 6 * kMs);
    CHECK(ran(5 * kMs + 1000, 5 * kMs) == 0);
}

TEST_CASE("replay: what ends while the shim holds the program up is not what that waits for") {
    const auto over_behind = [](std::uint64_t at_ns) {
        Trace trace;
        trace.events = {launch(1, 100, 200),
                        trace::WorkOver{0, 100, at_ns},
                        trace::Stall{0, trace::StallCause::InUse, "k", 1, {}, 300, 9 * kMs},
                        launch(1, 300, 9 * kMs),
                        trace::ProgramWait{10 * kMs, 12 * kMs},
                        launch(1, 13 * kMs, 14 * kMs),
                        trace::WorkOver{0, 300, 20 * kMs}};
        return works_of(trace).at(1).over;
    };
    CHECK(over_behind(8 * kMs) == 0);
    CHECK(over_behind(11 * kMs) >= 1);
}

TEST_CASE("replay: a program waits where the trace says so, and is on its own before and after") {
    Trace trace;
    trace.events = {
        launch(1, 10 * kMs, 11 * kMs), launch(1, 12 * kMs, 13 * kMs), trace::WorkOver{0, 10 * kMs, 20 * kMs},
        trace::WorkOver{0, 12 * kMs, 50 * kMs}, trace::ProgramWait{18 * kMs, 50 * kMs},
        // Of another thread, from before that to the launch after the next.
        trace::ProgramWait{11 * kMs, 75 * kMs}, launch(1, 60 * kMs, 70 * kMs), launch(1, 80 * kMs, 81 * kMs)};
    const std::vector<Step> works = works_of(trace);
    REQUIRE(works.size() == 4);
    CHECK_FALSE(works[0].waits);
    CHECK(works[0].took_ns == 2 * kMs);
    CHECK(works[0].over == 0);
    CHECK(works[1].waits);
    CHECK(works[1].took_ns == 6 * kMs);
    CHECK(works[1].after_ns == 10 * kMs);
    CHECK(works[1].over == 2);
    CHECK_FALSE(works[2].waits);
    CHECK(works[2].took_ns == 20 * kMs);
}

TEST_CASE("replay: the link is as fast as the device copied, else as the trace tells of what was before") {
    const auto in = [](const Trace& trace) { return link_of(trace, trace::Direction::In); };
    Trace trace;
    CHECK_FALSE(in(trace));
    trace.events = {trace::LinkSpeeds{0, 0, 7, 1}};
    CHECK_FALSE(in(trace));
    trace.events = {trace::LinkSpeeds{0, 500, 7, 1}, trace::LinkSpeeds{0, 600, 7, 2}};
    CHECK(in(trace) == 600);
    CHECK(link_of(trace, trace::Direction::Out) == 7);
    trace.events.emplace_back(
        trace::Move{0, trace::Direction::In, 1, 1, 50, trace::MoveReason::Needed, 0, 1'000'000'000, true});
    CHECK(in(trace) == 50);
    CHECK(link_of(trace, trace::Direction::Out) == 7);
}

TEST_CASE("replay: work that waited for what came in did not run meanwhile") {
    const trace::Piece piece{7, kChunk, false};
    const trace::Touched touched{7, 3};
    Trace trace;
    trace.events = {
        trace::Residency{0, 0, 0, 1, 1 << 20},
        trace::Allocation{0, 3, 0x1000, kChunk, 1, {}, {&piece, 1}},
        launch(1, 100, 200),
        launch(1, 1000, 1100, {&touched, 1}),
        trace::Move{0, trace::Direction::In, 3, 7, kChunk, trace::MoveReason::Needed, 1050, 4000, true},
        trace::WorkOver{0, 100, 4500},
        trace::WorkOver{0, 1000, 5000}};
    CHECK(works_of(trace).at(1).ran_ns == 500);
}

TEST_CASE("replay: what is freed in stream order makes room when its stream is there, and is not copied") {
    // A buffer that fills the GPU is used by work that runs for long, and freed behind it; the next is made
    // at once.
    const trace::Piece first{7, kChunk, true}, second{8, kChunk, false};
    const trace::Touched uses_first{7, 3}, uses_second{8, 4};
    const auto replayed = [&](bool in_order) {
        Trace trace;
        trace.events = {trace::Gpu{0, "", 1 << 20, kChunk, true, 1}, trace::Residency{0, 0, 0, 1, kChunk},
                        trace::Allocation{0, 3, 0x10000, kChunk, 1, {}, {&first, 1}},
                        launch(1, 100, 200, {&uses_first, 1})};
        if (in_order) trace.events.push_back(trace::StreamFree{0, 3, 1, 300});
        trace.events.insert(trace.events.end(),
                            {trace::Allocation{0, 4, 0x20000, kChunk, 400, {}, {&second, 1}},
                             launch(2, 500, 9000, {&uses_second, 1}), trace::WorkOver{0, 100, 6000},
                             trace::Free{0, 3, 7000}});
        return replay(script_of(trace, 0, {}), {.policy = "lru", .clears = true});
    };
    const Replayed dead = replayed(true), alive = replayed(false);
    CHECK(alive.bytes_out == kChunk);
    CHECK(dead.bytes_out == 0);
    CHECK(dead.evictions == 0);
    CHECK(dead.in_place == 0);
}

TEST_CASE("replay: what takes the memory of a dead buffer has it where it is, at once") {
    const trace::Piece piece{7, kChunk, true};
    const trace::Touched uses{7, 3};
    const auto replayed = [&](std::uint64_t address, const std::string& policy) {
        Trace trace;
        trace.events = {trace::Gpu{0, "", 1 << 20, kChunk, true, 1},
                        trace::Residency{0, 0, 0, 1, kChunk},
                        trace::Allocation{0, 3, 0x10000, kChunk, 1, {}, {&piece, 1}},
                        launch(1, 10, 20),
                        launch(1, 100, 200, {&uses, 1}),
                        trace::StreamFree{0, 3, 1, 300},
                        trace::Free{0, 3, 400},
                        trace::Allocation{0, 3, address, kChunk, 400, {}, {&piece, 1}},
                        launch(1, 500, 600, {&uses, 1}),
                        trace::WorkOver{0, 10, 5000},
                        trace::WorkOver{0, 100, 6000}};
        return replay(script_of(trace, 0, {}), {.policy = policy});
    };
    for (const char* policy : {"lru", "next-use", kFewestBytes}) {
        CAPTURE(policy);
        CHECK(replayed(0x10000, policy).fills == 0);
        CHECK(replayed(0x10000, policy).evictions == 0);
        // Another's has to wait for the memory, and is in host memory until then.
        CHECK(replayed(0x20000, policy).fills == 1);
    }
}

TEST_CASE("replay: what goes ahead of need is chosen among what is idle by then") {
    // By rounds through more buffers than there is room for each is foretold. What was used last is needed
    // last, and best goes for what is needed next; while the work runs that uses it, another goes.
    ReplayScript over = script_of(16, 7, rounds(16, 40), true, false);
    ReplayScript running = over;
    for (Step& step : running.steps) step.ran_ns = step.took_ns;
    const ReplayWith with = {.policy = "next-use", .in_bytes_per_s = 1e15, .retains = true};
    CHECK(replay(over, with).bytes_in < replay(running, with).bytes_in);
}

TEST_CASE("replay: what a damaged trace tells of is cut into no more chunks than a multiple of what it has") {
    // Each of 32 MiB where chunks may be of 64 KiB, and each touched by every work.
    constexpr std::uint32_t kPieces = 4000;
    std::vector<trace::Piece> pieces;
    std::vector<trace::Touched> touched;
    for (std::uint32_t i = 0; i < kPieces; ++i) {
        pieces.push_back({i, 32 << 20, false});
        touched.push_back({i, 0});
    }
    lms::tool::Trace trace;
    trace.events.emplace_back(trace::Gpu{0, "G", 1 << 30, 64 << 10, true, 1});
    const auto script_with = [&](std::size_t buffers, std::size_t works) {
        for (std::uint32_t i = 0; i < buffers; ++i) {
            trace.events.emplace_back(trace::Allocation{0, i, 0x1000, 1, 2, {}, pieces});
        }
        for (std::uint64_t i = 0; i < works; ++i)
            trace.events.emplace_back(trace::Launch{0, "f", 0, touched, 10 + i, 11 + i});
        return script_of(trace, 0, 1 << 20);
    };
    const ReplayScript small = script_with(0, 1);
    CHECK(small.touches.empty());
    const ReplayScript script = script_with(3, 100);
    CHECK(script.chunks < (1 << 20) + 16 * 3 * kPieces);
    CHECK(script.touches.size() < (1 << 20) + 16 * 102 * kPieces);
}
