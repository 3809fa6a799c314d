// A block that waits lets others run, however it waits.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

constexpr unsigned kGridBlocks = 12;

// Each block waits, in `wait`, for the flag of the next one (at %rd2+4); the last does not. `wait` ends with
// all threads of the block at NEXT.
Outcome wait_for_later_blocks(const std::string& wait, unsigned threads) {
    const Module module(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 flags)
{
    .shared .align 4 .u32 seen; .shared .align 4 .b8 apart[64];
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>;
    ld.param.u64 %rd1, [flags];
    mov.u32 %r1, %ctaid.x; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
    add.u32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, %r3; setp.ne.u32 %p2, %r4, 0;
    st.volatile.shared.u32 [seen], 0; bar.sync 0;
    @%p1 bra NEXT;
)" + wait + R"(
NEXT:
    bar.sync 0;
    @!%p2 st.global.u32 [%rd2], 1;
    ret;
})");
    const DeviceMemory flags(kGridBlocks * 4);
    std::memset(flags.as<char>(), 0, kGridBlocks * 4);
    exec::Launch launch = module.launch("k", pack(flags.address()));
    launch.grid[0] = kGridBlocks;
    launch.block[0] = threads;
    launch.time_limit_ns = 60'000'000'000;
    const Outcome outcome = run(std::move(launch)).outcome;
    for (unsigned i = 0; i < kGridBlocks; ++i) CHECK(flags.as<unsigned>()[i] == 1);
    return outcome;
}

TEST_CASE("fairness: a spin loop with a barrier in it") {
    for (const std::string load : {"ld.volatile.global", "ld.acquire.gpu.global", "ld.global"}) {
        CAPTURE(load);
        CHECK(wait_for_later_blocks(fmt::format(R"(
SPIN:
    @%p2 bra MEET;
    {}.u32 %r6, [%rd2+4]; st.shared.u32 [seen], %r6;
MEET:
    bar.sync 0;
    ld.shared.u32 %r7, [seen]; setp.eq.u32 %p3, %r7, 0;
    bar.sync 0;
    @%p3 bra SPIN;)",
                                                load),
                                    64) == Outcome::Finished);
    }
}

TEST_CASE("fairness: a spin loop with a reduction at a barrier in it") {
    CHECK(wait_for_later_blocks(R"(
SPIN:
    ld.relaxed.gpu.global.u32 %r6, [%rd2+4]; setp.ne.u32 %p3, %r6, 0; bar.red.or.pred %p4, 0, %p3;
    @!%p4 bra SPIN;)",
                                64) == Outcome::Finished);
}

TEST_CASE("fairness: a spin loop in which a warp votes") {
    CHECK(wait_for_later_blocks(R"(
SPIN:
    ld.volatile.global.u32 %r6, [%rd2+4]; setp.ne.u32 %p3, %r6, 0; vote.sync.any.pred %p4, %p3, -1;
    @!%p4 bra SPIN;)",
                                64) == Outcome::Finished);
}

TEST_CASE("fairness: threads that wait in shared memory for the one that waits for another block") {
    CHECK(wait_for_later_blocks(R"(
    @%p2 bra FOLLOW;
SPIN:
    ld.volatile.global.u32 %r6, [%rd2+4]; setp.eq.u32 %p3, %r6, 0; @%p3 bra SPIN;
    st.volatile.shared.u32 [seen], 1;
FOLLOW:
    ld.volatile.shared.u32 %r7, [seen]; setp.eq.u32 %p3, %r7, 0; @%p3 bra FOLLOW;)",
                                64) == Outcome::Finished);
}

TEST_CASE("fairness: plain loads with a fence between them") {
    for (const std::string fence : {"membar.gl;", "fence.acq_rel.gpu;"}) {
        CAPTURE(fence);
        CHECK(wait_for_later_blocks(fmt::format(R"(
SPIN:
    {} ld.global.u32 %r6, [%rd2+4]; setp.eq.u32 %p3, %r6, 0; @%p3 bra SPIN;)",
                                                fence),
                                    64) == Outcome::Finished);
    }
}

}  // namespace
}  // namespace simcuda::testing
