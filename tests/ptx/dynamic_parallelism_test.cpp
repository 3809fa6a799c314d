// Kernels launched by kernels.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

// A launch of `kernel` as nvcc writes it.
std::string launch(std::string_view kernel, std::string_view argument, std::string_view blocks, int threads,
                   std::string_view stream, std::string_view by = "__cudaCDP2LaunchDeviceV2") {
    static int launches = 0;
    const int number = launches++;
    return fmt::format(R"(
    {{ .param .b64 p0; .param .align 4 .b8 p1[12]; .param .align 4 .b8 p2[12]; .param .b32 p3; .param .b64 result;
      mov.u64 %kernel, {}; st.param.b64 [p0], %kernel;
      st.param.b32 [p1], {}; st.param.b32 [p1+4], 1; st.param.b32 [p1+8], 1;
      st.param.b32 [p2], {}; st.param.b32 [p2+4], 1; st.param.b32 [p2+8], 1; st.param.b32 [p3], 0;
      call.uni (result), __cudaCDP2GetParameterBufferV2, (p0, p1, p2, p3); ld.param.b64 %buffer, [result]; }}
    setp.eq.u64 %none, %buffer, 0; @%none bra SKIP{};
    st.u64 [%buffer], %out; st.u32 [%buffer+8], {};
    {{ .param .b64 p0; .param .b64 p1; .param .b32 result;
      st.param.b64 [p0], %buffer; mov.u64 %buffer, {}; st.param.b64 [p1], %buffer;
      call.uni (result), {}, (p0, p1); ld.param.b32 %status, [result]; }}
    add.u32 %failures, %failures, %status;
SKIP{}:)",
                       kernel, blocks, threads, number, argument, stream, by, number);
}

std::string module_text(std::string_view parent_body, std::string_view child_body) {
    static constexpr std::string_view kHead = R"({
    .reg .b64 %out, %kernel, %buffer, %at, %h<6>; .reg .b32 %a, %b, %c, %status, %failures; .reg .pred %none, %p;
    ld.param.u64 %out, [out]; ld.param.u32 %a, [argument]; mov.u32 %failures, 0;
)";
    return fmt::format(R"(.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 result) __cudaCDP2GetParameterBufferV2(.param .b64 p0, .param .align 4 .b8 p1[12], .param .align 4 .b8 p2[12], .param .b32 p3);
.extern .func (.param .b32 result) __cudaCDP2LaunchDeviceV2(.param .b64 p0, .param .b64 p1);
.visible .entry child(.param .u64 out, .param .u32 argument);
.visible .entry parent(.param .u64 out, .param .u32 argument)
{0}{1} ret; }}
.visible .entry child(.param .u64 out, .param .u32 argument)
{0}{2} ret; }}
)",
                       kHead, parent_body, child_body);
}

// The child appends its argument to the list that starts with its length.
constexpr std::string_view kAppend =
    "atom.global.add.u32 %b, [%out], 1; mul.wide.u32 %at, %b, 4; add.u64 %at, %at, %out; st.global.u32 "
    "[%at+4], %a;\n";

std::vector<unsigned> list_of(const Module& module, unsigned blocks, unsigned workers, unsigned seed = 0) {
    const DeviceMemory out(4096);
    std::memset(out.as<char>(), 0, 4096);
    exec::Launch launch = module.launch("parent", pack(out.address(), 7u));
    launch.seed = seed;
    launch.grid[0] = blocks;
    REQUIRE(run(std::move(launch), workers).outcome == Outcome::Finished);
    const auto* words = out.as<unsigned>();
    return {words + 1, words + 1 + words[0]};
}

// A call of the device runtime; an argument is its type's bits and its value. Errors are added up.
std::string call(std::string_view name, const std::vector<std::pair<int, std::string>>& arguments) {
    std::string text = "{ .param .b32 result;", names;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const auto& [bits, value] = arguments[i];
        text += fmt::format(" .param .b{0} p{1}; st.param.b{0} [p{1}], {2};", bits, i, value);
        names += fmt::format("{}p{}", i ? ", " : "", i);
    }
    return text +
           fmt::format(" call.uni (result), {}, ({}); ld.param.b32 %status, [result]; }}\n", name, names) +
           "    add.u32 %failures, %failures, %status;\n";
}

// Handles lie at the end of the 4096 bytes that %out points to.
std::string create(std::string_view what, int index, int flags) {
    return fmt::format("add.u64 %at, %out, {};", 4000 + 8 * index) +
           call(fmt::format("__cudaCDP2{}CreateWithFlags", what),
                {{64, "%at"}, {32, std::to_string(flags)}}) +
           fmt::format("ld.u64 %h{}, [%at];\n", index);
}
std::string create_stream(int index) {
    return create("Stream", index, 1);
}
std::string create_event(int index) {
    return create("Event", index, 2);
}
std::string wait(std::string_view stream, std::string_view event) {
    return call("__cudaCDP2StreamWaitEvent",
                {{64, std::string(stream)}, {64, std::string(event)}, {32, "0"}});
}
std::string record(std::string_view event, std::string_view stream) {
    return call("__cudaCDP2EventRecord", {{64, std::string(event)}, {64, std::string(stream)}});
}
// The parent's first thread appends what calls have answered, added up.
constexpr std::string_view kAppendFailures =
    "atom.global.add.u32 %b, [%out], 1; mul.wide.u32 %at, %b, 4; add.u64 %at, %at, %out; st.global.u32 "
    "[%at+4], %failures;\n";

TEST_CASE(
    "children: children run after their parent's blocks, each with its own, in any order of their streams; "
    "tail launches come last") {
    const Module module(
        module_text("st.global.u32 [%out+400], 0;" + launch("child", "1", "2", 3, "3") +
                        launch("child", "2", "1", 2, "0") + launch("child", "10", "1", 1, "4") +
                        launch("child", "3", "1", 1, "0") + std::string(kAppend),
                    // A child given 10 launches one given 11.
                    std::string(kAppend) + "setp.ne.u32 %p, %a, 10; @%p ret; add.u32 %c, %a, 1;" +
                        launch("child", "%c", "1", 1, "0")));
    std::set<std::vector<unsigned>> seen;
    for (unsigned seed = 0; seed < 40; ++seed) {
        for (unsigned workers : {1u, 2u}) seen.insert(list_of(module, 1, workers, seed));
    }
    // The block's stream keeps its order; what is forgotten goes before, between or behind.
    CHECK(seen == std::set<std::vector<unsigned>>{{7, 10, 11, 2, 2, 3, 1, 1, 1, 1, 1, 1},
                                                  {7, 2, 2, 10, 11, 3, 1, 1, 1, 1, 1, 1},
                                                  {7, 2, 2, 3, 10, 11, 1, 1, 1, 1, 1, 1}});
}

TEST_CASE("children: streams keep their order, and wait for the events they are told to") {
    const std::string streams = create_stream(1) + create_stream(2);
    const std::string first = launch("child", "1", "1", 1, "%h1") + launch("child", "2", "1", 1, "%h1");
    const std::string second = launch("child", "3", "1", 1, "%h2") + launch("child", "4", "1", 1, "%h2");
    const auto orders = [](const std::string& body) {
        const Module module(module_text(body + std::string(kAppendFailures), kAppend));
        std::set<std::vector<unsigned>> seen;
        for (unsigned seed = 0; seed < 60; ++seed) seen.insert(list_of(module, 1, 1, seed));
        return seen;
    };
    // All six orders of two streams.
    CHECK(orders(streams + first + second).size() == 6);
    CHECK(orders(streams + first + create_event(3) + record("%h3", "%h1") + wait("%h2", "%h3") + second) ==
          std::set<std::vector<unsigned>>{{0, 1, 2, 3, 4}});
    // The event is what it was when the stream was told to wait, and one never recorded is no wait.
    CHECK(orders(streams + create_event(3) + wait("%h2", "%h3") + first + second).size() == 6);
    CHECK(orders(streams + launch("child", "1", "1", 1, "%h1") + create_event(3) + record("%h3", "%h1") +
                 wait("%h2", "%h3") + record("%h3", "%h1") + launch("child", "2", "1", 1, "%h1") + second) ==
          std::set<std::vector<unsigned>>{{0, 1, 2, 3, 4}, {0, 1, 3, 2, 4}, {0, 1, 3, 4, 2}});
}

TEST_CASE("children: the block's stream is each block's own, and threads have streams of their own") {
    const Module blocks(module_text("mov.u32 %b, %ctaid.x; add.u32 %c, %b, 1;" +
                                        launch("child", "%c", "1", 1, "0") + "add.u32 %c, %b, 11;" +
                                        launch("child", "%c", "1", 1, "0"),
                                    kAppend));
    std::set<std::vector<unsigned>> seen;
    for (unsigned seed = 0; seed < 60; ++seed) seen.insert(list_of(blocks, 2, 1, seed));
    CHECK(seen.size() == 6);
    for (const auto& list : seen) {
        const auto at = [&](unsigned value) { return std::find(list.begin(), list.end(), value); };
        CHECK(at(1) < at(11));
        CHECK(at(2) < at(12));
    }
    // cudaStreamPerThread, and 0 in the form that takes it for that.
    for (const auto& [name, stream] :
         {std::pair("__cudaCDP2LaunchDeviceV2", "2"), std::pair("__cudaCDP2LaunchDeviceV2_ptsz", "0")}) {
        const Module threads(module_text(
            "mov.u32 %b, %tid.x; add.u32 %c, %b, 1;" + launch("child", "%c", "1", 1, stream, name), kAppend));
        seen.clear();
        for (unsigned seed = 0; seed < 20; ++seed) {
            const DeviceMemory out(4096);
            std::memset(out.as<char>(), 0, 4096);
            exec::Launch launch = threads.launch("parent", pack(out.address(), 7u));
            launch.block[0] = 2;
            launch.seed = seed;
            REQUIRE(run(std::move(launch)).outcome == Outcome::Finished);
            seen.insert({out.as<unsigned>()[1], out.as<unsigned>()[2]});
        }
        CHECK(seen == std::set<std::vector<unsigned>>{{1, 2}, {2, 1}});
    }
}

// 64 KiB of numbered bytes, then what copies and fills make of them.
TEST_CASE("children: copies and fills take their turn in a stream") {
    const auto at = [](std::string_view reg, int offset) {
        return fmt::format("add.u64 {}, %out, {};", reg, offset);
    };
    const std::string pitched =
        at("%at", 40000) +
        "st.global.u64 [%out+32000], %at; mov.u64 %h5, 100; st.global.u64 [%out+32008], %h5;"
        "st.global.u64 [%out+32016], %h5; mov.u64 %h5, 4; st.global.u64 [%out+32024], %h5;"
        "mov.u64 %h5, 7; st.global.u64 [%out+32032], %h5; mov.u64 %h5, 3; st.global.u64 "
        "[%out+32040], %h5; mov.u64 %h5, 2; st.global.u64 [%out+32048], %h5;";
    // cudaMemcpy3DParms: a null array, x = 1, y = 1, z = 1; from what `pitched` says; to row 1 of 50000.
    std::string parameters;
    const auto word = [&](int offset, std::string_view value) {
        parameters += fmt::format("mov.u64 %h5, {}; st.global.u64 [%out+{}], %h5;", value, 33000 + offset);
    };
    for (int i = 0; i < 160; i += 8) word(i, "0");
    for (int i : {8, 16, 24}) word(i, "1");
    parameters += at("%at", 40000) + "st.global.u64 [%out+33032], %at;";
    word(40, "100"), word(48, "100"), word(56, "4");
    word(72 + 8, "1");
    parameters += at("%at", 50000) + "st.global.u64 [%out+33096], %at;";
    word(104, "64"), word(112, "64"), word(120, "5");
    word(128, "7"), word(136, "2"), word(144, "2");
    parameters += "mov.u32 %c, 3; st.global.u32 [%out+33152], %c;";
    const std::string body =
        create_stream(1) + launch("child", "5", "1", 1, "%h1") +  // writes 5 to the first word of 1000
        at("%h2", 2000) + at("%h3", 1000) +
        call("__cudaCDP2MemcpyAsync", {{64, "%h2"}, {64, "%h3"}, {64, "100"}, {32, "3"}, {64, "%h1"}}) +
        launch("child", "6", "1", 1, "%h1") + at("%h2", 3000) +
        call("__cudaCDP2Memcpy2DAsync", {{64, "%h2"},
                                         {64, "50"},
                                         {64, "%h3"},
                                         {64, "30"},
                                         {64, "20"},
                                         {64, "4"},
                                         {32, "4"},
                                         {64, "%h1"}}) +
        at("%h2", 5000) +
        call("__cudaCDP2MemsetAsync", {{64, "%h2"}, {32, "0x1a5"}, {64, "33"}, {64, "%h1"}}) +
        at("%h2", 6000) +
        call("__cudaCDP2Memset2DAsync",
             {{64, "%h2"}, {64, "16"}, {32, "0x77"}, {64, "5"}, {64, "3"}, {64, "%h1"}}) +
        pitched +
        "{ .param .b32 result; .param .align 8 .b8 p0[32]; .param .b32 p1; .param .align 8 .b8 p2[24]; "
        ".param .b64 p3;"
        "ld.global.u64 %h5, [%out+32000]; st.param.b64 [p0], %h5; ld.global.u64 %h5, [%out+32008]; "
        "st.param.b64 "
        "[p0+8], %h5; ld.global.u64 %h5, [%out+32016]; st.param.b64 [p0+16], %h5; ld.global.u64 %h5, "
        "[%out+32024]; "
        "st.param.b64 [p0+24], %h5; st.param.b32 [p1], 0x44; ld.global.u64 %h5, [%out+32032]; st.param.b64 "
        "[p2], %h5; "
        "ld.global.u64 %h5, [%out+32040]; st.param.b64 [p2+8], %h5; ld.global.u64 %h5, [%out+32048]; "
        "st.param.b64 "
        "[p2+16], %h5; st.param.b64 [p3], %h1; call.uni (result), __cudaCDP2Memset3DAsync, (p0, p1, p2, p3); "
        "ld.param.b32 %status, [result]; } add.u32 %failures, %failures, %status;" +
        parameters + at("%h2", 33000) + call("__cudaCDP2Memcpy3DAsync", {{64, "%h2"}, {64, "%h1"}}) +
        "st.global.u32 [%out], %failures;";
    const Module module(module_text(body, "st.global.u32 [%out+1000], %a;"));
    const DeviceMemory out(64 << 10);
    auto* const bytes = out.as<unsigned char>();
    for (unsigned i = 0; i < 64 << 10; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
    std::vector<unsigned char> model(bytes, bytes + (64 << 10));
    REQUIRE(run(module, "parent", 1, 1, out.address(), 7u).outcome == Outcome::Finished);
    CHECK(*out.as<unsigned>() == 0);

    const auto store = [&](std::size_t offset, unsigned value) { std::memcpy(&model[offset], &value, 4); };
    store(1000, 5);
    std::copy_n(&model[1000], 100, &model[2000]);
    store(1000, 6);
    for (unsigned row = 0; row < 4; ++row) std::copy_n(&model[1000 + 30 * row], 20, &model[3000 + 50 * row]);
    std::fill_n(&model[5000], 33, 0xa5);
    for (unsigned row = 0; row < 3; ++row) std::fill_n(&model[6000 + 16 * row], 5, 0x77);
    for (unsigned slice = 0; slice < 2; ++slice)
        for (unsigned row = 0; row < 3; ++row) std::fill_n(&model[40000 + 400 * slice + 100 * row], 7, 0x44);
    for (unsigned slice = 0; slice < 2; ++slice)
        for (unsigned row = 0; row < 2; ++row)
            std::copy_n(&model[40000 + 400 * (slice + 1) + 100 * (row + 1) + 1], 7,
                        &model[50000 + 64 * 5 * slice + 64 * (row + 1)]);
    for (const auto& [from, to] : {std::pair(1000, 4000), std::pair(5000, 32000), std::pair(40000, 64 << 10)})
        CHECK(std::equal(&model[from], &model[to - 1] + 1, bytes + from));
}

// Parameters that NVIDIA's device runtime refuses before it gives anything to a stream.
TEST_CASE("children: what the device runtime refuses, and the error it leaves behind") {
    const auto answer = [](const std::string& body) {
        const Module module(module_text(body + "st.global.u32 [%out], %failures;", kAppend));
        const DeviceMemory out(4096);
        REQUIRE(run(module, "parent", 1, 1, out.address(), 7u).outcome == Outcome::Finished);
        return *out.as<unsigned>();
    };
    const auto copy = [](std::string_view to, std::string_view from, int bytes, int kind) {
        return call("__cudaCDP2MemcpyAsync", {{64, std::string(to)},
                                              {64, std::string(from)},
                                              {64, std::to_string(bytes)},
                                              {32, std::to_string(kind)},
                                              {64, "0"}});
    };
    CHECK(answer(copy("%out", "%out", 4, 3)) == 0);
    CHECK(answer(copy("0", "0", 0, 1)) == 0);  // nothing is asked for
    CHECK(answer(copy("%out", "%out", 4, 1)) == 21);
    CHECK(answer(copy("0", "%out", 4, 3)) == 1);
    CHECK(answer(copy("%out", "0", 4, 3)) == 1);
    CHECK(answer(".local .b8 mine[16]; mov.u64 %at, mine; cvta.local.u64 %at, %at;" +
                 copy("%out", "%at", 4, 3)) == 1);
    CHECK(answer(".shared .b8 ours[16]; mov.u64 %at, ours; cvta.shared.u64 %at, %at;" +
                 copy("%at", "%out", 4, 3)) == 1);
    const auto copy_2d = [](int pitch, int width, int rows) {
        return call("__cudaCDP2Memcpy2DAsync", {{64, "%out"},
                                                {64, std::to_string(pitch)},
                                                {64, "%out"},
                                                {64, "64"},
                                                {64, std::to_string(width)},
                                                {64, std::to_string(rows)},
                                                {32, "3"},
                                                {64, "0"}});
    };
    CHECK(answer(copy_2d(8, 16, 1)) == 0);
    CHECK(answer(copy_2d(8, 16, 2)) == 12);
    CHECK(answer(call("__cudaCDP2MemsetAsync", {{64, "0"}, {32, "0"}, {64, "4"}, {64, "0"}})) == 1);
    // Streams that wait for the block's, events that take the time, and handles of others.
    CHECK(answer(create("Stream", 1, 0)) == 1);
    CHECK(answer(create("Event", 1, 0)) == 1);
    CHECK(answer(create_stream(1) + call("__cudaCDP2StreamDestroy", {{64, "%h1"}})) == 0);
    CHECK(answer(create_stream(1) + call("__cudaCDP2StreamDestroy", {{64, "%h1"}}) +
                 call("__cudaCDP2StreamDestroy", {{64, "%h1"}})) == 400);
    CHECK(answer(create_event(1) + call("__cudaCDP2EventDestroy", {{64, "%h1"}}) + record("%h1", "0")) ==
          400);
    CHECK(answer(create_event(1) + record("%h1", "%out")) == 400);
    // What is forgotten or comes last is not waited for by events, nor waits for any.
    for (const char* stream : {"3", "4"}) {
        CHECK(answer(create_event(1) + record("%h1", stream)) == 1);
        CHECK(answer(create_event(1) + wait(stream, "%h1")) == 1);
    }
    // The last error is the thread's, and asking for it takes it away.
    const std::string last = call("__cudaCDP2GetLastError", {}), peek = call("__cudaCDP2PeekAtLastError", {});
    CHECK(answer(last + peek) == 0);
    CHECK(answer(copy("%out", "%out", 4, 1) + copy("%out", "%out", 4, 3) + peek + last + last) == 3 * 21);
    CHECK(answer(launch("child", "1", "0", 1, "0") + last) == 9);
}

TEST_CASE("children: a copy that runs off its memory fails the grid") {
    const Module module(module_text(
        call("__cudaCDP2MemcpyAsync", {{64, "%out"}, {64, "0x10000"}, {64, "4"}, {32, "3"}, {64, "0"}}),
        kAppend));
    const DeviceMemory out(4096);
    const Result result = run(module, "parent", 1, 1, out.address(), 7u);
    CHECK(result.outcome == Outcome::IllegalAddress);
    CHECK(result.fault_address == 0x10000);
}

TEST_CASE("dynamic parallelism: children of many blocks are all run before the grid has finished") {
    const Module module(module_text(launch("child", "1", "3", 5, "0"), "red.global.add.u32 [%out], %a;"));
    for (unsigned workers : {1u, 3u}) {
        const DeviceMemory out(4);
        *out.as<unsigned>() = 0;
        exec::Launch launch = module.launch("parent", pack(out.address(), 7u));
        launch.grid[0] = 40;
        REQUIRE(run(std::move(launch), workers).outcome == Outcome::Finished);
        CHECK(*out.as<unsigned>() == 40 * 15);
    }
}

TEST_CASE(
    "dynamic parallelism: a child of no shape has no parameter block; one that fails fails its parent") {
    const Module shapeless(module_text(
        launch("child", "1", "0", 1, "0") + launch("child", "2", "1", 1025, "0") + std::string(kAppend),
        std::string(kAppend)));
    CHECK(list_of(shapeless, 1, 1) == std::vector<unsigned>{7});
    const Module failing(module_text(launch("child", "1", "1", 1, "0"), "trap;"));
    const DeviceMemory out(64);
    CHECK(run(failing, "parent", 1, 1, out.address(), 7u).outcome == Outcome::Trap);
    const Module refused(module_text(launch("child", "1", "1", 1, "0"), "wgmma.fence.sync.aligned;"));
    const Result result = run(refused, "parent", 1, 1, out.address(), 7u);
    CHECK(result.outcome == Outcome::NotSupported);
    CHECK(result.message == "wgmma.fence.sync.aligned is not simulated");
}

TEST_CASE("dynamic parallelism: a child that never ends is stopped by its parent's limit") {
    const Module module(module_text(launch("child", "1", "1", 1, "0"), "AGAIN: bra AGAIN;"));
    const DeviceMemory out(64);
    exec::Launch launch = module.launch("parent", pack(out.address(), 7u));
    launch.time_limit_ns = 30'000'000;
    CHECK(run(std::move(launch)).outcome == Outcome::Timeout);
}

}  // namespace
}  // namespace simcuda::testing
