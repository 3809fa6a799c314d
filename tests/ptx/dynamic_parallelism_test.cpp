// Kernels launched by kernels.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

// `name`(kernel, argument, blocks, threads, stream) as nvcc writes a launch.
std::string launch(std::string_view kernel, std::string_view argument, std::string_view blocks, int threads,
                   int stream) {
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
      call.uni (result), __cudaCDP2LaunchDeviceV2, (p0, p1); ld.param.b32 %status, [result]; }}
    add.u32 %failures, %failures, %status;
SKIP{}:)",
                       kernel, blocks, threads, stream * 100 + threads, argument, stream,
                       stream * 100 + threads);
}

std::string module_text(std::string_view parent_body, std::string_view child_body) {
    static constexpr std::string_view kHead = R"({
    .reg .b64 %out, %kernel, %buffer, %at; .reg .b32 %a, %b, %c, %status, %failures; .reg .pred %none, %p;
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

std::vector<unsigned> list_of(const Module& module, unsigned blocks, unsigned workers) {
    const DeviceMemory out(4096);
    std::memset(out.as<char>(), 0, 4096);
    exec::Launch launch = module.launch("parent", pack(out.address(), 7u));
    launch.grid[0] = blocks;
    REQUIRE(run(std::move(launch), workers).outcome == Outcome::Finished);
    const auto* words = out.as<unsigned>();
    return {words + 1, words + 1 + words[0]};
}

TEST_CASE(
    "children: children run after their parent's blocks, in order, each with its own; tail launches come "
    "last") {
    const Module module(module_text(
        "st.global.u32 [%out+400], 0;" + launch("child", "1", "2", 3, 3) + launch("child", "2", "1", 2, 0) +
            launch("child", "10", "1", 1, 4) + std::string(kAppend),
        // A child given 10 launches one given 11.
        std::string(kAppend) + "setp.ne.u32 %p, %a, 10; @%p ret; add.u32 %c, %a, 1;" +
            launch("child", "%c", "1", 1, 5)));
    for (unsigned workers : {1u, 2u})
        CHECK(list_of(module, 1, workers) == std::vector<unsigned>{7, 2, 2, 10, 11, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("dynamic parallelism: children of many blocks are all run before the grid has finished") {
    const Module module(module_text(launch("child", "1", "3", 5, 0), "red.global.add.u32 [%out], %a;"));
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
        launch("child", "1", "0", 1, 0) + launch("child", "2", "1", 1025, 0) + std::string(kAppend),
        std::string(kAppend)));
    CHECK(list_of(shapeless, 1, 1) == std::vector<unsigned>{7});
    const Module failing(module_text(launch("child", "1", "1", 1, 0), "trap;"));
    const DeviceMemory out(64);
    CHECK(run(failing, "parent", 1, 1, out.address(), 7u).outcome == Outcome::Trap);
    const Module refused(module_text(launch("child", "1", "1", 1, 0), "wgmma.fence.sync.aligned;"));
    const Result result = run(refused, "parent", 1, 1, out.address(), 7u);
    CHECK(result.outcome == Outcome::NotSupported);
    CHECK(result.message == "wgmma.fence.sync.aligned is not simulated");
}

TEST_CASE("dynamic parallelism: a child that never ends is stopped by its parent's limit") {
    const Module module(module_text(launch("child", "1", "1", 1, 0), "AGAIN: bra AGAIN;"));
    const DeviceMemory out(64);
    exec::Launch launch = module.launch("parent", pack(out.address(), 7u));
    launch.time_limit_ns = 30'000'000;
    CHECK(run(std::move(launch)).outcome == Outcome::Timeout);
}

}  // namespace
}  // namespace simcuda::testing
