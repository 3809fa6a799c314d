// Traces of each version of the format, written once: they stay readable as they were.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "shim/trace/demangle.h"
#include "tools/lms/trace_file.h"

using namespace lms::trace;
using lms::tool::Trace;

namespace {

// To its end, where its program ended by itself.
std::unique_ptr<Trace> kept(int version) {
    auto trace = std::make_unique<Trace>();
    std::string problem;
    std::ifstream file("tests/unit/traces/v" + std::to_string(version) + ".lmstrace", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    lms::tool::read_trace(bytes, *trace, problem);
    REQUIRE_MESSAGE(problem.empty(), problem);
    CHECK(trace->ended);
    CHECK(trace->stopped.empty());
    return trace;
}

}  // namespace

// Made by the version that began the format, on the simulated GPU: `patterns --bytes 200000 --steps 25`.
TEST_CASE("trace versions: the trace that is kept of version 1 reads as it did then") {
    const auto trace = kept(1);
    CHECK(nlohmann::json::parse(trace->about).at("settings").at("LMS_POLICY") == "lru");
    std::map<std::size_t, std::size_t> kinds;  // by the variant's order
    std::map<Direction, std::uint64_t> moved;
    std::map<std::string, int> kernels;
    std::uint64_t timed = 0;
    for (const Event& event : trace->events) {
        ++kinds[event.index()];
        if (const auto* const move = std::get_if<Move>(&event)) {
            moved[move->direction] += move->bytes;
            timed += move->timed;
        }
        if (const auto* const launch = std::get_if<Launch>(&event))
            ++kernels[demangled(std::string(launch->kernel))];
    }
    REQUIRE(std::holds_alternative<Gpu>(trace->events.front()));
    CHECK(std::get<Gpu>(trace->events.front()).granularity == 64 << 10);
    CHECK(moved == std::map<Direction, std::uint64_t>{{Direction::In, 4915200}, {Direction::Out, 4915200}});
    CHECK(timed == 150);
    CHECK(kinds ==
          std::map<std::size_t, std::size_t>{{0, 17}, {1, 17}, {2, 58}, {3, 150}, {4, 26}, {5, 93}, {6, 1}});
    const std::string space = "(anonymous namespace)::";
    CHECK(kernels ==
          std::map<std::string, int>{{"", 28},
                                     {space + "fill(unsigned int*, unsigned int, unsigned int)", 22},
                                     {space + "mix(unsigned int*, unsigned int const*, unsigned int)", 8}});
}

// On the simulated GPU too: `weights 2 6 alias`, in half the memory that they take.
TEST_CASE("trace versions: the trace that is kept of version 2 reads as it did then") {
    const auto trace = kept(2);
    CHECK(nlohmann::json::parse(trace->about).at("modules").at(0).at(0) == "weights");
    std::map<Direction, std::uint64_t> moved;
    std::uint64_t launches = 0, only_read = 0, unseen = 0;
    for (const Event& event : trace->events) {
        if (const auto* const move = std::get_if<Move>(&event)) moved[move->direction] += move->bytes;
        const auto* const launch = std::get_if<Launch>(&event);
        if (!launch || launch->kernel.empty()) continue;
        ++launches;
        unseen += launch->writes_unseen;
        for (const Touched& each : launch->touched) only_read += each.only_read;
    }
    CHECK(launches == 52);
    CHECK(moved ==
          std::map<Direction, std::uint64_t>{{Direction::In, 11'862'016}, {Direction::Out, 1'441'792}});
    CHECK(only_read > 0);
    CHECK(unseen > 0);
}

// The same program without a third word, by next-use.
TEST_CASE("trace versions: the trace that is kept of version 3 reads as it did then") {
    const auto trace = kept(3);
    std::map<std::uint64_t, bool> launches;  // by when they began: whether they are known to be over
    for (const Event& event : trace->events) {
        if (const auto* const launch = std::get_if<Launch>(&event)) launches[launch->begin_ns] = false;
        const auto* const over = std::get_if<WorkOver>(&event);
        if (!over) continue;
        REQUIRE(launches.contains(over->launched_ns));
        CHECK(over->at_ns > over->launched_ns);
        for (auto& [begin_ns, known] : launches) known |= begin_ns <= over->launched_ns;
    }
    CHECK(launches.size() == 64);
    CHECK(std::ranges::count_if(launches, [](const auto& each) { return each.second; }) == 55);
}

// On the simulated GPU, by its own clock: `patterns --bytes 200000 --steps 150`, kernels of 1.5 ms each.
TEST_CASE("trace versions: the trace that is kept of version 4 reads as it did then") {
    const auto trace = kept(4);
    std::map<std::string, std::vector<std::uint64_t>> took;
    for (const Event& event : trace->events) {
        const auto* const time = std::get_if<KernelTime>(&event);
        if (!time) continue;
        CHECK(time->one_in == 16);
        took[demangled(std::string(time->kernel))].push_back(time->end_ns - time->begin_ns);
    }
    REQUIRE(took.size() == 2);
    for (const auto& [kernel, each] : took) {
        for (const std::uint64_t ns : each) CHECK(ns / 100'000 == 15);
    }
    CHECK(took["(anonymous namespace)::fill(unsigned int*, unsigned int, unsigned int)"].size() == 5);
    CHECK(took["(anonymous namespace)::mix(unsigned int*, unsigned int const*, unsigned int)"].size() == 2);
}

// On the simulated GPU: `malloc_async 8` in 6 MiB, kernels of half a millisecond.
TEST_CASE("trace versions: the trace that is kept of version 5 reads as it did then") {
    const auto trace = kept(5);
    std::set<std::uint32_t> live, dead;
    std::set<std::uint64_t> streams;
    std::size_t frees = 0, given_back = 0;
    for (const Event& event : trace->events) {
        if (const auto* const made = std::get_if<Allocation>(&event))
            CHECK(live.insert(made->allocation).second);
        if (const auto* const freed = std::get_if<StreamFree>(&event)) {
            CHECK(live.contains(freed->allocation));
            CHECK(dead.insert(freed->allocation).second);
            streams.insert(freed->stream);
            ++frees;
        }
        const auto* const free = std::get_if<Free>(&event);
        if (!free) continue;
        CHECK(dead.erase(free->allocation) == 1);
        live.erase(free->allocation);
        ++given_back;
    }
    CHECK(frees == 29);
    CHECK(given_back == 25);
    CHECK(live == dead);
    CHECK(streams.size() == 1);
}

// On the simulated GPU, by its own clock, over links of 2 and 1 GB/s: `vector_add 4` in 2 MiB.
TEST_CASE("trace versions: the trace that is kept of version 6 reads as it did then") {
    const auto trace = kept(6);
    std::map<CopyWay, std::uint64_t> asked, timed;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> speeds;
    for (const Event& event : trace->events) {
        if (const auto* const launch = std::get_if<Launch>(&event))
            asked[launch->copied.way] += launch->copied.bytes;
        if (const auto* const copy = std::get_if<CopyTime>(&event)) {
            timed[copy->copied.way] += copy->copied.bytes;
            CHECK(copy->end_ns > copy->begin_ns);
        }
        if (const auto* const told = std::get_if<LinkSpeeds>(&event))
            speeds.emplace_back(told->in_bytes_per_s, told->out_bytes_per_s);
    }
    CHECK(asked == std::map<CopyWay, std::uint64_t>{
                       {CopyWay::Unknown, 0}, {CopyWay::ToGpu, 2'097'152}, {CopyWay::ToHost, 1'048'576}});
    CHECK(timed ==
          std::map<CopyWay, std::uint64_t>{{CopyWay::ToGpu, 1'505'280}, {CopyWay::ToHost, 1'048'576}});
    CHECK(speeds == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 970'386'164},
                                                                         {1'884'897'466, 970'386'164}});
}

// On the simulated GPU, by its own clock: `streams 8` in 4 MiB, kernels of half a millisecond.
TEST_CASE("trace versions: the trace that is kept of version 7 reads as it did then") {
    const auto trace = kept(7);
    std::size_t waits = 0;
    std::uint64_t waited_ns = 0, until_ns = 0;
    for (const Event& event : trace->events) {
        const auto* const wait = std::get_if<ProgramWait>(&event);
        if (!wait) continue;
        CHECK(wait->begin_ns >= until_ns);  // by one thread
        until_ns = wait->end_ns;
        waited_ns += wait->end_ns - wait->begin_ns;
        ++waits;
    }
    CHECK(waits == 16);
    CHECK(waited_ns == 603'541);
}

// On the simulated GPU, by its own clock: `weights 4 20` in 6 MiB, code of 3 MiB and more.
TEST_CASE("trace versions: the trace that is kept of version 8 reads as it did then") {
    const auto trace = kept(8);
    std::vector<std::uint64_t> unmanaged;
    for (const Event& event : trace->events) {
        if (const auto* const now = std::get_if<Unmanaged>(&event)) unmanaged.push_back(now->bytes);
    }
    CHECK(unmanaged == std::vector<std::uint64_t>{274'432, 3'428'352});
}
