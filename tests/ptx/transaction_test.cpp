// mbarriers that also wait for bytes, and stores that bring them to another block of the cluster.
#include <doctest/doctest.h>

#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

TEST_CASE("mbarrier: a phase ends when all have arrived and all bytes have come, in either order") {
    const Module module(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 8 .b64 bar; .reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .pred %p;
    ld.param.u64 %rd1, [out];
    mbarrier.init.shared.b64 [bar], 2;
    mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd2, [bar], 100;
    mbarrier.pending_count.b64 %r1, %rd2;
    mbarrier.arrive.shared.b64 _, [bar];
    mbarrier.test_wait.shared.b64 %p, [bar], %rd2; selp.u32 %r2, 1, 0, %p;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 60;
    mbarrier.test_wait.parity.shared.b64 %p, [bar], 0; selp.u32 %r3, 1, 0, %p;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 40;
    mbarrier.test_wait.shared.b64 %p, [bar], %rd2; selp.u32 %r4, 1, 0, %p;
    // Bytes that come before they are expected; the most there may be.
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 1048575;
    mbarrier.arrive.shared.b64 %rd3, [bar]; mbarrier.pending_count.b64 %r5, %rd3;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1048574;
    mbarrier.arrive.shared.b64 _, [bar];
    mbarrier.test_wait.parity.shared.b64 %p, [bar], 1; selp.u32 %r6, 1, 0, %p;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 1;
    mbarrier.test_wait.parity.shared.b64 %p, [bar], 1; selp.u32 %r7, 1, 0, %p;
    // Many phases more, each of two arrivals.
    mov.u32 %r8, 0;
NEXT:
    mbarrier.arrive.shared.b64 %rd4, [bar]; mbarrier.arrive.shared.b64 _, [bar];
    mbarrier.test_wait.shared.b64 %p, [bar], %rd4; @!%p trap;
    add.u32 %r8, %r8, 1; setp.lt.u32 %p, %r8, 100; @%p bra NEXT;
    mbarrier.test_wait.parity.shared.b64 %p, [bar], 1; selp.u32 %r8, 1, 0, %p;
    st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};
    ret;
})");
    const DeviceMemory out(32);
    REQUIRE(run(module, "k", 1, 1, out.address()).outcome == Outcome::Finished);
    const auto* found = out.as<unsigned>();
    CHECK(std::vector<unsigned>(found, found + 8) == std::vector<unsigned>{2, 0, 0, 1, 2, 0, 1, 1});
}

// Each block sends the next one three values by one barrier there.
TEST_CASE("st.async: values are brought to another block, and its barrier told") {
    const Module module(R"(.version 8.1
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .shared .align 8 .b64 bar; .shared .align 16 .b8 room[64];
    .reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .pred %p;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 28;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    add.u32 %r3, %r1, 1; rem.u32 %r3, %r3, %r2;
    mapa.shared::cluster.u32 %r4, room, %r3; mapa.shared::cluster.u32 %r5, bar, %r3;
    add.u32 %r6, %r1, 100; add.u32 %r7, %r1, 200; cvt.u64.u32 %rd2, %r7; add.u32 %r8, %r1, 300;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r6, [%r5];
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%r4+8], %rd2, [%r5];
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4+16], {%r8, %r6, %r7, %r8}, [%r5];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @!%p bra WAIT;
    ld.shared.u32 %r9, [room]; ld.shared.u32 %r10, [room+8]; ld.shared.u32 %r11, [room+16]; ld.shared.u32 %r12, [room+24];
    mul.wide.u32 %rd3, %r1, 16; add.u64 %rd1, %rd1, %rd3; st.global.v4.u32 [%rd1], {%r9, %r10, %r11, %r12};
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
})");
    const DeviceMemory out(3 * 16);
    exec::Launch launch = module.launch("k", pack(out.address()));
    launch.grid[0] = launch.cluster[0] = 3;
    launch.time_limit_ns = 20'000'000'000;
    REQUIRE(run(std::move(launch)).outcome == Outcome::Finished);
    for (unsigned block = 0; block < 3; ++block) {
        const unsigned before = (block + 2) % 3;
        const auto* found = out.as<unsigned>() + 4 * block;
        CHECK(std::vector<unsigned>(found, found + 4) ==
              std::vector<unsigned>{100 + before, 200 + before, 300 + before, 200 + before});
    }
}

}  // namespace
}  // namespace simcuda::testing
