// What a thread in steps keeps where it waits. Each kernel runs as it is and with local memory, which gives
// its threads stacks: both must give the same.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "tests/ptx/device.h"
#include "tools/simcuda/ptx/native.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;
using Mode = ptx::NativeKernel::Mode;

// `body` gets its thread's number in %r1 and leaves a result in %rd9.
std::string kernel_text(const std::string& body, bool with_stacks) {
    return fmt::format(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .b64 %rd<32>; .reg .b32 %r<64>; .reg .b16 %rs<8>; .reg .f32 %f<32>; .reg .f64 %fd<8>; .reg .pred %p<16>;
    {}
    mov.u32 %r1, %tid.x; mov.u64 %rd9, 0;
{}
    ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd1, %rd1, %rd2; st.global.u64 [%rd1], %rd9;
    ret;
}})",
                       with_stacks ? ".local .align 4 .b8 stack[4];" : "", body);
}

std::vector<std::uint64_t> results(const std::string& body, bool with_stacks, unsigned threads) {
    const Module module(kernel_text(body, with_stacks));
    const auto* native = static_cast<const ptx::NativeKernel*>(module.kernel("k").code);
    CHECK(native->mode == (with_stacks ? Mode::Fibers : Mode::Steps));
    const DeviceMemory out(threads * 8);
    REQUIRE(run(module, "k", 1, threads, out.address()).outcome == Outcome::Finished);
    return {out.as<std::uint64_t>(), out.as<std::uint64_t>() + threads};
}

void check_alike(const std::string& body) {
    for (const unsigned threads : {1u, 31u, 32u, 100u, 1024u})
        CHECK(results(body, false, threads) == results(body, true, threads));
}

TEST_CASE("steps: registers of all kinds, and the carry, over a barrier") {
    const std::string body = R"(
    cvt.rn.f32.u32 %f1, %r1; cvt.rn.f64.u32 %fd1, %r1; cvt.u16.u32 %rs1, %r1; mul.wide.u32 %rd3, %r1, 0x12345679;
    setp.gt.u32 %p1, %r1, 16; not.b32 %r2, %r1; add.cc.u32 %r3, %r2, 17;
    mov.b64 %rd4, {%r1, %r2};
    bar.sync 0;
    addc.u32 %r4, %r1, 0;
    selp.u32 %r5, 3, 5, %p1; cvt.u32.u16 %r6, %rs1; mov.b32 %r7, %f1; mov.b64 %rd5, %fd1;
    mov.b64 {%r8, %r9}, %rd4; mad.lo.u32 %r10, %r4, %r5, %r6; xor.b32 %r10, %r10, %r7; add.u32 %r10, %r10, %r9;
    cvt.u64.u32 %rd9, %r10; xor.b64 %rd9, %rd9, %rd3; add.s64 %rd9, %rd9, %rd5;)";
    check_alike(body);
    const auto words = results(body, false, 64);
    CHECK(words[0] != words[1]);
    CHECK(words[63] != words[31]);
}

TEST_CASE("steps: what is written under a predicate is kept from before") {
    check_alike(R"(
    mov.u32 %r2, 7; setp.eq.u32 %p1, %r1, 3; setp.lt.u32 %p2, %r1, 20;
    bar.sync 0;
    @%p1 mov.u32 %r2, 9;
    @%p2 shfl.sync.bfly.b32 %r3|%p3, %r2, 1, 31, 0xfffff;
    @!%p2 mov.u32 %r3, %r1;
    bar.sync 0;
    mad.lo.u32 %r4, %r2, 100, %r3; cvt.u64.u32 %rd9, %r4;)");
}

TEST_CASE("steps: loops and tables of branches around barriers") {
    check_alike(R"(
    mov.u32 %r2, 0; mov.u32 %r3, %r1;
LOOP:
    and.b32 %r4, %r2, 3;
    brx.idx %r4, TABLE;
TABLE: .branchtargets A, B, C, A;
A:  mad.lo.u32 %r3, %r3, 5, 1; bra MEET;
B:  bar.sync 0; xor.b32 %r3, %r3, %r2; bra MEET;
C:  bar.sync 0; bar.sync 0; sub.u32 %r3, %r3, %r1;
MEET:
    bar.sync 0;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 21;
    @%p1 bra LOOP;
    cvt.u64.u32 %rd9, %r3;)");
}

TEST_CASE("steps: lanes of a warp at different operations, joins and barriers, some of them gone") {
    check_alike(R"(
    and.b32 %r2, %r1, 7; setp.eq.u32 %p1, %r2, 5; mov.u32 %r3, %r1;
    ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd1, %rd1, %rd2; st.global.u64 [%rd1], %rd9;
    @%p1 ret;
    and.b32 %r4, %r1, 1; setp.ne.u32 %p2, %r4, 0;
    @%p2 bra ODD;
    shfl.sync.down.b32 %r3, %r1, 2, 31, 0x55555555;
    vote.sync.ballot.b32 %r5, %p1, 0x55555555;
    bra JOIN;
ODD:
    match.any.sync.b32 %r5, %r2, 0xaaaaaaaa;
    vote.sync.uni.pred %p3, %p2, 0xaaaaaaaa; selp.u32 %r6, 1, 2, %p3; add.u32 %r3, %r3, %r6;
JOIN:
    activemask.b32 %r7;
    bar.sync 0;
    vote.sync.all.pred %p4, %p2, 0xffffffff; vote.sync.any.pred %p5, %p2, 0xffffffff; vote.sync.uni.pred %p6, %p2, 0xffffffff;
    selp.u32 %r8, 1, 0, %p4; selp.u32 %r9, 2, 0, %p5; selp.u32 %r10, 4, 0, %p6;
    add.u32 %r8, %r8, %r9; add.u32 %r8, %r8, %r10;
    redux.sync.add.u32 %r11, %r3, 0xffffffff;
    mov.b64 %rd9, {%r11, %r7}; cvt.u64.u32 %rd3, %r5; shl.b64 %rd3, %rd3, 13; xor.b64 %rd9, %rd9, %rd3;
    cvt.u64.u32 %rd4, %r8; shl.b64 %rd4, %rd4, 60; xor.b64 %rd9, %rd9, %rd4;)");
}

TEST_CASE("steps: more stops in a kernel than get code of their own") {
    std::string body = "    mov.u32 %r2, %r1;\n";
    for (unsigned i = 0; i < 120; ++i)
        body += fmt::format(
            "    mad.lo.u32 %r2, %r2, 5, {0}; shfl.sync.idx.b32 %r3, %r2, {0}, 31, 0xffffffff; "
            "xor.b32 %r2, %r2, %r3; bar.sync 0;\n",
            i);
    check_alike(body + "    cvt.u64.u32 %rd9, %r2;");
}

}  // namespace
}  // namespace simcuda::testing
