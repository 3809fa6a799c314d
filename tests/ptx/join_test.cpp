// The threads of a warp meet again where paths join, as programs take it that they do; and none waits there
// for one that waits for it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/ptx/device.h"
#include "tools/simcuda/ptx/joins.h"
#include "tools/simcuda/ptx/parser.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

std::string kernel(std::string_view body) {
    return fmt::format(R"(
.visible .entry k(.param .u64 out)
{{
    .reg .b64 %rd<9>; .reg .b32 %r<40>; .reg .pred %p<9>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2; mov.u32 %r2, %laneid;
{}
    ret;
}}
)",
                       body);
}

std::string module_text(const std::string& text) {
    return ".version 8.0\n.target sm_80\n.address_size 64\n" + text;
}

// Runs kernel k; thread i stores to word i.
std::vector<unsigned> words_of(const std::string& text, unsigned threads, unsigned blocks = 1) {
    const Module module(module_text(text));
    const DeviceMemory out(threads * 4);
    std::memset(out.as<char>(), 0, threads * 4);
    exec::Launch launch = module.launch("k", pack(out.address()));
    launch.grid[0] = blocks;
    launch.block[0] = threads;
    launch.time_limit_ns = 60'000'000'000;
    REQUIRE(run(std::move(launch)).outcome == Outcome::Finished);
    return {out.as<unsigned>(), out.as<unsigned>() + threads};
}

// Lane l goes round l + 1 times. Those that have left wait behind the loop, so that what the others exchange
// is theirs, and what is exchanged behind it is everybody's.
TEST_CASE("join: a loop that lanes leave one by one, and shuffles that name them all") {
    const auto words = words_of(kernel(R"(
    mov.u32 %r3, 0; mov.u32 %r4, 0;
LOOP:
    mad.lo.u32 %r5, %r2, 100, %r3;
    shfl.sync.idx.b32 %r6, %r5, 31, 31, -1; add.u32 %r4, %r4, %r6;
    setp.lt.u32 %p1, %r3, %r2; add.u32 %r3, %r3, 1; @%p1 bra LOOP;
    shfl.sync.bfly.b32 %r7, %r4, 1, 31, -1; mad.lo.u32 %r4, %r7, 7, %r4;
    st.global.u32 [%rd2], %r4;)"),
                                64);
    const auto sum = [](unsigned lane) { return (lane + 1) * 3100 + lane * (lane + 1) / 2; };
    for (unsigned i = 0; i < 64; ++i) CHECK(words[i] == sum(i % 32 ^ 1) * 7 + sum(i % 32));
}

// A neighbour list: candidates that fail the test are passed over; each that passes gets its place by a vote.
TEST_CASE("join: lanes that pass over a vote wait for those that take part before the next round") {
    const auto words = words_of(kernel(R"(
    .shared .align 4 .u32 count;
    setp.ne.u32 %p1, %r1, 0; @!%p1 st.shared.u32 [count], 0; bar.sync 0;
    mov.u32 %r3, 0; mov.u32 %r10, 0; shr.u32 %r12, %r1, 5;
ROUND:
    add.u32 %r4, %r3, %r2; and.b32 %r5, %r4, 3; setp.eq.u32 %p2, %r5, 0; @%p2 bra NEXT;
    activemask.b32 %r6;
    vote.sync.ballot.b32 %r7, 1, -1;
    setp.eq.u32 %p3, %r6, %r7; @%p3 add.u32 %r10, %r10, 1;
    popc.b32 %r8, %r7; setp.eq.u32 %p4, %r8, 24; @%p4 add.u32 %r10, %r10, 100;
NEXT:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p5, %r3, 20; @%p5 bra ROUND;
    st.global.u32 [%rd2], %r10;)"),
                                96);
    for (const unsigned word : words) CHECK(word == 15 * 101);
}

TEST_CASE("join: branches in branches in a loop, each with those that came the same way") {
    const auto words = words_of(kernel(R"(
    mov.u32 %r3, 0; mov.u32 %r10, 0;
ROUND:
    and.b32 %r4, %r2, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra EVEN;
    activemask.b32 %r5; and.b32 %r6, %r2, 2; setp.eq.u32 %p2, %r6, 0; @%p2 bra JOIN_ODD;
    activemask.b32 %r7; xor.b32 %r10, %r10, %r7;
JOIN_ODD:
    activemask.b32 %r8; setp.eq.u32 %p3, %r5, %r8; @%p3 add.u32 %r10, %r10, 1; bra JOIN;
EVEN:
    activemask.b32 %r5; setp.eq.u32 %p3, %r5, 0x55555555; @%p3 add.u32 %r10, %r10, 1;
JOIN:
    activemask.b32 %r9; setp.eq.u32 %p4, %r9, -1; @%p4 add.u32 %r10, %r10, 0x100;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p5, %r3, 10; @%p5 bra ROUND;
    st.global.u32 [%rd2], %r10;)"),
                                64);
    for (unsigned i = 0; i < 64; ++i) {
        unsigned wanted = 0;
        for (int round = 0; round < 10; ++round) {
            if (i % 4 == 3) wanted ^= 0x88888888;
            wanted += 0x101;
        }
        CHECK(words[i] == wanted);
    }
}

TEST_CASE("join: a function that lanes leave early") {
    const auto words = words_of(R"(
.func (.param .b32 r) part(.param .b32 n)
{
    .reg .b32 %r<9>; .reg .pred %p<3>;
    ld.param.b32 %r1, [n]; setp.lt.u32 %p1, %r1, 10; @%p1 bra FEW;
    vote.sync.ballot.b32 %r2, 1, -1; st.param.b32 [r], %r2; ret;
FEW:
    st.param.b32 [r], 5; ret;
}
)" + kernel(R"(
    { .param .b32 n; .param .b32 r; st.param.b32 [n], %r2; call (r), part, (n); ld.param.b32 %r3, [r]; }
    vote.sync.ballot.b32 %r4, 1, -1; setp.eq.u32 %p1, %r4, -1; @!%p1 mov.u32 %r3, 0;
    st.global.u32 [%rd2], %r3;)"),
                                64);
    for (unsigned i = 0; i < 64; ++i) CHECK(words[i] == (i % 32 < 10 ? 5 : 0xfffffc00));
}

// The lane that has the lock waits for the others behind the loop in which they wait for it.
TEST_CASE("join: a lock that lanes of a warp take one by one is passed on") {
    const auto words =
        words_of(".global .align 4 .u32 lock = 0; .global .align 4 .u32 total = 0;\n" + kernel(R"(
AGAIN:
    atom.global.cas.b32 %r3, [lock], 0, 1; setp.ne.u32 %p1, %r3, 0; vote.sync.any.pred %p2, 1, %r1; @%p1 bra AGAIN;
    ld.volatile.global.u32 %r4, [total]; add.u32 %r4, %r4, 1; st.volatile.global.u32 [total], %r4;
    membar.gl; atom.global.exch.b32 %r3, [lock], 0;
    st.global.u32 [%rd2], 1;
    bar.warp.sync -1; bar.sync 0; ld.volatile.global.u32 %r4, [total]; st.global.u32 [%rd2], %r4;)"),
                 64);
    for (const unsigned word : words) CHECK(word == 64);
}

TEST_CASE("join: a lane that waits in a loop for one that waits where paths join") {
    const auto words = words_of(kernel(R"(
    .shared .align 4 .u32 flag; st.shared.u32 [flag], 0; bar.sync 0;
    setp.ne.u32 %p1, %r2, 0; @%p1 bra JOIN;
    activemask.b32 %r3;
WAIT:
    ld.relaxed.cta.shared.u32 %r4, [flag]; setp.eq.u32 %p2, %r4, 0; @%p2 bra WAIT;
    activemask.b32 %r3;
JOIN:
    setp.eq.u32 %p3, %r2, 7; @%p3 st.relaxed.cta.shared.u32 [flag], 1;
    st.global.u32 [%rd2], 9;)"),
                                64);
    for (const unsigned word : words) CHECK(word == 9);
}

TEST_CASE("join: barriers of a block that lanes come to on different ways") {
    const auto words = words_of(kernel(R"(
    setp.lt.u32 %p1, %r2, 16; @!%p1 bra LATE;
    activemask.b32 %r3; bar.sync 0; bra JOIN;
LATE:
    activemask.b32 %r3;
JOIN:
    @!%p1 bar.sync 0;
    st.global.u32 [%rd2], %r3;)"),
                                64);
    for (unsigned i = 0; i < 64; ++i) CHECK(words[i] == (i % 32 < 16 ? 0xffff : 0xffff0000));
}

// What a launch of the kernel pays for.
TEST_CASE("join: only branches around what a warp does together have one") {
    const auto joins_in = [](const std::string& body) {
        const auto module = ptx::Parser::parse(module_text(kernel(body)));
        const ptx::Function& function = *module->functions.back();
        const auto joins =
            ptx::joins_of(function, [](const ptx::Instruction& i) { return i.opcode == "shfl"; });
        return std::count(joins.before.begin(), joins.before.end(), true);
    };
    const std::string loop = R"(
    mov.u32 %r3, 0;
LOOP:
    setp.eq.u32 %p2, %r3, %r2; @%p2 bra SKIP;
    $
SKIP:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r2; @%p1 bra LOOP;
    #
)";
    const std::string shuffle = "shfl.sync.bfly.b32 %r4, %r4, 1, 31, -1;";
    const auto with = [&](const std::string& inside, const std::string& behind) {
        std::string text = loop;
        text.replace(text.find('$'), 1, inside);
        return text.replace(text.find('#'), 1, behind);
    };
    CHECK(joins_in(with("add.u32 %r4, %r4, 1;", "bar.sync 0;")) == 0);
    CHECK(joins_in(with("add.u32 %r4, %r4, 1;", shuffle)) == 0);
    CHECK(joins_in(with(shuffle, "")) == 1);       // before the next round; behind the loop nothing follows
    CHECK(joins_in(with(shuffle, shuffle)) == 2);  // and behind the loop
    CHECK(joins_in("setp.gt.u32 %p1, %r2, 9; @%p1 ret; " + shuffle) == 0);
    CHECK(joins_in("setp.gt.u32 %p1, %r2, 9; @%p1 bra.uni OVER; " + shuffle + "\nOVER:\n" + shuffle) == 0);
    CHECK(joins_in("setp.gt.u32 %p1, %r2, 9; @%p1 bra OVER; " + shuffle + "\nOVER:\n" + shuffle) == 1);
    CHECK(joins_in("FOR_EVER:\n setp.gt.u32 %p1, %r2, 9; @%p1 bra FOR_EVER; " + shuffle + " bra FOR_EVER;") ==
          0);
}

}  // namespace
}  // namespace simcuda::testing
