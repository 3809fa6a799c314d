// Asynchronous copies into shared memory, and barriers there.
#include <doctest/doctest.h>

#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

TEST_CASE("cp.async: all sizes, short sources padded with zeros, ignored ones all zeros") {
    const Module module(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 from, .param .u64 to)
{
    .shared .align 16 .b8 buffer[96];
    .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<3>; .reg .b64 policy;
    ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; mov.u32 %r1, buffer; mov.u32 %r2, 5;
    cp.async.cg.shared.global [%r1], [%rd1], 16;
    cp.async.ca.shared.global [buffer+16], [%rd1+16], 4;
    cp.async.ca.shared.global.L2::128B [buffer+20], [%rd1+20], 4;
    cp.async.ca.shared.global [buffer+24], [%rd1+24], 8;
    cp.async.cg.shared.global [buffer+32], [%rd1+32], 16, %r2;
    cp.async.commit_group;
    setp.eq.u32 %p1, %r2, 5; setp.eq.u32 %p2, %r2, 6;
    cp.async.cg.shared.global [buffer+48], [%rd1+48], 16, %p1;
    cp.async.cg.shared.global [buffer+64], [%rd1+64], 16, %p2;
    createpolicy.fractional.L2::evict_first.b64 policy, 0f3F800000;
    cp.async.cg.shared.global.L2::cache_hint [buffer+80], [%rd1+80], 16, policy;
    cp.async.commit_group;
    cp.async.wait_group 1;
    cp.async.wait_all;
    mov.u32 %r3, 0;
NEXT:
    add.u32 %r4, %r1, %r3; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r4]; st.global.v4.u32 [%rd2], {%r4, %r5, %r6, %r7};
    add.u64 %rd2, %rd2, 16; add.u32 %r3, %r3, 16; setp.lt.u32 %p1, %r3, 96; @%p1 bra NEXT;
    ret;
})");
    const DeviceMemory from(96), to(96);
    for (int i = 0; i < 96; ++i) from.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i + 1);
    REQUIRE(run(module, "k", 1, 1, from.address(), to.address()).outcome == Outcome::Finished);
    for (int i = 0; i < 96; ++i) {
        const bool zero = (i >= 37 && i < 48) || (i >= 48 && i < 64);
        CHECK(to.as<std::uint8_t>()[i] == (zero ? 0 : i + 1));
    }
}

TEST_CASE("async: cp.async from what is not mapped is a fault") {
    const Module module(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 from)
{
    .shared .align 16 .b8 buffer[16]; .reg .b64 %rd1;
    ld.param.u64 %rd1, [from]; cp.async.cg.shared.global [buffer], [%rd1], 16; cp.async.wait_all; ret;
})");
    const DeviceMemory memory(0x10000);
    CHECK(run(module, "k", 1, 1, memory.address() + 0x10000).outcome == Outcome::IllegalAddress);
}

// Producers fill a slot and arrive; consumers wait for the phase, read, and arrive at the other barrier.
TEST_CASE("mbarrier: phases between producers and consumers") {
    const Module module(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 8 .b64 full; .shared .align 8 .b64 empty; .shared .align 4 .b8 slot[128];
    .reg .b64 %rd<6>; .reg .b32 %r<12>; .reg .pred %p<6>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [full], 32; mbarrier.init.shared::cta.b64 [empty], 32;
READY:
    bar.sync 0;
    and.b32 %r2, %r1, 31; shl.b32 %r3, %r2, 2; mov.u32 %r4, slot; add.u32 %r3, %r3, %r4;
    mov.u32 %r5, 0; mov.u32 %r6, 0; setp.ge.u32 %p2, %r1, 32;
    @%p2 bra CONSUME;
PRODUCE:
    mad.lo.u32 %r7, %r5, 100, %r2; st.shared.u32 [%r3], %r7;
    mbarrier.arrive.shared.b64 _, [full];
    and.b32 %r8, %r5, 1;
FULL:
    mbarrier.try_wait.parity.shared.b64 %p3, [empty], %r8; @!%p3 bra FULL;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 9; @%p4 bra PRODUCE;
    ret;
CONSUME:
    and.b32 %r8, %r5, 1;
WAIT:
    mbarrier.test_wait.parity.shared.b64 %p3, [full], %r8; @!%p3 bra WAIT;
    xor.b32 %r9, %r3, 4; ld.shared.u32 %r10, [%r9]; mad.lo.u32 %r6, %r6, 3, %r10;
    mbarrier.arrive.release.cta.shared::cta.b64 %rd2, [empty];
    add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 9; @%p4 bra CONSUME;
    mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd1, %rd3; st.global.u32 [%rd3], %r6;
    ret;
})");
    const DeviceMemory out(128);
    REQUIRE(run(module, "k", 1, 64, out.address()).outcome == Outcome::Finished);
    for (unsigned lane = 0; lane < 32; ++lane) {
        unsigned wanted = 0;
        for (unsigned round = 0; round < 9; ++round) wanted = wanted * 3 + round * 100 + (lane ^ 1);
        CHECK(out.as<unsigned>()[lane] == wanted);
    }
}

TEST_CASE("mbarrier: tokens, counts, dropping out, arrival on behalf of copies") {
    const Module module(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 8 .b64 bar; .reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .pred %p<9>;
    ld.param.u64 %rd1, [out];
    mbarrier.init.shared.b64 [bar], 3;
    mbarrier.arrive.shared.b64 %rd2, [bar]; mbarrier.pending_count.b64 %r1, %rd2;
    mbarrier.arrive.noComplete.shared.b64 %rd3, [bar], 1; mbarrier.pending_count.b64 %r2, %rd3;
    mbarrier.test_wait.shared.b64 %p1, [bar], %rd2; selp.u32 %r3, 1, 0, %p1;
    cp.async.mbarrier.arrive.shared.b64 [bar];
    mbarrier.test_wait.shared.b64 %p1, [bar], %rd2; selp.u32 %r4, 1, 0, %p1;
    cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    mbarrier.test_wait.shared.b64 %p1, [bar], %rd2; selp.u32 %r5, 1, 0, %p1;
    mbarrier.arrive_drop.shared.b64 %rd4, [bar]; mbarrier.arrive.shared.b64 %rd5, [bar], 2;
    mbarrier.test_wait.shared.b64 %p1, [bar], %rd5; selp.u32 %r6, 1, 0, %p1;
    mbarrier.arrive.shared.b64 %rd6, [bar], 2; mbarrier.pending_count.b64 %r7, %rd6;
    mbarrier.test_wait.shared.b64 %p1, [bar], %rd6; selp.u32 %r8, 1, 0, %p1;
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; selp.u32 %r9, 1, 0, %p1;
    mbarrier.inval.shared.b64 [bar];
    st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};
    st.global.u32 [%rd1+32], %r9;
    ret;
})");
    const DeviceMemory out(64);
    REQUIRE(run(module, "k", 1, 1, out.address()).outcome == Outcome::Finished);
    const auto* words = out.as<unsigned>();
    // Three phases were completed, by 3, 3 (one of which left for good) and 2 arrivals.
    CHECK(std::vector<unsigned>(words, words + 9) == std::vector<unsigned>{3, 2, 0, 0, 1, 1, 2, 1, 0});
}

}  // namespace
}  // namespace simcuda::testing
