// Branches, calls, recursion, parameters and variables.
#include <doctest/doctest.h>

#include <utility>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

constexpr std::string_view kPtxHead = ".version 8.0\n.target sm_75\n.address_size 64\n";

Module module_of(std::string_view text) {
    return Module(std::string(kPtxHead) + std::string(text));
}

TEST_CASE("control: loops and predicated branches") {
    const Module module = module_of(R"(
.visible .entry collatz(.param .u64 out, .param .u32 n)
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $DONE;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd1, %rd1, %rd2;
    add.u32 %r2, %r2, 1;
    mov.u32 %r5, 0;
$LOOP:
    setp.eq.u32 %p1, %r2, 1;
    @%p1 bra $STORE;
    and.b32 %r6, %r2, 1;
    setp.eq.u32 %p2, %r6, 0;
    @%p2 shr.u32 %r2, %r2, 1;
    @!%p2 mad.lo.u32 %r2, %r2, 3, 1;
    add.u32 %r5, %r5, 1;
    bra.uni $LOOP;
$STORE:
    st.global.u32 [%rd1], %r5;
$DONE:
    ret;
})");
    constexpr std::uint32_t kCount = 1000;
    const DeviceMemory out(kCount * 4);
    REQUIRE(run(module, "collatz", 8, 128, out.address(), kCount).outcome == exec::Outcome::Finished);
    for (std::uint32_t i = 0; i < kCount; ++i) {
        std::uint32_t steps = 0;
        for (std::uint64_t v = i + 1; v != 1; ++steps) v = v % 2 ? 3 * v + 1 : v / 2;
        REQUIRE(out.as<std::uint32_t>()[i] == steps);
    }
}

TEST_CASE("control: indexed branches and labels of the same name in two scopes") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    { .reg .u32 t; .reg .pred q; mov.u32 t, 5; setp.lt.u32 q, %r1, 3; @q bra SKIP; mov.u32 t, 6; SKIP: mov.u32 %r5, t; }
    { .reg .u32 t; .reg .pred q; mov.u32 t, 70; setp.lt.u32 q, %r1, 2; @q bra SKIP; mov.u32 t, 80; SKIP: add.u32 %r5, %r5, t; }
    targets: .branchtargets A, B, C;
    rem.u32 %r2, %r1, 3;
    brx.idx %r2, targets;
A:  add.u32 %r5, %r5, 100; bra OUT;
B:  add.u32 %r5, %r5, 200; bra OUT;
C:  add.u32 %r5, %r5, 300;
OUT:
    st.global.u32 [%rd1], %r5;
    exit;
})");
    const DeviceMemory out(6 * 4);
    REQUIRE(run(module, "k", 1, 6, out.address()).outcome == exec::Outcome::Finished);
    const std::uint32_t wanted[] = {175, 275, 385, 186, 286, 386};
    for (int i = 0; i < 6; ++i) CHECK(out.as<std::uint32_t>()[i] == wanted[i]);
}

TEST_CASE("functions: structures by value, results, recursion") {
    const Module module = module_of(R"(
.func (.param .b64 result) weigh(.param .align 8 .b8 s[24], .param .b32 factor)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .b16 %rs<4>;
    ld.param.v2.f32 {%f1, %f2}, [s];
    ld.param.u64 %rd1, [s+8];
    ld.param.s8 %rs1, [s+16];
    ld.param.u32 %r1, [factor];
    add.f32 %f1, %f1, %f2;
    cvt.rzi.s64.f32 %rd2, %f1;
    cvt.s64.s16 %rd3, %rs1;
    add.s64 %rd1, %rd1, %rd2;
    add.s64 %rd1, %rd1, %rd3;
    cvt.u64.u32 %rd2, %r1;
    mul.lo.s64 %rd1, %rd1, %rd2;
    st.param.b64 [result+0], %rd1;
    ret;
}
.func (.reg .u32 %result) fibonacci(.reg .u32 %n)
{
    .reg .u32 %a, %b; .reg .pred %p;
    setp.lt.u32 %p, %n, 2;
    @%p bra SMALL;
    sub.u32 %a, %n, 1;
    call (%a), fibonacci, (%a);
    sub.u32 %b, %n, 2;
    call (%b), fibonacci, (%b);
    add.u32 %result, %a, %b;
    ret;
SMALL:
    mov.u32 %result, %n;
    ret;
}
.visible .entry k(.param .u64 out, .param .align 8 .b8 s[24])
{
    .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .b32 %f<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd1, %rd1, %rd2;
    {
    .param .align 8 .b8 param0[24];
    .param .b32 param1;
    .param .b64 retval0;
    ld.param.u64 %rd3, [s];
    st.param.b64 [param0], %rd3;
    ld.param.u64 %rd3, [s+8];
    st.param.b64 [param0+8], %rd3;
    ld.param.u64 %rd3, [s+16];
    st.param.b64 [param0+16], %rd3;
    st.param.b32 [param1+0], %r1;
    call.uni (retval0), weigh, (param0, param1);
    ld.param.b64 %rd4, [retval0+0];
    }
    st.global.u64 [%rd1], %rd4;
    call (%r2), fibonacci, (%r1);
    st.global.u32 [%rd1+8], %r2;
    ret;
})");
    struct {
        float x = 2.75f, y = 1.5f;
        long long q = 1000;
        char c = -3;
    } s;
    struct Row {
        long long weight;
        unsigned fibonacci, padding;
    };
    const DeviceMemory out(20 * sizeof(Row));
    REQUIRE(run(module, "k", 1, 20, out.address(), s).outcome == exec::Outcome::Finished);
    unsigned a = 0, b = 1;
    for (int i = 0; i < 20; ++i) {
        CHECK(out.as<Row>()[i].weight == (4 + 1000 - 3) * i);
        CHECK(out.as<Row>()[i].fibonacci == a);
        b = std::exchange(a, b) + b;
    }
}

TEST_CASE("control: calls through tables of functions") {
    const Module module = module_of(R"(
.visible .func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %v; ld.param.b32 %v, [x]; shl.b32 %v, %v, 1; st.param.b32 [r], %v; ret; }
.visible .func (.param .b32 r) next(.param .b32 x) { .reg .b32 %v; ld.param.b32 %v, [x]; add.u32 %v, %v, 1; st.param.b32 [r], %v; ret; }
.global .align 8 .u64 table[2] = {twice, next};
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    and.b32 %r2, %r1, 1;
    mul.wide.u32 %rd2, %r2, 8;
    mov.u64 %rd3, table;
    add.s64 %rd3, %rd3, %rd2;
    ld.global.u64 %rd4, [%rd3];
    { .param .b32 p0; .param .b32 r0;
      st.param.b32 [p0], %r1;
      proto : .callprototype (.param .b32 _) _ (.param .b32 _);
      call (r0), %rd4, (p0), proto;
      ld.param.b32 %r3, [r0]; }
    mov.u64 %rd4, next;
    { .param .b32 p0; .param .b32 r0;
      st.param.b32 [p0], %r3;
      call (r0), %rd4, (p0), proto;
      ld.param.b32 %r3, [r0]; }
    st.global.u32 [%rd1], %r3;
    ret;
})");
    const DeviceMemory out(8 * 4);
    REQUIRE(run(module, "k", 1, 8, out.address()).outcome == exec::Outcome::Finished);
    for (unsigned i = 0; i < 8; ++i) CHECK(out.as<unsigned>()[i] == (i % 2 ? i + 1 : 2 * i) + 1);
}

TEST_CASE("control: three-dimensional grids and blocks number as CUDA does") {
    const Module module = module_of(R"(
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<16>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z;
    mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y;
    mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
    mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r8, %ntid.z;
    mad.lo.u32 %r7, %r3, %r5, %r2; mad.lo.u32 %r7, %r7, %r4, %r1;
    mul.lo.u32 %r9, %r4, %r5; mul.lo.u32 %r9, %r9, %r8;
    mad.lo.u32 %r6, %r6, %r9, %r7;
    mul.wide.u32 %rd2, %r6, 4;
    add.s64 %rd1, %rd1, %rd2;
    mov.u32 %r10, %laneid; mov.u32 %r11, %warpid; shl.b32 %r11, %r11, 8; or.b32 %r10, %r10, %r11;
    st.global.u32 [%rd1], %r10;
    ret;
})");
    constexpr unsigned kThreads = 5 * 3 * 4, kBlocks = 3 * 2 * 2;
    const DeviceMemory out(kThreads * kBlocks * 4);
    exec::Launch launch = module.launch("k", pack(out.address()));
    launch.grid[0] = 3, launch.grid[1] = 2, launch.grid[2] = 2;
    launch.block[0] = 5, launch.block[1] = 3, launch.block[2] = 4;
    REQUIRE(run(std::move(launch), 2).outcome == exec::Outcome::Finished);
    for (unsigned i = 0; i < kThreads * kBlocks; ++i) {
        const unsigned thread = i % kThreads;
        REQUIRE(out.as<unsigned>()[i] == (thread % 32 | thread / 32 << 8));
    }
}

TEST_CASE("control: what a module tells of its kernels and variables") {
    const Module module = module_of(R"(
.const .align 4 .b8 table[16] = {0, 0, 128, 63, 0, 0, 0, 64};
.global .align 4 .u32 seven = 7;
.global .align 8 .u64 pointers[3] = {generic(seven), generic(table)+4, 0};
.global .align 8 .f64 real = 0d3FF8000000000000;
.global .align 4 .f32 matrix[2][2] = {{1.5, -2.0}, {0f40000000, 1}};
.visible .global .attribute(.managed) .align 4 .u32 shared_with_host;
.visible .entry k(.param .u8 a, .param .align 16 .b8 b[20], .param .u16 c, .param .u64 .ptr .global .align 4 d)
.maxntid 96, 2, 1
.minnctapersm 2
{
    .local .align 8 .b8 depot[40];
    .shared .align 16 .b8 buffer[100];
    .shared .align 8 .u64 word;
    .reg .b32 %r<4>; .reg .b64 %l;
    mov.u32 %r1, buffer; mov.u32 %r2, word; mov.u64 %l, depot;
    st.shared.u32 [%r1], %r2; st.local.u32 [%l], %r2;
    ret;
})");
    const ptx::Kernel& kernel = module.kernel("k");
    CHECK(kernel.unsupported.empty());
    CHECK(kernel.max_threads == 192);
    CHECK(kernel.local_bytes == 40);
    CHECK(kernel.static_shared_bytes == 112);
    const std::pair<unsigned, unsigned> wanted[] = {{0, 1}, {16, 20}, {36, 2}, {40, 8}};
    REQUIRE(kernel.parameters.size() == 4);
    for (int i = 0; i < 4; ++i) {
        CHECK(kernel.parameters[static_cast<std::size_t>(i)].offset == wanted[i].first);
        CHECK(kernel.parameters[static_cast<std::size_t>(i)].bytes == wanted[i].second);
    }
    CHECK(kernel.parameter_bytes == 48);
    const auto& variables = module.program().variables();
    REQUIRE(variables.size() == 6);
    CHECK(variables[0].space == ptx::Variable::Space::Constant);
    CHECK(variables[2].relocations.size() == 2);
    CHECK(variables[2].relocations[1].symbol == "table");
    CHECK(variables[2].relocations[1].addend == 4);
    CHECK(variables[2].bytes == 24);
    CHECK(variables[5].managed);
    float matrix[4];
    std::memcpy(matrix, variables[4].initial.data(), sizeof matrix);
    CHECK(matrix[0] == 1.5f);
    CHECK(matrix[1] == -2.0f);
    CHECK(matrix[2] == 2.0f);
    CHECK(matrix[3] == 1.0f);
}

TEST_CASE("control: text that is not PTX is refused with its line") {
    std::string error;
    CHECK(ptx::Program::translate(".version 8.0\nnonsense here", error) == nullptr);
    CHECK(error.find("line 2") != std::string::npos);
    CHECK(ptx::Program::translate(".version 8.0\n.visible .entry k() {\n ret;", error) == nullptr);
    CHECK(error.find("expected '}'") != std::string::npos);
}

TEST_CASE("control: an instruction that cannot be translated is named, and spoils only its own kernels") {
    const Module module = module_of(R"(
.func helper() { .reg .b32 %r; tensormap.replace.tile.rank.b1024.b32 [%r], 1; ret; }
.visible .entry good(.param .u64 out) { .reg .b64 %rd; ld.param.u64 %rd, [out]; st.global.u32 [%rd], 5; ret; }
.visible .entry direct() { wgmma.fence.sync.aligned; ret; }
.visible .entry by_call() { call helper; ret; }
.visible .entry unknown_form() { .reg .b32 %r<9>; frobnicate.u32 {[%r1]}, <%r2>; ret; }
.visible .entry bad_modifier() { .reg .b32 %r<9>; add.wrongly.u32 %r1, %r2, %r3; ret; }
.visible .entry bad_register() { .reg .u32 %r; mov.u32 %r, %not_a_register; ret; }
)");
    const auto why = [&](std::string_view kernel) { return module.kernel(kernel).unsupported; };
    CHECK(why("good").empty());
    CHECK(why("direct") == "wgmma.fence.sync.aligned");
    CHECK(why("by_call") == "tensormap.replace.tile.rank.b1024.b32");
    CHECK(why("unknown_form") == "frobnicate.u32");
    CHECK(why("bad_modifier") == "add.wrongly.u32");
    CHECK(why("bad_register") == "%not_a_register");
    const DeviceMemory out(4);
    CHECK(run(module, "good", 1, 1, out.address()).outcome == exec::Outcome::Finished);
    CHECK(*out.as<unsigned>() == 5);
    const Result refused = run(module, "direct", 1, 1);
    CHECK(refused.outcome == exec::Outcome::NotSupported);
    CHECK(refused.message == "wgmma.fence.sync.aligned is not simulated");
}

}  // namespace
}  // namespace simcuda::testing
