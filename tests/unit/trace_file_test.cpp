// The trace file: what is written is what is read, whatever is cut off or damaged.
#include <doctest/doctest.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "shim/trace/block_writer.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tools/lms/trace_file.h"

using namespace lms::trace;
using lms::tool::Trace;

namespace {

std::unique_ptr<Trace> read(const std::string& bytes) {
    auto trace = std::make_unique<Trace>();
    std::string problem;
    lms::tool::read_trace(bytes, *trace, problem);
    REQUIRE_MESSAGE(problem.empty(), problem);
    return trace;
}

std::string problem_of(const std::string& bytes) {
    Trace trace;
    std::string problem;
    lms::tool::read_trace(bytes, trace, problem);
    return problem;
}

Free free_of(std::uint32_t allocation, std::uint64_t at_ns = 1) {
    return {.device = 0, .allocation = allocation, .at_ns = at_ns};
}

// The numbers of the Frees in it, which must be all that there is.
std::vector<std::uint32_t> frees_in(const Trace& trace) {
    std::vector<std::uint32_t> numbers;
    for (const Event& event : trace.events) {
        REQUIRE(std::holds_alternative<Free>(event));
        numbers.push_back(std::get<Free>(event).allocation);
    }
    return numbers;
}

// Each of a block of its own.
std::string blocks_of(std::uint32_t count) {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("trace")) == 0);
    for (std::uint32_t i = 0; i < count; ++i) writer.write(free_of(i, now_ns() + (i + 1) * 10'000'000'000));
    return scratch.get("trace");
}

void check_same(const Touched& a, const Touched& b) {
    CHECK(a.chunk == b.chunk);
    CHECK(a.allocation == b.allocation);
    CHECK(a.overwritten == b.overwritten);
    CHECK(a.may_stay == b.may_stay);
    CHECK(a.in_place == b.in_place);
    CHECK(a.only_read == b.only_read);
}

}  // namespace

TEST_CASE("trace file: each kind of event, every field") {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("trace")) == 0);
    const std::vector<std::string> site = {"main+0x4 (train+0x1004)", "\"quoted\"\\\n\x01\xff",
                                           "main+0x4 (train+0x1004)"};
    const std::vector<Piece> pieces = {{9, 2 << 20, true}, {4'000'000'000, 1 << 20, false}};
    const std::vector<Touched> touched = {{9, 7, true, false, true},
                                          {4'000'000'000, 7, false, true, false, true}};
    const std::vector<Touched> plain = {{9, 7}};
    writer.write(Gpu{3, "NVIDIA H100", 80ull << 30, 2 << 20, false, 5});
    writer.write(Allocation{3, 7, 0x7f0000200000, 3'000'000, 1'234'567, site, pieces});
    writer.write(Launch{3, "_Z5sgemmIfEvi", 0xffff'ffff'ffff'fff1, touched, 5000, 6500, true});
    writer.write(Launch{3, "", 0, plain, 4000, 4000});  // began earlier
    writer.write(Move{3, Direction::Out, 7, 9, 2 << 20, MoveReason::MakeRoom, 7000, 9001, true});
    writer.write(Move{3, Direction::In, 7, 9, 2 << 20, MoveReason::Needed, 9001, 9100, false});
    writer.write(Stall{3, StallCause::Opaque, "_Z5sgemmIfEvi", 99, touched, 5100, 5200});
    writer.write(Residency{3, 10, 20, 9999, 30});
    writer.write(Free{3, 7, 10'000});
    writer.write(Free{0, 8, 10'001});
    writer.write(Region{"epoch 3", 4321, 900, 20'000});
    writer.write(WorkOver{3, 5000, 7500});
    writer.write(KernelTime{3, "_Z5sgemmIfEvi", 5'500, 6'400, 16});
    writer.write(StreamFree{3, 9, 0xffff'ffff'ffff'fff1, 10'002});
    writer.write(LinkSpeeds{3, 25'000'000'000, 0, 10'003});
    writer.write(Launch{3, "", 0, plain, 10'100, 10'200, false, {CopyWay::ToHost, 3 << 20}});
    writer.write(CopyTime{3, {CopyWay::OnGpu, 5ull << 30}, 10'150, 10'180});
    writer.write(ProgramWait{9'000, 11'500});
    writer.write(Unmanaged{3, 700ull << 20, 12'000});
    writer.end();

    const auto trace = read(scratch.get("trace"));
    CHECK(trace->ended);
    CHECK(trace->stopped.empty());
    CHECK(trace->dropped == 0);
    const auto about = nlohmann::json::parse(trace->about);
    CHECK(about.at("lmsshim") == LMS_VERSION);
    CHECK(about.at("process") == getpid());
    CHECK(about.at("settings").at("LMS_POLICY") == "next-use");
    REQUIRE(trace->events.size() == 19);

    const auto& gpu = std::get<Gpu>(trace->events[0]);
    CHECK(gpu.device == 3);
    CHECK(gpu.name == "NVIDIA H100");
    CHECK(gpu.total_bytes == 80ull << 30);
    CHECK(gpu.granularity == 2 << 20);
    CHECK_FALSE(gpu.maps_host);
    CHECK(gpu.at_ns == 5);
    const auto& buffer = std::get<Allocation>(trace->events[1]);
    CHECK(buffer.device == 3);
    CHECK(buffer.allocation == 7);
    CHECK(buffer.address == 0x7f0000200000);
    CHECK(buffer.bytes == 3'000'000);
    CHECK(buffer.at_ns == 1'234'567);
    std::vector<std::string> shown = site;
    shown[1] = "\"quoted\"\\??\xff";  // no text of it has what a terminal obeys
    CHECK(std::vector<std::string>(buffer.call_site.begin(), buffer.call_site.end()) == shown);
    REQUIRE(buffer.pieces.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(buffer.pieces[i].chunk == pieces[i].chunk);
        CHECK(buffer.pieces[i].bytes == pieces[i].bytes);
        CHECK(buffer.pieces[i].resident == pieces[i].resident);
    }
    const auto& launch = std::get<Launch>(trace->events[2]);
    CHECK(launch.kernel == "_Z5sgemmIfEvi");
    CHECK(launch.stream == 0xffff'ffff'ffff'fff1);
    CHECK(launch.begin_ns == 5000);
    CHECK(launch.end_ns == 6500);
    CHECK(launch.writes_unseen);
    REQUIRE(launch.touched.size() == 2);
    check_same(launch.touched[0], touched[0]);
    check_same(launch.touched[1], touched[1]);
    const auto& transfer = std::get<Launch>(trace->events[3]);
    CHECK(transfer.kernel.empty());
    CHECK(transfer.begin_ns == 4000);
    CHECK(transfer.end_ns == 4000);
    CHECK(transfer.copied.way == CopyWay::Unknown);
    CHECK_FALSE(transfer.writes_unseen);
    REQUIRE(transfer.touched.size() == 1);
    check_same(transfer.touched[0], plain[0]);
    const auto& out = std::get<Move>(trace->events[4]);
    CHECK(out.device == 3);
    CHECK(out.direction == Direction::Out);
    CHECK(out.allocation == 7);
    CHECK(out.chunk == 9);
    CHECK(out.bytes == 2 << 20);
    CHECK(out.reason == MoveReason::MakeRoom);
    CHECK(out.begin_ns == 7000);
    CHECK(out.end_ns == 9001);
    CHECK(out.timed);
    const auto& in = std::get<Move>(trace->events[5]);
    CHECK(in.direction == Direction::In);
    CHECK(in.reason == MoveReason::Needed);
    CHECK_FALSE(in.timed);
    const auto& stall = std::get<Stall>(trace->events[6]);
    CHECK(stall.cause == StallCause::Opaque);
    CHECK(stall.kernel == "_Z5sgemmIfEvi");
    CHECK(stall.bytes == 99);
    CHECK(stall.begin_ns == 5100);
    CHECK(stall.end_ns == 5200);
    REQUIRE(stall.lacked.size() == 2);
    check_same(stall.lacked[1], touched[1]);
    const auto& where = std::get<Residency>(trace->events[7]);
    CHECK(where.resident_bytes == 10);
    CHECK(where.host_bytes == 20);
    CHECK(where.budget_bytes == 30);
    CHECK(where.at_ns == 9999);
    CHECK(std::get<Free>(trace->events[8]).device == 3);
    CHECK(std::get<Free>(trace->events[9]).device == 0);
    const auto& over = std::get<WorkOver>(trace->events[11]);
    CHECK(over.device == 3);
    CHECK(over.launched_ns == 5000);
    CHECK(over.at_ns == 7500);
    CHECK(std::get<Free>(trace->events[9]).allocation == 8);
    CHECK(std::get<Free>(trace->events[9]).at_ns == 10'001);
    const auto& region = std::get<Region>(trace->events[10]);
    CHECK(region.name == "epoch 3");
    CHECK(region.thread == 4321);
    CHECK(region.begin_ns == 900);
    CHECK(region.end_ns == 20'000);
    const auto& time = std::get<KernelTime>(trace->events[12]);
    CHECK(time.device == 3);
    CHECK(time.kernel == "_Z5sgemmIfEvi");
    CHECK(time.begin_ns == 5'500);
    CHECK(time.end_ns == 6'400);
    CHECK(time.one_in == 16);
    const auto& freed = std::get<StreamFree>(trace->events[13]);
    CHECK(freed.device == 3);
    CHECK(freed.allocation == 9);
    CHECK(freed.stream == 0xffff'ffff'ffff'fff1);
    CHECK(freed.at_ns == 10'002);
    const auto& speeds = std::get<LinkSpeeds>(trace->events[14]);
    CHECK(speeds.device == 3);
    CHECK(speeds.in_bytes_per_s == 25'000'000'000);
    CHECK(speeds.out_bytes_per_s == 0);
    CHECK(speeds.at_ns == 10'003);
    const auto& copy = std::get<Launch>(trace->events[15]);
    CHECK(copy.begin_ns == 10'100);
    CHECK(copy.copied.way == CopyWay::ToHost);
    CHECK(copy.copied.bytes == 3 << 20);
    const auto& copied = std::get<CopyTime>(trace->events[16]);
    CHECK(copied.device == 3);
    CHECK(copied.copied.way == CopyWay::OnGpu);
    CHECK(copied.copied.bytes == 5ull << 30);
    CHECK(copied.begin_ns == 10'150);
    CHECK(copied.end_ns == 10'180);
    const auto& wait = std::get<ProgramWait>(trace->events[17]);
    CHECK(wait.begin_ns == 9'000);
    CHECK(wait.end_ns == 11'500);
    const auto& unmanaged = std::get<Unmanaged>(trace->events[18]);
    CHECK(unmanaged.device == 3);
    CHECK(unmanaged.bytes == 700ull << 20);
    CHECK(unmanaged.at_ns == 12'000);
}

TEST_CASE("trace file: a launch of twelve buffers takes less than 30 bytes") {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("trace")) == 0);
    constexpr std::uint32_t kLaunches = 20'000;
    const std::string names[] = {"_Z5sgemmIfEvi", "_Z4reluPfi", "_Z7forwardPKfS0_Pfiii"};
    std::uint64_t now = now_ns();
    std::uint32_t chance = 1;
    for (std::uint32_t i = 0; i < kLaunches; ++i) {
        std::vector<Touched> touched;
        for (std::uint32_t k = 0; k < 12; ++k)
            touched.push_back(
                {.chunk = (i % 50 * 7 + k * k) % 400, .allocation = k, .only_read = (i % 3 + k) % 2 == 0});
        chance = chance * 1664525 + 1013904223;
        now += 3000 + chance % 4000;
        writer.write(Launch{0, names[i % 3], 0xabc, touched, now, now + chance % 2000});
    }
    writer.end();
    const std::string bytes = scratch.get("trace");
    CHECK(bytes.size() < kLaunches * 30);
    CHECK(read(bytes)->events.size() == kLaunches);
}

TEST_CASE("trace file: cut anywhere it is read to its last whole block") {
    const std::string bytes = blocks_of(5);
    std::size_t most = 0;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        Trace trace;
        std::string problem;
        lms::tool::read_trace(bytes.substr(0, size), trace, problem);
        REQUIRE(trace.events.size() >= most);
        most = trace.events.size();
        REQUIRE(most < 5);
        for (std::uint32_t i = 0; i < most; ++i) REQUIRE(std::get<Free>(trace.events[i]).allocation == i);
        REQUIRE((!problem.empty() || !trace.stopped.empty() || most < 5));
    }
    CHECK(most == 4);
    CHECK(frees_in(*read(bytes)) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
}

TEST_CASE("trace file: a damaged byte is noticed, and what is before its block is read") {
    const std::string bytes = blocks_of(3);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
        Trace trace;
        std::string problem;
        lms::tool::read_trace(damaged, trace, problem);
        const bool harmless = trace.events.size() == 3;  // of a head, what is kept for later versions
        REQUIRE((harmless || !problem.empty() || !trace.stopped.empty()));
        for (std::uint32_t i = 0; i < trace.events.size(); ++i)
            REQUIRE(std::get<Free>(trace.events[i]).allocation == i);
    }
}

TEST_CASE("trace file: what is none is said to be none") {
    CHECK(problem_of("").find("no trace of lmsshim") == 0);
    CHECK(problem_of("[\n]\n").find("no trace of lmsshim") == 0);
    std::string newer = blocks_of(1);
    newer[8] = static_cast<char>(FileHead::kVersion + 1);
    const std::string known = std::to_string(FileHead::kVersion);
    CHECK(problem_of(newer) == "has version " + std::to_string(FileHead::kVersion + 1) +
                                   " of the format; this lms reads 1 to " + known);
}

namespace {

// Records of a block, as no writer makes them.
std::unique_ptr<Trace> decoded(const std::string& records) {
    auto trace = std::make_unique<Trace>();
    lms::tool::TraceDecoder(*trace).add(records);
    return trace;
}

void put(std::string& records, Tag tag, std::initializer_list<std::uint64_t> numbers) {
    records.push_back(static_cast<char>(tag));
    for (const std::uint64_t number : numbers) put_number(records, number);
}

void put_string(std::string& records, std::uint64_t number, std::string_view text) {
    put(records, Tag::String, {number, text.size()});
    records += text;
}

}  // namespace

TEST_CASE(
    "trace file: call sites take no more memory than a multiple of what is read, whatever they refer to") {
    std::string records;
    put_string(records, 1, std::string(64 << 10, 'x'));
    constexpr std::uint64_t kFrames = 2000;
    for (std::uint64_t site = 1; site <= 20; ++site) {
        put(records, Tag::Site, {site, kFrames});
        for (std::uint64_t i = 0; i < kFrames; ++i) put_number(records, 1);
    }
    std::size_t bytes = 0;
    auto trace = decoded(records);
    for (const auto& site : trace->sites) {
        CHECK(site.size() <= kMostFrames);
        for (const std::string& frame : site) bytes += frame.size();
    }
    CHECK(bytes > 0);
    CHECK(bytes < 20 * kMostFrames * kLongestString + 1);

    // Many short ones, each of as many long frames as it may have.
    records.clear();
    put_string(records, 1, std::string(kLongestString, 'x'));
    for (std::uint64_t site = 1; site <= 1000; ++site) {
        put(records, Tag::Site, {site, kMostFrames});
        for (std::uint64_t i = 0; i < kMostFrames; ++i) put_number(records, 1);
    }
    bytes = 0;
    trace = decoded(records);
    for (const auto& site : trace->sites)
        for (const std::string& frame : site) bytes += frame.size();
    CHECK(bytes < (1 << 20) + 300 * records.size());
}

TEST_CASE("trace file: names without end are forgotten by the writer, and each is read as it was") {
    Records records;
    Trace trace;
    lms::tool::TraceDecoder decoder(trace);
    const std::vector<std::string> site = {"f+0x1 (m+0x1)", "main+0x2 (m+0x9)"};
    unsigned told = 0;
    constexpr std::uint32_t kSteps = 3 * Records::kMostNumbered;
    for (std::uint32_t i = 0; i < kSteps; ++i) {
        const std::string name = "step " + std::to_string(i);
        records.put(Allocation{0, i, 0x1000, 4096, i, site, {}});
        records.put(Region{name, 1, i, i});
        records.put(StreamFree{0, i, 0x7, i});
        if (records.bytes().size() < BlockWriter::kBlockBytes && i + 1 < kSteps) continue;
        told += records.bytes().find(site[0]) != std::string::npos;
        REQUIRE(decoder.add(records.bytes()));
        records.begin_block();
    }
    CHECK(told > 1);
    CHECK(told <= 4);
    REQUIRE(trace.events.size() == 3 * kSteps);
    for (std::uint32_t i = 0; i < kSteps; ++i) {
        const auto& frames = std::get<Allocation>(trace.events[3 * i]).call_site;
        REQUIRE(std::ranges::equal(frames, site));
        REQUIRE(std::get<Region>(trace.events[3 * i + 1]).name == "step " + std::to_string(i));
        REQUIRE(std::get<StreamFree>(trace.events[3 * i + 2]).stream == 0x7);
    }
}

TEST_CASE("trace file: no text of it has what a terminal obeys") {
    std::string records;
    put_string(records, 1, "a\x1b[2Jb\n\x7f\u009bc\u00e9");
    put(records, Tag::Region, {0, 5, 1, 7});
    const auto trace = decoded(records);
    REQUIRE(trace->events.size() == 1);
    CHECK(std::get<Region>(trace->events[0]).name ==
          "a?[2Jb??"
          "??c\u00e9");
}

TEST_CASE("trace file: one that tells of more GPUs than there are is damaged from there on") {
    std::string records;
    for (std::uint64_t device = 0; device < 1000; ++device) {
        put(records, Tag::Device, {device});
        put(records, Tag::Free, {0, 1});
    }
    CHECK(decoded(records)->events.size() == kMostDevices);
}

TEST_CASE("trace file: a program that is killed leaves whole blocks of all but its last half second") {
    const Scratch scratch;
    int pipe_ends[2];
    REQUIRE(pipe(pipe_ends) == 0);
    const pid_t child = support::start_child([&] {
        BlockWriter writer;
        if (writer.open(scratch.path("trace")) != 0) return;
        const std::uint64_t start = now_ns();
        for (std::uint32_t i = 0;; ++i) {
            // As if half a second passed every hundred events.
            writer.write(free_of(i, start + std::uint64_t{i} * BlockWriter::kOldNs / 100));
            if (write(pipe_ends[1], &i, sizeof i) != sizeof i) return;
        }
    });
    close(pipe_ends[1]);
    std::uint32_t reported = 0;
    while (reported < 2000) REQUIRE(::read(pipe_ends[0], &reported, sizeof reported) == sizeof reported);
    kill(child, SIGKILL);
    CHECK(support::end_of_child(child) == 128 + SIGKILL);
    close(pipe_ends[0]);
    const auto trace = read(scratch.get("trace"));
    CHECK_FALSE(trace->ended);
    CHECK(trace->dropped == 0);
    const std::vector<std::uint32_t> frees = frees_in(*trace);
    REQUIRE(frees.size() + 100 >= 2000);
    for (std::uint32_t i = 0; i < frees.size(); ++i) REQUIRE(frees[i] == i);
}

TEST_CASE(
    "trace file: on a disk that is full events are dropped and counted, and it goes on when there is room") {
    const Scratch scratch;
    constexpr std::uint32_t kEvents = 900'000;
    CHECK(support::in_child([&] {
              rlimit limit = {4000, RLIM_INFINITY};  // its beginning names the libraries of the process
              setrlimit(RLIMIT_FSIZE, &limit);
              signal(SIGXFSZ, SIG_IGN);
              lms::settings();  // which configures the log, once
              lms::log::configure(lms::log::Level::Warn, scratch.path("log"));
              BlockWriter writer;
              if (writer.open(scratch.path("trace")) != 0) _exit(1);
              for (std::uint32_t i = 0; i < kEvents; ++i) writer.write(free_of(i));
              limit.rlim_cur = RLIM_INFINITY;
              setrlimit(RLIMIT_FSIZE, &limit);
              writer.end();
          }) == 0);
    const auto trace = read(scratch.get("trace"));
    CHECK(trace->ended);
    CHECK(trace->stopped.empty());
    CHECK(trace->dropped > 0);
    CHECK(trace->events.size() - 1 + trace->dropped == kEvents);  // one tells of those dropped
    CHECK(scratch.get("log") ==
          "lms: LMS_TRACE: cannot write: File too large; events are missing from here on\n");
}

TEST_CASE("trace file: events of several threads are all there, a child of fork writes nothing") {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("trace-%p")) == 0);
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&writer, thread] {
            for (std::uint32_t i = 0; i < 5000; ++i) writer.write(free_of(thread * 10'000 + i));
        });
    }
    CHECK(support::in_child([&] {
              writer.write(free_of(99'999));
              writer.end();
          }) == 0);
    for (std::thread& thread : threads) thread.join();
    BlockWriter second;
    CHECK(second.open(scratch.path("trace-" + std::to_string(getpid()))) == EWOULDBLOCK);
    writer.end();
    std::vector<std::uint32_t> next(4);
    const auto trace = read(scratch.get("trace-" + std::to_string(getpid())));
    for (const std::uint32_t number : frees_in(*trace))
        REQUIRE(number % 10'000 == next.at(number / 10'000)++);
    CHECK(next == std::vector<std::uint32_t>{5000, 5000, 5000, 5000});
}

TEST_CASE("trace file: a child forked while another thread writes does not wait for that thread") {
    const Scratch scratch;
    BlockWriter writer;
    REQUIRE(writer.open(scratch.path("trace")) == 0);
    std::atomic<bool> stop = false;
    std::thread busy([&] {
        for (std::uint32_t i = 0; !stop; ++i) writer.write(free_of(i));
    });
    // Long enough that some child is forked while the lock is held; one that waited would be ended by its
    // alarm.
    int status = 0;
    for (int child = 0; child < 100 && status == 0; ++child) {
        status = support::in_child([&] { writer.write(free_of(1)); });
    }
    stop = true;
    busy.join();
    CHECK(status == 0);
}
