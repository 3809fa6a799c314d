#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shim/trace/callstack.h"
#include "shim/trace/demangle.h"
#include "tools/lms/chrome.h"

using nlohmann::json;
using namespace lms::trace;
using lms::tool::Tracks;

namespace {

// The objects of one event; each must be JSON by itself once they are put into an array.
std::vector<json> objects_of(const Event& event, Tracks& tracks) {
    return json::parse("[" + encode(event, tracks) + "]");
}

json encoded(const Event& event) {
    Tracks tracks;
    return objects_of(event, tracks).back();
}

Move move_of(std::uint64_t begin_ns, std::uint64_t end_ns, Direction direction = Direction::In,
             int device = 0) {
    return {.device = device,
            .direction = direction,
            .allocation = 3,
            .chunk = 9,
            .bytes = 1 << 21,
            .reason = direction == Direction::In ? MoveReason::Needed : MoveReason::MakeRoom,
            .begin_ns = begin_ns,
            .end_ns = end_ns};
}

}  // namespace

TEST_CASE("trace codec: each kind of event, every field") {
    const std::vector<std::string> site = {"main+0x4 (train+0x1004)", "\"quoted\"\\\n\x01\xff"};
    json event = encoded(Allocation{.device = 1,
                                    .allocation = 7,
                                    .address = 0x7f0000200000,
                                    .bytes = 5ull << 40,
                                    .at_ns = 1'234'567,
                                    .call_site = site});
    CHECK(event["ph"] == "i");
    CHECK(event["s"] == "t");
    CHECK(event["name"] == "allocate");
    CHECK(event["cat"] == "allocation");
    CHECK(event["pid"] == 1);
    CHECK(event["ts"] == 1234.567);
    CHECK(event["args"]["allocation"] == 7);
    CHECK(event["args"]["address"] == "0x7f0000200000");
    CHECK(event["args"]["bytes"] == 5ull << 40);
    CHECK(event["args"]["call site"] == json({site[0], "\"quoted\"\\\n\x01\xEF\xBF\xBD"}));

    event = encoded(Free{.device = 0, .allocation = 7, .at_ns = 2000});
    CHECK(event["ph"] == "i");
    CHECK(event["name"] == "free");
    CHECK(event["ts"] == 2.0);
    CHECK(event["args"]["allocation"] == 7);

    event = encoded(StreamFree{.device = 0, .allocation = 7, .stream = 0xab, .at_ns = 2000});
    CHECK(event["ph"] == "i");
    CHECK(event["name"] == "free in stream order");
    CHECK(event["cat"] == "allocation");
    CHECK(event["ts"] == 2.0);
    CHECK(event["args"] == json({{"allocation", 7}, {"stream", "0xab"}}));

    event = encoded(ProgramWait{2000, 4500});
    CHECK(event["ph"] == "X");
    CHECK(event["name"] == "the program waits for GPUs");
    CHECK(event["cat"] == "wait");
    CHECK(event["ts"] == 2.0);
    CHECK(event["dur"] == 2.5);

    event = encoded(Unmanaged{.device = 1, .bytes = 12345, .at_ns = 2000});
    CHECK(event["ph"] == "C");
    CHECK(event["name"] == "unmanaged bytes");
    CHECK(event["cat"] == "unmanaged");
    CHECK(event["pid"] == 1);
    CHECK(event["ts"] == 2.0);
    CHECK(event["args"] == json({{"unmanaged", 12345}}));

    const std::vector<Touched> touched = {{9, 7}, {3, 4}, {8, 7}};
    event = encoded(Launch{.device = 0,
                           .kernel = "_Z5sgemmIfEvi",
                           .stream = 0xab,
                           .touched = touched,
                           .begin_ns = 5000,
                           .end_ns = 6500});
    CHECK(event["ph"] == "X");
    CHECK(event["name"] == "void sgemm<float>(int)");
    CHECK(event["cat"] == "launch");
    CHECK(event["ts"] == 5.0);
    CHECK(event["dur"] == 1.5);
    CHECK(event["args"]["stream"] == "0xab");
    CHECK(event["args"]["allocations"] == json({4, 7}));
    event = encoded(
        Launch{.device = 0, .kernel = "", .stream = 0, .touched = touched, .begin_ns = 5000, .end_ns = 6500});
    CHECK(event["name"] == "copy or set");
    CHECK(event["cat"] == "transfer");
    CHECK_FALSE(event["args"].contains("bytes"));
    event = encoded(Launch{.device = 0,
                           .kernel = "",
                           .stream = 0,
                           .touched = touched,
                           .begin_ns = 5000,
                           .end_ns = 6500,
                           .copied = {CopyWay::ToHost, 77}});
    CHECK(event["args"]["way"] == "to the host");
    CHECK(event["args"]["bytes"] == 77);

    event = encoded(move_of(1000, 3001, Direction::Out));
    CHECK(event["ph"] == "X");
    CHECK(event["name"] == "out, buffer 3");
    CHECK(event["cat"] == "move");
    CHECK(event["ts"] == 1.0);
    CHECK(event["dur"] == 2.001);
    CHECK(encoded(move_of(1000, 3001))["args"]["reason"] == "needed");
    CHECK(event["args"] == json({{"direction", "out"},
                                 {"allocation", 3},
                                 {"chunk", 9},
                                 {"bytes", 1 << 21},
                                 {"reason", "make room"},
                                 {"timed", false}}));

    const std::vector<Touched> lacked = {{9, 7}, {10, 7}, {11, 3}};
    event = encoded(Stall{.device = 0,
                          .cause = StallCause::CopyOut,
                          .kernel = "_Z5sgemmIfEvi",
                          .bytes = 77,
                          .lacked = lacked,
                          .begin_ns = 10'000,
                          .end_ns = 20'000});
    CHECK(event["ph"] == "X");
    CHECK(event["name"] == "copies to the host");
    CHECK(event["cat"] == "stall");
    CHECK(event["dur"] == 10.0);
    CHECK(event["args"] == json({{"cause", "copies to the host"},
                                 {"kernel", "void sgemm<float>(int)"},
                                 {"bytes", 77},
                                 {"allocations", {3, 7}}}));

    event = encoded(Residency{.device = 2, .resident_bytes = 10, .host_bytes = 20, .at_ns = 1});
    CHECK(event["ph"] == "C");
    CHECK(event["pid"] == 2);
    CHECK(event["ts"] == 0.001);
    CHECK(event["args"] == json({{"resident", 10}, {"host", 20}}));

    event = encoded(
        KernelTime{.device = 2, .kernel = "_Z5sgemmIfEvi", .begin_ns = 5000, .end_ns = 6500, .one_in = 16});
    CHECK(event["ph"] == "X");
    CHECK(event["pid"] == 2);
    CHECK(event["name"] == "void sgemm<float>(int)");
    CHECK(event["cat"] == "kernel");
    CHECK(event["dur"] == 1.5);

    event = encoded(CopyTime{.device = 2, .copied = {CopyWay::ToGpu, 77}, .begin_ns = 5000, .end_ns = 6500});
    CHECK(event["ph"] == "X");
    CHECK(event["pid"] == 2);
    CHECK(event["name"] == "to the GPU");
    CHECK(event["cat"] == "copy");
    CHECK(event["dur"] == 1.5);
    CHECK(event["args"] == json({{"way", "to the GPU"}, {"bytes", 77}}));

    // What is not known is not told as 0.
    event = encoded(LinkSpeeds{.device = 2, .in_bytes_per_s = 25, .out_bytes_per_s = 0, .at_ns = 1000});
    CHECK(event["ph"] == "C");
    CHECK(event["pid"] == 2);
    CHECK(event["ts"] == 1.0);
    CHECK(event["args"] == json({{"in", 25}}));

    event = encoded(Region{.name = "epoch 3", .thread = 4321, .begin_ns = 5000, .end_ns = 6500});
    CHECK(event["ph"] == "X");
    CHECK(event["name"] == "epoch 3");
    CHECK(event["cat"] == "region");
    CHECK(event["dur"] == 1.5);
}

TEST_CASE("trace codec: names that are not mangled stay as they are") {
    for (const char* name : {"", "f", "i", "main", "_Z", "_Znonsense", "kernel_Z3foov"})
        CHECK(demangled(name) == name);
    CHECK(demangled("_ZN3lms5traceEv") == "lms::trace()");
}

TEST_CASE("trace codec: a name whose source form doubles with every few letters stays as it is") {
    // f(pair<int, int>, pair<the first, the first>, ...): each is twice as long as the one before.
    const auto doubled = [](int times) {
        const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        std::string name = "_Z1fSt4pairIiiE";
        for (int i = 0; i < times; ++i) {
            const std::string before = std::string("S") + digits[static_cast<std::size_t>(i)] + "_";
            name += "S_I" + before + before + "E";
        }
        return name;
    };
    CHECK(demangled(doubled(1)) ==
          "f(std::pair<int, int>, std::pair<std::pair<int, int>, std::pair<int, int> >)");
    CHECK(demangled(doubled(9)).size() > 10'000);
    for (const int times : {14, 18}) CHECK(demangled(doubled(times)) == doubled(times));
}

TEST_CASE("trace codec: slices that overlap get rows of their own, others share; each row is named once") {
    Tracks tracks;
    std::map<std::pair<int, int>, std::string> names;
    const auto row_of = [&](const Event& event) {
        const std::vector<json> objects = objects_of(event, tracks);
        for (std::size_t i = 0; i + 1 < objects.size(); ++i) {
            CHECK(objects[i]["ph"] == "M");
            if (objects[i]["name"] != "thread_name") continue;
            const std::pair<int, int> row(objects[i]["pid"], objects[i]["tid"]);
            CHECK(names.count(row) == 0);
            names[row] = objects[i]["args"]["name"];
        }
        return std::pair<int, int>(objects.back()["pid"], objects.back()["tid"]);
    };
    const auto first = row_of(move_of(0, 100));
    const auto second = row_of(move_of(50, 150));
    CHECK(first != second);
    CHECK(row_of(move_of(100, 120)) == first);
    CHECK(row_of(move_of(150, 160)) == first);
    CHECK(row_of(move_of(155, 160)) == second);
    const auto out = row_of(move_of(0, 1, Direction::Out));
    const auto other_device = row_of(move_of(0, 1, Direction::In, 1));
    CHECK(names.size() == 4);
    CHECK(names[first] == "moves in");
    CHECK(names[second] == "moves in");
    CHECK(names[out] == "moves out");
    CHECK(names[other_device] == "moves in");
}

namespace call_site_test {

// Exported functions of another module, calling back: their frames are this program's, libc's, this
// program's.
std::vector<std::string> frames;

bool skip_this_program(const Dl_info& module) {
    Dl_info own;
    return dladdr(reinterpret_cast<const void*>(&skip_this_program), &own) != 0 &&
           own.dli_fbase == module.dli_fbase;
}

bool skip_nothing(const Dl_info&) {
    return false;
}

bool (*skip)(const Dl_info&) = nullptr;

int compare(const void*, const void*) {
    frames = call_site(skip);
    return 0;
}

void sort_two() {
    int two[2] = {};
    qsort(two, 2, sizeof two[0], compare);
}

}  // namespace call_site_test

TEST_CASE("call site: frames from the inside out, the leading ones of skipped modules left out") {
    using namespace call_site_test;
    char own_path[4096];
    const ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path);
    REQUIRE(length > 0);
    const std::string own =
        std::filesystem::path(std::string(own_path, static_cast<std::size_t>(length))).filename();
    const auto is_own = [&](const std::string& frame) { return frame.find(own + "+0x") != frame.npos; };

    skip = skip_nothing;
    sort_two();
    REQUIRE(frames.size() >= 4);
    CHECK(frames.size() <= 16);
    CHECK(is_own(frames[0]));  // compare
    CHECK_MESSAGE(frames[1].find("libc.so.6+0x") != std::string::npos, frames[1]);
    const std::vector<std::string> all = frames;

    skip = skip_this_program;
    sort_two();
    REQUIRE(frames.size() >= 3);
    CHECK(frames[0] == all[1]);
    std::size_t frame = 0;
    while (frame < frames.size() && !is_own(frames[frame])) ++frame;
    CHECK_MESSAGE(frame < frames.size(), "only leading frames are left out");
}

TEST_CASE("call site: the shim's own module is left out by default") {
    using namespace call_site_test;
    // Here the shim's code is part of the test program: what is left begins with how libc started it.
    const std::vector<std::string> site = call_site();
    REQUIRE(site.size() >= 1);
    CHECK_MESSAGE(site[0].find("libc.so.6") != std::string::npos, site[0]);
}
