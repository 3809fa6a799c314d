// Clusters: blocks side by side that reach one another's shared memory and wait for one another.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

struct Shape {
    unsigned grid[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    unsigned threads = 1;
};

// %out is the parameter, %rank and %size are the block's in its cluster, %block its number in a grid of one
// dimension.
std::string kernel(std::string_view body, std::string_view directives = "") {
    return fmt::format(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out) {}
{{
    .reg .pred %p, %q; .reg .b32 %r<16>, %rank, %size, %block, %tid; .reg .b64 %a<8>, %out;
    .shared .align 16 .b8 room[1024];
    ld.param.u64 %out, [out];
    mov.u32 %rank, %cluster_ctarank; mov.u32 %size, %cluster_nctarank;
    mov.u32 %block, %ctaid.x; mov.u32 %tid, %tid.x;
{}
    ret;
}}
)",
                       directives, body);
}

constexpr std::string_view kMeet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n";

Result run_clusters(const std::string& text, const Shape& shape, DeviceAddress out, unsigned workers = 1) {
    const Module module(text);
    exec::Launch launch = module.launch("kernel", pack(out));
    std::copy_n(shape.grid, 3, launch.grid);
    std::copy_n(shape.cluster, 3, launch.cluster);
    launch.explicit_cluster = shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > 1;
    launch.block[0] = shape.threads;
    launch.time_limit_ns = 20'000'000'000;
    return run(std::move(launch), workers);
}

// What each block of a grid of one dimension stores in its words, `words` of them.
std::vector<unsigned> words_of(const std::string& text, const Shape& shape, unsigned words,
                               unsigned workers = 1) {
    const unsigned blocks = shape.grid[0] * shape.grid[1] * shape.grid[2];
    const DeviceMemory out(blocks * words * 4);
    std::memset(out.as<char>(), 0, blocks * words * 4);
    const Result result = run_clusters(text, shape, out.address(), workers);
    REQUIRE_MESSAGE(result.outcome == Outcome::Finished, result.message);
    return {out.as<unsigned>(), out.as<unsigned>() + blocks * words};
}

Outcome outcome_of(const std::string& text, const Shape& shape) {
    const DeviceMemory out(4096);
    return run_clusters(text, shape, out.address()).outcome;
}

TEST_CASE("clusters: blocks know their place in the cluster, and the cluster's in the grid") {
    static constexpr const char* kRegisters[] = {
        "%ctaid.x",         "%ctaid.y",         "%ctaid.z",          "%clusterid.x",      "%clusterid.y",
        "%clusterid.z",     "%nclusterid.x",    "%nclusterid.y",     "%nclusterid.z",     "%cluster_ctaid.x",
        "%cluster_ctaid.y", "%cluster_ctaid.z", "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z",
        "%cluster_ctarank", "%cluster_nctarank"};
    constexpr unsigned kWords = 18;
    std::string body =
        "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %nctaid.y;"
        "mad.lo.u32 %r1, %r2, %r4, %r1; mad.lo.u32 %r1, %r1, %r3, %block; mul.wide.u32 %a1, %r1, 72;"
        "add.u64 %a1, %a1, %out;";
    for (unsigned i = 0; i < 17; ++i)
        body += fmt::format("mov.u32 %r5, {}; st.global.u32 [%a1+{}], %r5;\n", kRegisters[i], 4 * i);
    body += "mov.pred %p, %is_explicit_cluster; selp.u32 %r5, 1, 0, %p; st.global.u32 [%a1+68], %r5;";
    for (const Shape& shape :
         {Shape{{4, 6, 2}, {2, 3, 1}, 1}, Shape{{3, 2, 4}, {1, 1, 4}, 1}, Shape{{2, 2, 2}, {1, 1, 1}, 1}}) {
        const std::vector<unsigned> found = words_of(kernel(body), shape, kWords);
        const unsigned size = shape.cluster[0] * shape.cluster[1] * shape.cluster[2];
        std::size_t at = 0;
        for (unsigned z = 0; z < shape.grid[2]; ++z) {
            for (unsigned y = 0; y < shape.grid[1]; ++y) {
                for (unsigned x = 0; x < shape.grid[0]; ++x, at += kWords) {
                    const auto& [cx, cy, cz] = shape.cluster;
                    const std::vector<unsigned> expected{x,
                                                         y,
                                                         z,
                                                         x / cx,
                                                         y / cy,
                                                         z / cz,
                                                         shape.grid[0] / cx,
                                                         shape.grid[1] / cy,
                                                         shape.grid[2] / cz,
                                                         x % cx,
                                                         y % cy,
                                                         z % cz,
                                                         cx,
                                                         cy,
                                                         cz,
                                                         (z % cz * cy + y % cy) * cx + x % cx,
                                                         size,
                                                         size > 1};
                    CHECK(
                        std::equal(expected.begin(), expected.end(), found.begin() + static_cast<long>(at)));
                }
            }
        }
    }
}

// Each thread leaves a value, and reads those of the next block by each kind of address.
TEST_CASE("clusters: shared memory of other blocks is read, written and counted in") {
    const std::string body = R"(
    mov.u32 %r1, room; shl.b32 %r2, %tid, 2; add.u32 %r2, %r1, %r2;
    mad.lo.u32 %r3, %block, 100, %tid; st.shared.u32 [%r2], %r3; st.shared.u32 [%r2+512], 0;
    barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
    add.u32 %r4, %rank, 1; rem.u32 %r4, %r4, %size;
    mapa.shared::cluster.u32 %r5, %r2, %r4; ld.shared::cluster.u32 %r6, [%r5];
    mul.wide.u32 %a1, %r2, 1; cvta.shared.u64 %a1, %a1; mapa.u64 %a2, %a1, %r4; ld.u32 %r7, [%a2];
    mapa.shared::cluster.u32 %r8, room, %r4; ld.shared::cluster.v2.u32 {%r9, %r10}, [%r8+8];
    st.shared::cluster.u32 [%r5+256], %r3;
    mapa.shared::cluster.u32 %r11, %r1, 0;
    atom.shared::cluster.add.u32 %r12, [%r11+512], 1; red.shared::cluster.add.u32 [%r11+516], %tid;
    mapa.u64 %a3, %a1, 0; atom.add.u32 %r12, [%a3+520], 0;
    barrier.cluster.arrive; barrier.cluster.wait;
    ld.shared.u32 %r12, [%r2+256]; ld.shared.u32 %r13, [room+512]; ld.shared.u32 %r14, [room+516];
    mad.lo.u32 %r1, %block, 16, %tid; mul.wide.u32 %a4, %r1, 32; add.u64 %a4, %a4, %out;
    st.global.v4.u32 [%a4], {%r6, %r7, %r9, %r10}; st.global.v4.u32 [%a4+16], {%r12, %r13, %r14, %r4};
    )" + std::string(kMeet);
    for (unsigned workers : {1u, 3u}) {
        const Shape shape{{12, 1, 1}, {4, 1, 1}, 16};
        const std::vector<unsigned> found = words_of(kernel(body), shape, 16 * 8, workers);
        for (unsigned b = 0; b < 12; ++b) {
            const unsigned first = b / 4 * 4, next = first + (b + 1) % 4, before = first + (b + 3) % 4;
            for (unsigned t = 0; t < 16; ++t) {
                const unsigned* const words = &found[(b * 16 + t) * 8];
                CHECK(words[0] == next * 100 + t);
                CHECK(words[1] == next * 100 + t);
                CHECK(words[2] == next * 100 + 2);
                CHECK(words[3] == next * 100 + 3);
                CHECK(words[4] == before * 100 + t);
                CHECK(words[5] == (b == first ? 4 * 16 : 0));
                CHECK(words[6] == (b == first ? 4 * 120 : 0));
            }
        }
    }
}

TEST_CASE("clusters: an address tells whose it is, in every form") {
    const std::string body = R"(
    add.u32 %r1, %rank, 1; rem.u32 %r1, %r1, %size;
    mov.u32 %r2, room; add.u32 %r2, %r2, 20;
    mapa.shared::cluster.u32 %r3, %r2, %r1;
    getctarank.shared::cluster.u32 %r4, %r3; getctarank.shared::cluster.u32 %r5, %r2;
    mul.wide.u32 %a1, %r3, 1; cvta.shared::cluster.u64 %a1, %a1;
    getctarank.u64 %r6, %a1;
    cvta.to.shared::cluster.u64 %a2, %a1; cvt.u32.u64 %r7, %a2; sub.u32 %r7, %r7, %r3;
    isspacep.shared::cluster %p, %a1; selp.u32 %r8, 1, 0, %p;
    isspacep.shared::cta %p, %a1; selp.u32 %r9, 2, 0, %p; or.b32 %r8, %r8, %r9;
    isspacep.shared %p, %a1; selp.u32 %r9, 4, 0, %p; or.b32 %r8, %r8, %r9;
    isspacep.global %p, %a1; selp.u32 %r9, 8, 0, %p; or.b32 %r8, %r8, %r9;
    isspacep.shared::cluster %p, %out; selp.u32 %r9, 16, 0, %p; or.b32 %r8, %r8, %r9;
    isspacep.global %p, %out; selp.u32 %r9, 32, 0, %p; or.b32 %r8, %r8, %r9;
    mapa.u64 %a3, %a1, %rank; cvta.to.shared.u64 %a3, %a3; cvt.u32.u64 %r9, %a3;
    mul.wide.u32 %a4, %block, 24; add.u64 %a4, %a4, %out;
    st.global.v2.u32 [%a4], {%r4, %r5}; st.global.v2.u32 [%a4+8], {%r6, %r7}; st.global.v2.u32 [%a4+16], {%r8, %r9};
    )";
    const std::vector<unsigned> found = words_of(kernel(body), {{6, 1, 1}, {3, 1, 1}, 1}, 6);
    for (unsigned b = 0; b < 6; ++b) {
        const unsigned next = (b + 1) % 3;
        const std::vector<unsigned> expected{next, b % 3, next, 0, 1 | 32, 20};
        CHECK(std::equal(expected.begin(), expected.end(), found.begin() + b * 6));
    }
}

TEST_CASE("clusters: a block's shared memory is there from its begin to its end") {
    const Shape two{{2, 1, 1}, {2, 1, 1}, 32};
    const std::string touch =
        "xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %r2, room, %r1; ld.shared::cluster.u32 %r3, [%r2];"
        "st.global.u32 [%out], %r3;";
    CHECK(outcome_of(kernel(std::string(kMeet) + touch + std::string(kMeet)), two) == Outcome::Finished);
    CHECK(outcome_of(kernel(touch + std::string(kMeet)), two) == Outcome::IllegalAddress);
    // The first waits for the second one's flag, which is set before that ends.
    const std::string late =
        std::string(kMeet) +
        "setp.eq.u32 %p, %rank, 1; @%p ret; mov.u32 %r5, 0;\n"
        "AGAIN: add.u32 %r5, %r5, 1; nanosleep.u32 1; setp.lt.u32 %p, %r5, 2000; @%p bra AGAIN;\n";
    CHECK(outcome_of(kernel(late + touch), two) == Outcome::IllegalAddress);
    // There is no third.
    CHECK(outcome_of(kernel("mapa.shared::cluster.u32 %r2, room, 2; ld.shared::cluster.u32 %r3, [%r2]; "
                            "st.global.u32 [%out], %r3;"),
                     two) == Outcome::IllegalAddress);
    // In .shared an address is the block's own, whatever mapa has made of it.
    CHECK(outcome_of(kernel(std::string(kMeet) + "mapa.shared::cluster.u32 %r2, room, 1; ld.shared.u32 %r3, "
                                                 "[%r2]; st.global.u32 [%out], %r3;"),
                     two) == Outcome::IllegalAddress);
}

TEST_CASE(
    "clusters: nobody passes the barrier before all have come, and what is done meanwhile is nobody's wait") {
    // Block r counts r times 100 before it arrives, and reads the sum between the two.
    const std::string body = R"(
    mov.u32 %r1, 0; mul.lo.u32 %r2, %rank, 100;
COUNT:
    setp.ge.u32 %p, %r1, %r2; @%p bra ENOUGH;
    atom.global.add.u32 %r3, [%out], 1; add.u32 %r1, %r1, 1; bra COUNT;
ENOUGH:
    barrier.cluster.arrive.release;
    mov.u32 %r4, 0;
    barrier.cluster.wait.acquire;
    ld.global.u32 %r4, [%out]; mad.lo.u32 %r5, %rank, 32, %tid; mul.wide.u32 %a1, %r5, 4; add.u64 %a1, %a1, %out;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    st.global.u32 [%a1+4], %r4;
    )";
    const Shape shape{{8, 1, 1}, {8, 1, 1}, 32};
    const DeviceMemory out(4 + 8 * 32 * 4);
    *out.as<unsigned>() = 0;
    REQUIRE(run_clusters(kernel(body), shape, out.address()).outcome == Outcome::Finished);
    for (unsigned i = 0; i < 8 * 32; ++i) CHECK(out.as<unsigned>()[1 + i] == 28 * 100 * 32);
}

TEST_CASE("clusters: threads that have ended are not waited for, and one that waits keeps its warp's place") {
    // The odd ones of block 1 end at once, block 2 altogether.
    const std::string ended = R"(
    setp.eq.u32 %p, %rank, 2; @%p ret;
    setp.eq.u32 %p, %rank, 1; and.b32 %r1, %tid, 1; setp.eq.and.u32 %p, %r1, 1, %p; @%p ret;
    barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive; barrier.cluster.wait;
    red.global.add.u32 [%out], 1;
    )";
    CHECK(words_of(kernel(ended), {{3, 1, 1}, {3, 1, 1}, 64}, 1)[0] == 64 + 32);
    // All arrive, lane 0 waits, and the others wait for it in the warp; block 1 comes late.
    const std::string elected = R"(
    setp.ne.u32 %p, %rank, 1; @%p bra COME; mov.u32 %r1, 0;
DELAY: nanosleep.u32 1; add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, 3000; @%q bra DELAY;
    red.global.add.u32 [%out+4], 1;
COME:
    barrier.cluster.arrive; setp.ne.u32 %p, %tid, 0; @%p bra TOGETHER; barrier.cluster.wait;
TOGETHER:
    bar.warp.sync 0xffffffff; ld.volatile.global.u32 %r2, [%out+4]; red.global.add.u32 [%out], %r2;
    )";
    CHECK(words_of(kernel(elected), {{2, 1, 1}, {2, 1, 1}, 32}, 1)[0] == 64 * 32);
}

TEST_CASE("clusters: to arrive twice or to wait for nothing is refused") {
    const Shape two{{2, 1, 1}, {2, 1, 1}, 1};
    CHECK(outcome_of(kernel("barrier.cluster.arrive; barrier.cluster.arrive;"), two) == Outcome::Trap);
    CHECK(outcome_of(kernel("barrier.cluster.wait;"), two) == Outcome::Trap);
    CHECK(outcome_of(kernel(std::string(kMeet) + "barrier.cluster.wait;"), two) == Outcome::Trap);
}

TEST_CASE("clusters: a block without one is a cluster of its own") {
    const std::string body = "st.shared.u32 [room], 0; bar.sync 0; atom.shared.add.u32 %r1, [room], 1;" +
                             std::string(kMeet) +
                             "mapa.shared::cluster.u32 %r2, room, 0; ld.shared::cluster.u32 %r3, [%r2];"
                             "mul.wide.u32 %a1, %block, 4; add.u64 %a1, %a1, %out; st.global.u32 [%a1], %r3;";
    CHECK(words_of(kernel(body), {{3, 1, 1}, {1, 1, 1}, 50}, 1) == std::vector<unsigned>{50, 50, 50});
}

TEST_CASE("clusters: mbarriers of one block are arrived at by others") {
    // Rank 0 waits until each thread of the others has come, twice.
    const std::string body = R"(
    setp.eq.u32 %p, %rank, 0; setp.eq.and.u32 %p, %tid, 0, %p; @%p mbarrier.init.shared.b64 [room], 24;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    mapa.shared::cluster.u32 %r1, room, 0; mov.u32 %r2, 0; setp.eq.u32 %p, %rank, 0; @%p bra WAIT;
SEND:
    red.global.add.u32 [%out], 1;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1]; add.u32 %r2, %r2, 1;
    bra MEET;
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [room], %r2; @!%q bra WAIT;
    ld.volatile.global.u32 %r3, [%out]; add.u32 %r2, %r2, 1; mul.wide.u32 %a1, %r2, 4; add.u64 %a1, %a1, %out;
    st.global.u32 [%a1], %r3;
MEET:
    barrier.cluster.arrive; barrier.cluster.wait;
    setp.lt.u32 %q, %r2, 2; @!%q ret; @%p bra WAIT; bra SEND;
    )";
    CHECK(words_of(kernel(body), {{4, 1, 1}, {4, 1, 1}, 8}, 1) == std::vector<unsigned>{48, 24, 48, 0});
}

TEST_CASE("clusters: many clusters are run by several threads, each block once") {
    const std::string body =
        "mul.wide.u32 %a1, %block, 4; add.u64 %a1, %a1, %out; red.global.add.u32 [%a1], 1;";
    for (const std::string& text :
         {kernel(body), kernel(body + std::string(kMeet)), kernel(body + "bar.sync 0;")}) {
        for (unsigned workers : {1u, 4u})
            CHECK(words_of(text, {{240, 1, 1}, {8, 1, 1}, 33}, 1, workers) == std::vector<unsigned>(240, 33));
    }
}

TEST_CASE("clusters: a kernel says what clusters it needs") {
    const Module module(kernel("", ".explicitcluster .reqnctapercluster 2, 3 .maxntid 64, 2, 1"));
    const ptx::Kernel& found = module.kernel("kernel");
    CHECK(std::vector<unsigned>(found.cluster, found.cluster + 3) == std::vector<unsigned>{2, 3, 1});
    CHECK(found.explicit_cluster);
    CHECK(found.max_threads == 128);
    const Module limited(kernel("", ".maxclusterrank 4"));
    CHECK(limited.kernel("kernel").max_cluster == 4);
    CHECK(limited.kernel("kernel").cluster[0] == 0);
    CHECK(!limited.kernel("kernel").explicit_cluster);
}

}  // namespace
}  // namespace simcuda::testing
