// Barriers, warp operations, and blocks that wait for one another.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

Module module_of(std::string_view text) {
    return Module(".version 8.0\n.target sm_80\n.address_size 64\n" + std::string(text));
}

// Address of this thread's word in %rd1, its index in the block in %r1.
constexpr std::string_view kThreadWord = R"(
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r2, %r2, %r3, %r1; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd1, %rd1, %rd2;
)";

std::string thread_kernel(std::string_view name, std::string_view body) {
    return fmt::format(
        ".visible .entry {}(.param .u64 out)\n{{\n .reg .b64 %rd<9>; .reg .b32 %r<32>; .reg .pred %p<9>; "
        ".reg .b16 "
        "%rs<4>;\n{}{}\n}}\n",
        name, kThreadWord, body);
}

std::vector<unsigned> run_words(const Module& module, std::string_view kernel, unsigned blocks,
                                unsigned threads, unsigned workers = 1) {
    const DeviceMemory out(blocks * threads * 4);
    exec::Launch launch = module.launch(kernel, pack(out.address()));
    launch.grid[0] = blocks;
    launch.block[0] = threads;
    REQUIRE(run(std::move(launch), workers).outcome == Outcome::Finished);
    return {out.as<unsigned>(), out.as<unsigned>() + blocks * threads};
}

TEST_CASE("bar.sync: what was written before it is read after it, round after round") {
    const Module module = module_of(thread_kernel("k", R"(
    .shared .align 4 .b8 buffer[4096];
    mov.u32 %r4, buffer; shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4;
    st.shared.u32 [%r5], %r1;
    add.u32 %r6, %r1, 1; rem.u32 %r6, %r6, %r3; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r4;
    mov.u32 %r7, 0;
LOOP:
    barrier.sync 0;
    ld.shared.u32 %r8, [%r6];
    bar.sync 0;
    st.shared.u32 [%r5], %r8;
    add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, 37;
    @%p1 bra LOOP;
    st.global.u32 [%rd1], %r8;
    ret;)"));
    for (unsigned threads : {1u, 31u, 32u, 33u, 257u, 1024u}) {
        const auto words = run_words(module, "k", 3, threads, 2);
        for (unsigned i = 0; i < words.size(); ++i) REQUIRE(words[i] == (i % threads + 37) % threads);
    }
}

TEST_CASE("threads: threads that have ended are not waited for") {
    const Module module = module_of(thread_kernel("k", R"(
    and.b32 %r4, %r1, 3; setp.eq.u32 %p1, %r4, 0;
    @%p1 ret;
    bar.sync 0;
    st.global.u32 [%rd1], 1;
    bar.sync 0;
    shfl.sync.idx.b32 %r5, %r1, 3, 31, 0xffffffff;
    st.global.u32 [%rd1], %r5;
    ret;)"));
    const auto words = run_words(module, "k", 2, 96);
    for (unsigned i = 0; i < words.size(); ++i)
        CHECK(words[i] == (i % 4 ? i % 96 / 32 * 32 + 3 : 0xa7a7a7a7));
}

TEST_CASE("threads: bar.red counts, and'es and or's the predicates") {
    const Module module = module_of(thread_kernel("k", R"(
    setp.lt.u32 %p1, %r1, 40; setp.lt.u32 %p2, %r1, 1000; setp.gt.u32 %p5, %r1, 1000;
    bar.red.popc.u32 %r4, 0, %p1;
    bar.red.and.pred %p3, 0, %p2;
    bar.red.or.pred %p4, 0, %p1;
    bar.red.and.pred %p6, 1, %p1;
    bar.red.or.pred %p7, 1, %p5;
    bar.red.popc.u32 %r5, 2, !%p1;
    shl.b32 %r5, %r5, 8; or.b32 %r4, %r4, %r5;
    @%p3 or.b32 %r4, %r4, 0x10000; @%p4 or.b32 %r4, %r4, 0x20000; @%p6 or.b32 %r4, %r4, 0x40000; @%p7 or.b32 %r4, %r4, 0x80000;
    st.global.u32 [%rd1], %r4;
    ret;)"));
    for (unsigned word : run_words(module, "k", 1, 100)) CHECK(word == (40 | 60 << 8 | 0x30000));
}

TEST_CASE("named barriers: producers arrive, consumers wait") {
    // Warps 0 and 1 fill, warp 2 reads; barrier 1 says full, barrier 2 says empty.
    const Module module = module_of(thread_kernel("k", R"(
    .shared .align 4 .b8 buffer[256];
    mov.u32 %r4, buffer; shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4; mov.u32 %r6, 0; mov.u32 %r10, 0;
    setp.ge.u32 %p1, %r1, 64;
    @%p1 bra CONSUME;
PRODUCE:
    add.u32 %r7, %r6, %r1; st.shared.u32 [%r5], %r7;
    bar.arrive 1, 96;
    bar.sync 2, 96;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 10; @%p2 bra PRODUCE;
    st.global.u32 [%rd1], 0;
    ret;
CONSUME:
    bar.sync 1, 96;
    ld.shared.u32 %r8, [%r5+-256]; ld.shared.u32 %r9, [%r5+-128]; add.u32 %r10, %r10, %r8; add.u32 %r10, %r10, %r9;
    bar.arrive 2, 96;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 10; @%p2 bra CONSUME;
    st.global.u32 [%rd1], %r10;
    ret;)"));
    const auto words = run_words(module, "k", 1, 96);
    for (unsigned lane = 0; lane < 32; ++lane) CHECK(words[64 + lane] == 10 * (2 * lane + 32) + 2 * 45);
}

TEST_CASE("threads: shuffles against the specification's formula") {
    struct ShuffleMode {
        const char* name;
        int kind;
    };
    for (const ShuffleMode mode :
         {ShuffleMode{"up", 0}, ShuffleMode{"down", 1}, ShuffleMode{"bfly", 2}, ShuffleMode{"idx", 3}})
        for (const unsigned b : {0u, 1u, 5u, 16u, 31u})
            for (const unsigned c : {0u, 31u, 0x1c1fu, 0x1800u, 0x0f07u, 0x101fu}) {
                const Module module = module_of(thread_kernel(
                    "k", fmt::format("mul.lo.u32 %r4, %r1, 7; shfl.sync.{}.b32 %r5|%p1, %r4, {}, {}, -1;"
                                     " @%p1 or.b32 %r5, %r5, 0x10000; st.global.u32 [%rd1], %r5; ret;",
                                     mode.name, b, c)));
                const auto words = run_words(module, "k", 1, 64);
                for (unsigned i = 0; i < 64; ++i) {
                    const int lane = static_cast<int>(i % 32), clamp = c & 31, segment = c >> 8 & 31;
                    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment,
                              by = static_cast<int>(b);
                    int source = 0;
                    bool inside = false;
                    switch (mode.kind) {
                        case 0:
                            source = lane - by, inside = source >= last;
                            break;
                        case 1:
                            source = lane + by, inside = source <= last;
                            break;
                        case 2:
                            source = lane ^ by, inside = source <= last;
                            break;
                        default:
                            source = first | (by & ~segment), inside = source <= last;
                    }
                    if (!inside) source = lane;
                    REQUIRE(words[i] ==
                            ((i / 32 * 32 + static_cast<unsigned>(source)) * 7 | (inside ? 0x10000 : 0)));
                }
            }
}

TEST_CASE("threads: votes, matches and reductions over masks") {
    const Module module = module_of(thread_kernel("votes", R"(
    and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 0; mov.u32 %r5, 0x55555555; @!%p1 mov.u32 %r5, 0xaaaaaaaa;
    setp.lt.u32 %p2, %r1, 9;
    @%p1 bra EVEN;
    vote.sync.ballot.b32 %r6, %p2, %r5; bra JOIN;
EVEN:
    vote.sync.ballot.b32 %r6, !%p2, %r5;
JOIN:
    vote.sync.all.pred %p3, %p2, -1; vote.sync.any.pred %p4, %p2, -1; vote.sync.uni.pred %p5, %p2, -1; vote.sync.all.pred %p6, %p1, %r5; vote.sync.uni.pred %p7, %p1, %r5;
    shr.u32 %r6, %r6, 1;
    @%p3 xor.b32 %r6, %r6, 0x80000000; @%p4 xor.b32 %r6, %r6, 0x40000000; @%p5 xor.b32 %r6, %r6, 0x20000000; @%p6 xor.b32 %r6, %r6, 0x10000000; @%p7 xor.b32 %r6, %r6, 0x08000000;
    st.global.u32 [%rd1], %r6; ret;)") +
                                    thread_kernel("matches", R"(
    rem.u32 %r4, %r1, 3; match.any.sync.b32 %r5, %r4, -1;
    cvt.u64.u32 %rd3, %r4; shl.b64 %rd3, %rd3, 33; match.any.sync.b64 %r6, %rd3, -1;
    setp.ne.u32 %p1, %r5, %r6; @%p1 mov.u32 %r5, 0;
    match.all.sync.b32 %r7|%p2, %r4, %r5; @!%p2 mov.u32 %r5, 0; setp.ne.u32 %p3, %r7, %r6; @%p3 mov.u32 %r5, 0;
    match.all.sync.b32 %r7|%p2, %r4, -1; @%p2 mov.u32 %r5, 0; setp.ne.u32 %p3, %r7, 0; @%p3 mov.u32 %r5, 0;
    st.global.u32 [%rd1], %r5; ret;)") +
                                    thread_kernel("reductions", R"(
    sub.u32 %r4, %r1, 5; mov.u32 %r5, 0x0000ffff; setp.lt.u32 %p1, %r1, 16; @!%p1 mov.u32 %r5, 0xffff0000;
    redux.sync.add.s32 %r6, %r4, %r5; redux.sync.min.s32 %r7, %r4, %r5; redux.sync.max.u32 %r8, %r4, %r5; redux.sync.min.u32 %r9, %r4, %r5; redux.sync.max.s32 %r10, %r4, %r5;
    redux.sync.and.b32 %r11, %r4, %r5; redux.sync.or.b32 %r12, %r4, %r5; redux.sync.xor.b32 %r13, %r4, %r5;
    mad.lo.u32 %r6, %r6, 31, %r7; mad.lo.u32 %r6, %r6, 31, %r8; mad.lo.u32 %r6, %r6, 31, %r9; mad.lo.u32 %r6, %r6, 31, %r10; mad.lo.u32 %r6, %r6, 31, %r11; mad.lo.u32 %r6, %r6, 31, %r12; mad.lo.u32 %r6, %r6, 31, %r13;
    st.global.u32 [%rd1], %r6; ret;)"));
    const auto votes = run_words(module, "votes", 1, 32);
    for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned ballot = lane % 2 ? 0x1ffu & 0xaaaaaaaau : ~0x1ffu & 0x55555555u;
        CHECK(votes[lane] == (ballot >> 1 ^ 0x40000000u ^ (lane % 2 ? 0u : 0x10000000u) ^ 0x08000000u));
    }
    const auto matches = run_words(module, "matches", 1, 32);
    for (unsigned lane = 0; lane < 32; ++lane) {
        unsigned equal = 0;
        for (unsigned other = 0; other < 32; ++other) equal |= (other % 3 == lane % 3 ? 1u : 0u) << other;
        CHECK(matches[lane] == equal);
    }
    const auto reductions = run_words(module, "reductions", 1, 32);
    for (unsigned half = 0; half < 2; ++half) {
        unsigned sum = 0, low = ~0u, high = 0, all = ~0u, any = 0, odd = 0;
        int least = INT32_MAX, most = INT32_MIN;
        for (unsigned lane = 16 * half; lane < 16 * half + 16; ++lane) {
            const unsigned v = lane - 5;
            sum += v, low = std::min(low, v), high = std::max(high, v), all &= v, any |= v, odd ^= v;
            least = std::min(least, static_cast<int>(v)), most = std::max(most, static_cast<int>(v));
        }
        unsigned wanted = sum;
        for (unsigned v :
             {static_cast<unsigned>(least), high, low, static_cast<unsigned>(most), all, any, odd})
            wanted = wanted * 31 + v;
        for (unsigned lane = 16 * half; lane < 16 * half + 16; ++lane) CHECK(reductions[lane] == wanted);
    }
}

// As numba's test_match_all_sync has it, which NVIDIA's GPUs pass.
TEST_CASE("threads: a match of all is one of those that are there") {
    const Module module = module_of(thread_kernel("k", R"(
    setp.eq.u32 %p1, %r1, 7; @%p1 ret;
    match.all.sync.b32 %r5|%p2, %r3, -1; @!%p2 mov.u32 %r5, 0;
    st.global.u32 [%rd1], %r5; ret;)"));
    const auto words = run_words(module, "k", 1, 10);
    for (unsigned i = 0; i < 10; ++i) CHECK(words[i] == (i == 7 ? 0xa7a7a7a7 : 0x37fu));
}

TEST_CASE("a warp's own barrier: what its lanes wrote before it the others read after it") {
    const Module module = module_of(thread_kernel("k", R"(
    .shared .align 4 .b8 buffer[512];
    mov.u32 %r4, buffer; shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4; xor.b32 %r6, %r1, 21; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r4;
    and.b32 %r7, %r1, 16; setp.ne.u32 %p1, %r7, 0;
    mul.lo.u32 %r8, %r1, 7; st.shared.u32 [%r5], %r8; membar.cta;
    @%p1 bra HIGH;
    bar.warp.sync 0xffff; bra JOIN;
HIGH: bar.warp.sync 0xffff0000;
JOIN: bar.warp.sync 0xffffffff;
    ld.shared.u32 %r9, [%r6];
    and.b32 %r10, %r1, 1; setp.eq.u32 %p2, %r10, 0; vote.ballot.sync.b32 %r11, %p2, 0xffffffff;
    setp.eq.u32 %p3, %r11, 0x55555555; selp.u32 %r9, %r9, 0, %p3;
    setp.eq.u32 %p4, %r1, 64; vote.any.pred %p5, %p4; @%p5 add.u32 %r9, %r9, 1000;
    membar.sys; fence.sc.cta;
    prefetch.global.L2 [%rd1]; nanosleep.u32 100;
    st.global.u32 [%rd1], %r9; ret;)"));
    const auto words = run_words(module, "k", 2, 128);
    for (unsigned i = 0; i < words.size(); ++i)
        CHECK(words[i] == (i % 128 ^ 21) * 7 + (i % 128 / 32 == 2 ? 1000 : 0));
}

TEST_CASE("threads: activemask holds those that came the same way") {
    const Module module = module_of(thread_kernel("k", R"(
    and.b32 %r4, %r1, 31; setp.lt.u32 %p1, %r4, 10;
    @%p1 bra FEW;
    activemask.b32 %r5; bra JOIN;
FEW:
    activemask.b32 %r5;
JOIN:
    activemask.b32 %r6;
    setp.ne.u32 %p2, %r6, -1; @%p2 mov.u32 %r5, 0;
    st.global.u32 [%rd1], %r5; ret;)"));
    const auto words = run_words(module, "k", 1, 64);
    for (unsigned i = 0; i < 64; ++i) CHECK(words[i] == (i % 32 < 10 ? 0x3ffu : ~0x3ffu));
}

TEST_CASE(
    "threads: volatile shared memory within a warp needs no barrier, as on hardware that runs warps in "
    "step") {
    const Module module = module_of(thread_kernel("k", R"(
    .shared .align 4 .b8 buffer[256];
    mov.u32 %r4, buffer; shl.b32 %r5, %r1, 2; add.u32 %r4, %r4, %r5;
    st.volatile.shared.u32 [%r4], %r1; st.volatile.shared.u32 [%r4+128], 0;
    ld.volatile.shared.u32 %r6, [%r4+64]; ld.volatile.shared.u32 %r7, [%r4]; add.u32 %r7, %r7, %r6; st.volatile.shared.u32 [%r4], %r7;
    ld.volatile.shared.u32 %r6, [%r4+32]; add.u32 %r7, %r7, %r6; st.volatile.shared.u32 [%r4], %r7;
    ld.volatile.shared.u32 %r6, [%r4+16]; add.u32 %r7, %r7, %r6; st.volatile.shared.u32 [%r4], %r7;
    ld.volatile.shared.u32 %r6, [%r4+8]; add.u32 %r7, %r7, %r6; st.volatile.shared.u32 [%r4], %r7;
    ld.volatile.shared.u32 %r6, [%r4+4]; add.u32 %r7, %r7, %r6; st.volatile.shared.u32 [%r4], %r7;
    st.global.u32 [%rd1], %r7; ret;)"));
    CHECK(run_words(module, "k", 1, 32)[0] == 31 * 32 / 2);
}

// A lock in global memory, taken by every thread of every block.
constexpr std::string_view kLock = R"(
.global .align 4 .u32 lock = 0;
.global .align 4 .u32 total = 0;
.visible .entry locked()
{
    .reg .b32 %r<9>; .reg .pred %p;
AGAIN:
    atom.global.cas.b32 %r1, [lock], 0, 1; setp.ne.u32 %p, %r1, 0;
    @%p bra AGAIN;
    ld.volatile.global.u32 %r2, [total]; add.u32 %r2, %r2, 1; st.volatile.global.u32 [total], %r2;
    membar.gl;
    atom.global.exch.b32 %r1, [lock], 0;
    ret;
}
)";

TEST_CASE("threads: spin locks between threads, warps and blocks") {
    const Module module = module_of(kLock);
    for (unsigned workers : {1u, 2u}) {
        exec::Launch launch = module.launch("locked", {});
        launch.grid[0] = 50;
        launch.block[0] = 70;
        std::memset(to_host(module.variable("total")), 0, 4);
        REQUIRE(run(std::move(launch), workers).outcome == Outcome::Finished);
        CHECK(*static_cast<unsigned*>(to_host(module.variable("total"))) == 50 * 70);
    }
}

TEST_CASE("threads: blocks that wait for earlier and for later ones") {
    const Module module = module_of(R"(
.visible .entry look_back(.param .u64 flags)
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [flags];
    mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
    setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
    @%p1 bra MINE;
WAIT:
    ld.acquire.gpu.global.u32 %r2, [%rd2+-4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
MINE:
    add.u32 %r2, %r2, 1; st.release.gpu.global.u32 [%rd2], %r2;
    ret;
}
.visible .entry look_ahead(.param .u64 flags)
{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [flags];
    mov.u32 %r1, %ctaid.x; mov.u32 %r3, %nctaid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
    add.u32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, %r3; mov.u32 %r2, 0;
    @%p1 bra MINE;
WAIT:
    ld.relaxed.gpu.global.u32 %r2, [%rd2+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
MINE:
    add.u32 %r2, %r2, 1; st.relaxed.gpu.global.u32 [%rd2], %r2;
    ret;
}
.visible .entry grid_barrier(.param .u64 flags)
{
    .reg .b64 %rd<9>; .reg .b32 %r<12>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [flags];
    mov.u32 %r1, %ctaid.x; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %tid.x; mov.u32 %r9, 0; mul.lo.u32 %r8, %r3, 1;
ROUND:
    bar.sync 0;
    setp.ne.u32 %p1, %r4, 0; @%p1 bra JOIN;
    atom.global.add.u32 %r5, [%rd1], 1;
SPIN:
    ld.volatile.global.u32 %r6, [%rd1]; setp.lt.u32 %p2, %r6, %r8; @%p2 bra SPIN;
JOIN:
    bar.sync 0;
    add.u32 %r8, %r8, %r3; add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 5; @%p3 bra ROUND;
    ret;
})");
    constexpr unsigned kBlocks = 60;
    for (unsigned workers : {1u, 2u})
        for (const char* kernel : {"look_back", "look_ahead"}) {
            const DeviceMemory flags(kBlocks * 4);
            std::memset(flags.as<char>(), 0, kBlocks * 4);
            exec::Launch launch = module.launch(kernel, pack(flags.address()));
            launch.grid[0] = kBlocks;
            REQUIRE(run(std::move(launch), workers).outcome == Outcome::Finished);
            for (unsigned i = 0; i < kBlocks; ++i)
                CHECK(flags.as<unsigned>()[i] == (kernel[5] == 'b' ? i + 1 : kBlocks - i));
        }
    for (unsigned workers : {1u, 2u}) {
        const DeviceMemory counter(4);
        *counter.as<unsigned>() = 0;
        exec::Launch launch = module.launch("grid_barrier", pack(counter.address()));
        launch.grid[0] = kBlocks;
        launch.block[0] = 64;
        launch.cooperative = true;
        REQUIRE(run(std::move(launch), workers).outcome == Outcome::Finished);
        CHECK(*counter.as<unsigned>() == 5 * kBlocks);
    }
}

TEST_CASE(
    "threads: exit inside a function ends the thread; lanes named in a mask that never come do not hang the "
    "warp") {
    const Module module = module_of(
        ".func leave_if(.param .b32 c) { .reg .b32 %r; .reg .pred %p; ld.param.b32 %r, [c]; setp.ne.u32 %p, "
        "%r, 0; @%p exit; ret; }\n" +
        thread_kernel("k", R"(
    and.b32 %r4, %r1, 1;
    { .param .b32 p; st.param.b32 [p], %r4; call leave_if, (p); }
    st.global.u32 [%rd1], 5; ret;)") +
        thread_kernel("partial", R"(
    setp.ge.u32 %p1, %r1, 16; @%p1 bra OTHER;
    shfl.sync.down.b32 %r4, %r1, 1, 31, -1;
    st.global.u32 [%rd1], %r4;
OTHER:
    bar.sync 0;
    ret;)"));
    const auto words = run_words(module, "k", 1, 40);
    for (unsigned i = 0; i < 40; ++i) CHECK(words[i] == (i % 2 ? 0xa7a7a7a7 : 5));
    const auto partial = run_words(module, "partial", 1, 32);
    for (unsigned i = 0; i < 15; ++i) CHECK(partial[i] == i + 1);
}

}  // namespace
}  // namespace simcuda::testing
