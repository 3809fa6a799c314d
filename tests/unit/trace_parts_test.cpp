// A trace in several files (LMS_TRACE_SIZE): together they are what one file would have been, and each tells
// alone what there was when it began.
#include <doctest/doctest.h>
#include <errno.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "shim/trace/block_writer.h"
#include "shim/trace/standing.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tools/lms/trace_file.h"

using namespace lms::trace;
using lms::tool::Trace;

namespace {

constexpr std::uint64_t kMostBytes = 8000;

std::unique_ptr<Trace> read_trace(const std::string& path) {
    auto trace = std::make_unique<Trace>();
    std::string problem;
    lms::tool::read_trace_file(path, *trace, problem);
    REQUIRE_MESSAGE(problem.empty(), problem);
    return trace;
}

// Without those that follow it.
std::unique_ptr<Trace> read_alone(const Scratch& scratch, const std::string& name) {
    std::ofstream(scratch.path("alone"), std::ios::binary) << scratch.get(name);
    return read_trace(scratch.path("alone"));
}

// Buffers of two GPUs that come and go, of chunks that move, told to each of the writers in turn.
void tell_a_run(std::vector<BlockWriter*> writers, unsigned seed) {
    std::mt19937 chance(seed);
    std::uint64_t now = now_ns();
    struct Buffer {
        int device;
        std::uint32_t number;
        bool freed = false;  // in stream order
    };
    std::vector<Buffer> live;
    const auto tell = [&](const Event& event) {
        for (BlockWriter* const writer : writers) writer->write(event);
        now += BlockWriter::kOldNs / 4;  // of which each is a block
    };
    const std::vector<std::string> sites[] = {{"f+0x1 (m+0x1)", "main+0x2 (m+0x9)"}, {"g+0x1 (m+0x5)"}, {}};
    const auto pieces_of = [&](std::uint32_t number) {
        return std::vector<Piece>{{number * 2, 4096, chance() % 2 == 0}, {number * 2 + 1, 8192, true}};
    };
    for (int device : {0, 1}) {
        tell(Gpu{device, device == 0 ? "one" : "two", 1 << 20, 4096, true, now});
        tell(Residency{device, 0, 0, now, 1 << 19});
    }
    for (std::uint32_t number = 0; number < 700; ++number) {
        const std::uint32_t what = chance() % 8;
        if (live.size() < 4 || what == 0) {
            // Numbers of what is freed are used again.
            const Buffer made{static_cast<int>(chance() % 2), number % 50};
            const auto same = [&](const Buffer& each) {
                return each.device == made.device && each.number == made.number;
            };
            if (std::ranges::any_of(live, same)) continue;
            live.push_back(made);
            const std::vector<Piece> pieces = pieces_of(made.number);
            tell(
                Allocation{made.device, made.number, 0x1000 * number, 12288, now, sites[number % 3], pieces});
            continue;
        }
        const std::size_t at = chance() % live.size();
        const Buffer buffer = live[at];
        const std::uint32_t chunk = buffer.number * 2 + chance() % 2;
        if (what == 1 && chance() % 2 == 0 && !buffer.freed) {
            tell(StreamFree{buffer.device, buffer.number, 0x7, now});
            live[at].freed = true;
        } else if (what == 1) {
            tell(Free{buffer.device, buffer.number, now});
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        } else if (what < 5) {
            const bool out = what == 2;
            tell(Move{buffer.device, out ? Direction::Out : Direction::In, buffer.number, chunk, 4096,
                      MoveReason::Needed, now, now + 10, true});
        } else if (what == 5) {
            tell(Residency{buffer.device, chance() % 1000, 7, now, 1 << 19});
            if (chance() % 2 == 0) tell(LinkSpeeds{buffer.device, chance() % 1000, 3, now});
            if (chance() % 2 == 0) tell(Unmanaged{buffer.device, chance() % 1000, now});
        } else {
            const Touched touched[] = {{chunk, buffer.number, what == 6, false, what == 7, false}};
            tell(Launch{buffer.device, "kernel", 0x7, touched, now, now + 5});
        }
    }
    for (BlockWriter* const writer : writers) writer->end();
}

// All that an event tells.
std::string text_of(const Event& event) {
    struct Text {
        std::string operator()(const Gpu& e) const { return "gpu " + std::string(e.name); }
        std::string operator()(const Allocation& e) const {
            std::string text = "allocation " + std::to_string(e.device) + " " + std::to_string(e.allocation) +
                               " " + std::to_string(e.address) + " " + std::to_string(e.bytes);
            for (const std::string& frame : e.call_site) text += " " + frame;
            for (const Piece& piece : e.pieces)
                text += " " + std::to_string(piece.chunk) + ":" + std::to_string(piece.bytes) +
                        (piece.resident ? "+" : "-");
            return text;
        }
        std::string operator()(const Free& e) const {
            return "free " + std::to_string(e.device) + " " + std::to_string(e.allocation);
        }
        std::string operator()(const StreamFree& e) const {
            return "stream free " + std::to_string(e.device) + " " + std::to_string(e.allocation) + " " +
                   std::to_string(e.stream);
        }
        std::string operator()(const Launch& e) const {
            return "launch " + std::string(e.kernel) + " " + std::to_string(e.stream) + " " +
                   std::to_string(e.touched.front().chunk) + " " +
                   std::to_string(e.touched.front().allocation);
        }
        std::string operator()(const Move& e) const {
            return "move " + std::to_string(e.device) + " " + std::to_string(e.chunk) +
                   std::string(e.direction == Direction::In ? " in" : " out");
        }
        std::string operator()(const Residency& e) const {
            return "levels " + std::to_string(e.device) + " " + std::to_string(e.resident_bytes);
        }
        std::string operator()(const Stall&) const { return "stall"; }
        std::string operator()(const Dropped&) const { return "dropped"; }
        std::string operator()(const Region&) const { return "region"; }
        std::string operator()(const WorkOver&) const { return "over"; }
        std::string operator()(const KernelTime&) const { return "kernel time"; }
        std::string operator()(const CopyTime&) const { return "copy time"; }
        std::string operator()(const ProgramWait&) const { return "wait"; }
        std::string operator()(const Unmanaged& e) const { return "unmanaged " + std::to_string(e.bytes); }
        std::string operator()(const LinkSpeeds& e) const {
            return "speeds " + std::to_string(e.device) + " " + std::to_string(e.in_bytes_per_s) + " " +
                   std::to_string(e.out_bytes_per_s);
        }
    };
    return std::visit(Text(), event) + " " +
           std::to_string(std::holds_alternative<Launch>(event) || std::holds_alternative<Move>(event)
                              ? begin_of(event)
                              : 0);
}

std::vector<std::string> texts_of(std::span<const Event> events) {
    std::vector<std::string> texts;
    for (const Event& event : events) texts.push_back(text_of(event));
    return texts;
}

// What has been told by `events` that holds still: each buffer's pieces, told in the words of the last of
// each.
std::vector<std::string> standing_after(std::span<const Event> events) {
    struct State {
        std::string gpu, levels, speeds, unmanaged;
        std::map<std::uint32_t, std::string> freed;  // in stream order
        std::map<std::uint32_t, std::pair<Allocation, std::map<std::uint32_t, Piece>>> buffers;
    };
    std::map<int, State> all;
    const auto moved = [&](int device, std::uint32_t chunk, bool in) {
        for (auto& [number, buffer] : all[device].buffers) {
            if (buffer.second.contains(chunk)) buffer.second[chunk].resident = in;
        }
    };
    for (const Event& event : events) {
        if (const auto* gpu = std::get_if<Gpu>(&event)) all[gpu->device].gpu = text_of(event);
        if (const auto* levels = std::get_if<Residency>(&event)) all[levels->device].levels = text_of(event);
        if (const auto* speeds = std::get_if<LinkSpeeds>(&event)) all[speeds->device].speeds = text_of(event);
        if (const auto* now = std::get_if<Unmanaged>(&event)) all[now->device].unmanaged = text_of(event);
        if (const auto* freed = std::get_if<StreamFree>(&event))
            all[freed->device].freed[freed->allocation] = text_of(event);
        if (const auto* free = std::get_if<Free>(&event)) {
            all[free->device].buffers.erase(free->allocation);
            all[free->device].freed.erase(free->allocation);
        }
        if (const auto* move = std::get_if<Move>(&event))
            moved(move->device, move->chunk, move->direction == Direction::In);
        if (const auto* launch = std::get_if<Launch>(&event)) {
            for (const Touched& each : launch->touched) {
                if (!each.in_place && !each.may_stay) moved(launch->device, each.chunk, true);
            }
        }
        if (const auto* made = std::get_if<Allocation>(&event)) {
            auto& buffer = all[made->device].buffers[made->allocation];
            buffer = {*made, {}};
            for (const Piece& piece : made->pieces) buffer.second[piece.chunk] = piece;
        }
    }
    std::vector<std::string> texts;
    for (auto& [device, state] : all) {
        texts.push_back(state.gpu);
        for (auto& [number, buffer] : state.buffers) {
            std::vector<Piece> pieces;
            for (const auto& [chunk, piece] : buffer.second) pieces.push_back(piece);
            buffer.first.pieces = pieces;
            texts.push_back(text_of(buffer.first));
            if (state.freed.contains(number)) texts.push_back(state.freed[number]);
        }
        texts.push_back(state.levels);
        if (!state.speeds.empty()) texts.push_back(state.speeds);
        if (!state.unmanaged.empty()) texts.push_back(state.unmanaged);
    }
    return texts;
}

}  // namespace

TEST_CASE("trace parts: together they are what one file is, and each tells alone what there was") {
    for (const unsigned seed : {1u, 2u, 3u}) {
        CAPTURE(seed);
        const Scratch scratch;
        BlockWriter whole;
        BlockWriter parts;
        REQUIRE(whole.open(scratch.path("whole")) == 0);
        REQUIRE(parts.open(scratch.path("parts"), kMostBytes) == 0);
        tell_a_run({&whole, &parts}, seed);
        const auto one = read_trace(scratch.path("whole"));
        const auto several = read_trace(scratch.path("parts"));
        CHECK(several->ended);
        CHECK(several->stopped.empty());
        REQUIRE(texts_of(several->events) == texts_of(one->events));

        std::size_t told = read_alone(scratch, "parts")->events.size();
        const auto name_of = [](unsigned part) { return "parts." + std::to_string(part); };
        unsigned part = 1;
        // The last event may have filled a file: nothing new is in the one after it then.
        for (struct stat status; stat(scratch.path(name_of(part)).c_str(), &status) == 0; ++part) {
            const std::string name = name_of(part);
            CAPTURE(name);
            const auto alone = read_alone(scratch, name);
            const auto standing = standing_after(std::span(one->events).first(told));
            REQUIRE(alone->events.size() >= standing.size());
            CHECK(texts_of(std::span(alone->events).first(standing.size())) == standing);
            const auto rest = texts_of(std::span(alone->events).subspan(standing.size()));
            CHECK(rest == texts_of(std::span(one->events).subspan(told, rest.size())));
            told += rest.size();
            // Begun with it, what follows is read too.
            CHECK(read_trace(scratch.path(name))->events.size() ==
                  standing.size() + one->events.size() - told + rest.size());
        }
        CHECK(told == one->events.size());
        CHECK(part > 4);
        for (unsigned i = 1; i + 1 < part; ++i) CHECK(scratch.get(name_of(i)).size() < kMostBytes + 4000);
    }
}

TEST_CASE("trace parts: no file follows the one in which the trace ends") {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("trace"), 1) == 0);
    for (std::uint32_t i = 0; i < 3; ++i) writer.write(Free{0, i, now_ns() + (i + 1) * BlockWriter::kOldNs});
    writer.end();
    CHECK(read_alone(scratch, "trace.3")->ended);
    struct stat status;
    CHECK(stat(scratch.path("trace.4").c_str(), &status) != 0);
    CHECK(texts_of(read_trace(scratch.path("trace"))->events) ==
          std::vector<std::string>{"free 0 0 0", "free 0 1 0", "free 0 2 0"});
}

TEST_CASE("trace parts: files of another trace, of an earlier run, are not taken for its own") {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("trace"), kMostBytes) == 0);
    tell_a_run({&writer}, 1);
    const std::string later = scratch.get("trace.1");
    REQUIRE(writer.open(scratch.path("trace")) == 0);
    writer.write(Free{0, 5, now_ns()});
    writer.refresh();
    CHECK(scratch.get("trace.1") == later);
    writer.write(Free{0, 6, now_ns() + BlockWriter::kOldNs});
    const auto trace = read_trace(scratch.path("trace"));
    CHECK_FALSE(trace->ended);
    CHECK(texts_of(trace->events) == std::vector<std::string>{"free 0 5 0", "free 0 6 0"});
}

TEST_CASE("trace parts: where the next cannot be written the file grows on, and none of it is lost") {
    const Scratch scratch;
    lms::settings();  // which configures the log, once
    lms::log::configure(lms::log::Level::Warn, scratch.path("log"));
    REQUIRE(mkdir(scratch.path("trace.1").c_str(), 0700) == 0);
    BlockWriter whole;
    BlockWriter parts;
    REQUIRE(whole.open(scratch.path("whole")) == 0);
    REQUIRE(parts.open(scratch.path("trace"), kMostBytes) == 0);
    tell_a_run({&whole, &parts}, 4);
    CHECK(texts_of(read_trace(scratch.path("trace"))->events) ==
          texts_of(read_trace(scratch.path("whole"))->events));
    CHECK(scratch.get("log").find("lms: LMS_TRACE: cannot write " + scratch.path("trace.1") +
                                  ": Is a directory; the last file grows instead\n") == 0);
    lms::log::configure(lms::log::Level::Warn, "");
}

TEST_CASE("trace parts: a trace can be ended and another begun by the same writer") {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("first")) == 0);
    tell_a_run({&writer}, 5);
    const std::string first = scratch.get("first");
    writer.write(Free{0, 1, now_ns()});  // by a thread that does not know yet
    REQUIRE(writer.open(scratch.path("second")) == 0);
    tell_a_run({&writer}, 5);
    CHECK(scratch.get("first") == first);
    const auto second = read_trace(scratch.path("second"));
    CHECK(second->ended);
    CHECK(texts_of(second->events).size() == texts_of(read_trace(scratch.path("first"))->events).size());
    CHECK(text_of(second->events.front()) == "gpu one 0");
}
