// Addresses of 32 bits wrap: a register may hold what is negative, and the offset behind it makes up for
// that.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

// How a register comes to be 64 short of a variable, `$`: in 32 bits, and in 64 with the high ones as chance
// has it.
const std::vector<std::string> kShort = {
    "mov.u32 %r1, $; sub.u32 %r1, %r1, 64;",
    "mov.u64 %rd2, $; cvt.u32.u64 %r1, %rd2; add.u32 %r1, %r1, -64;",
    "mov.u64 %rd2, $; sub.s64 %rd2, %rd2, 64;",
    "mov.u64 %rd2, $; mov.u32 %r1, -64; cvt.u64.u32 %rd3, %r1; add.s64 %rd2, %rd2, %rd3;",
};

std::string replaced(std::string text, char what, const std::string& by) {
    for (std::size_t i = 0; (i = text.find(what, i)) != std::string::npos; i += by.size())
        text.replace(i, 1, by);
    return text;
}

// `body` with each way's register in the place of its @.
std::string with(const std::string& way, const std::string& variable, const std::string& body) {
    const bool wide = way.find("cvt.u32") == std::string::npos && way.starts_with("mov.u64");
    return replaced(way, '$', variable) + '\n' + replaced(body, '@', wide ? "%rd2" : "%r1");
}

// Runs `body` as one thread; it puts `count` words to [%rd1], [%rd1+4], ... The parameter `block` is 1, 2,
// 3, 4.
std::vector<unsigned> words_of(const std::string& body, std::size_t count,
                               const std::string& functions = "") {
    const std::string text = R"(.version 8.0
.target sm_80
.address_size 64
.const .align 16 .u32 constants[4] = {10, 20, 30, 40};
.global .align 16 .u32 numbers[4] = {50, 60, 70, 80};
)" + functions + R"(
.visible .entry k(.param .u64 out, .param .align 16 .b8 block[16])
{
    .local .align 16 .b8 depot[64];
    .shared .align 16 .b8 fixed[64];
    .reg .b32 %r<20>; .reg .b16 %rs<9>; .reg .b64 %rd<20>; .reg .f32 %f<4>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [out];
)" + body + "\n    ret;\n}\n";
    const Module module(text);
    const DeviceMemory out(count * 4);
    struct alignas(16) {
        unsigned words[4] = {1, 2, 3, 4};
    } block;
    REQUIRE(run(module, "k", 1, 1, out.address(), block).outcome == Outcome::Finished);
    return {out.as<unsigned>(), out.as<unsigned>() + count};
}

using Words = std::vector<unsigned>;

TEST_CASE("wrap: shared addresses") {
    for (const std::string& way : kShort) {
        CAPTURE(way);
        CHECK(words_of(with(way, "fixed", R"(
    st.shared.v4.u32 [@+64], {5, 6, 7, 8}; ld.shared.v2.u32 {%r2, %r3}, [fixed+8];
    st.shared.u16 [@+80], 0x1234; st.volatile.shared.u8 [@+82], 9; ld.volatile.shared.u32 %r4, [@+64];
    st.relaxed.cta.shared.v2.u32 [@+84], {11, 12}; ld.acquire.cta.shared.v2.u32 {%r5, %r6}, [@+84];
    ld.shared.u32 %r7, [@+80]; and.b32 %r7, %r7, 0xffffff;
    st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5}; st.global.v2.u32 [%rd1+16], {%r6, %r7};)"),
                       6) == Words{7, 8, 5, 11, 12, 0x091234});
        CHECK(words_of(with(way, "fixed", R"(
    st.shared.v2.u32 [@+64], {5, 6};
    atom.shared.add.u32 %r2, [@+64], 10; red.shared.max.u32 [@+68], 100; atom.shared.cas.b32 %r3, [@+64], 15, 77;
    ld.shared.v2.u32 {%r4, %r5}, [fixed];
    st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5};)"),
                       4) == Words{5, 15, 77, 100});
        CHECK(words_of(with(way, "fixed", R"(
    mov.u64 %rd4, numbers;
    cp.async.cg.shared.global [@+64], [%rd4], 16; cp.async.wait_all;
    mbarrier.init.shared.b64 [@+96], 2; mbarrier.arrive.shared.b64 %rd5, [@+96]; cp.async.mbarrier.arrive.noinc.shared.b64 [@+96];
    mbarrier.test_wait.shared.b64 %p1, [@+96], %rd5; selp.u32 %r5, 1, 0, %p1;
    ld.shared.v4.u32 {%r2, %r3, %r4, %r6}, [fixed];
    st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5};)"),
                       4) == Words{50, 60, 70, 1});
    }
}

TEST_CASE("wrap: shared addresses of matrices") {
    for (const std::string& way : kShort) {
        CAPTURE(way);
        CHECK(words_of(with(way, "fixed", R"(
    st.shared.v4.u32 [fixed], {5, 6, 7, 8}; st.shared.v4.u32 [fixed+16], {0, 0, 0, 0}; st.shared.v4.u32 [fixed+32], {0, 0, 0, 0};
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [@+64];
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [@+80], {%r2}; ld.shared.u32 %r3, [fixed+16];
    wmma.load.a.sync.aligned.row.m8n32k16.shared.u8 {%r4}, [@+68], 16;
    wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [@+96], {%r2, %r4, %r2, %r4}, 16;
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [fixed+32];
    st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5}; st.global.v2.u32 [%rd1+16], {%r6, %r7}; st.global.u32 [%rd1+24], %r8;)"),
                       7) == Words{5, 5, 6, 5, 6, 5, 6});
    }
}

TEST_CASE("wrap: shared addresses and large offsets") {
    CHECK(words_of(R"(
    mov.u32 %r1, 0x80000000; st.shared.u32 [fixed], 5; st.shared.u32 [fixed+4], 6;
    ld.shared.u32 %r2, [%r1+-2147483648]; ld.shared.u32 %r3, [%r1+2147483652];
    mov.u32 %r1, 0x08000000; ld.shared.u32 %r4, [%r1+-134217724];
    st.global.v2.u32 [%rd1], {%r2, %r3}; st.global.u32 [%rd1+8], %r4;)",
                   3) == Words{5, 6, 6});
}

TEST_CASE("wrap: local addresses") {
    for (const std::string& way : kShort) {
        CAPTURE(way);
        CHECK(words_of(with(way, "depot", R"(
    st.local.u16 [@+64], 0x1234; st.local.u8 [@+66], 0x56; st.local.u8 [@+67], 0x78; st.local.v2.u16 [@+68], {9, 8};
    st.volatile.local.u64 [@+72], 7; st.local.v2.u64 [@+80], {11, 12};
    ld.local.u32 %r2, [depot]; ld.local.s8 %r3, [@+67]; ld.local.v2.u16 {%rs1, %rs2}, [@+68]; mov.b32 %r4, {%rs1, %rs2};
    ld.volatile.local.u64 %rd5, [depot+8]; cvt.u32.u64 %r5, %rd5; ld.local.v2.u64 {%rd6, %rd7}, [@+80]; cvt.u32.u64 %r6, %rd7;
    st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5}; st.global.u32 [%rd1+16], %r6;)"),
                       5) == Words{0x78561234, 0x78, 0x80009, 7, 12});
        CHECK(words_of(with(way, "depot", R"(
    st.local.v4.u32 [@+64], {5, 6, 7, 8}; ld.local.v2.u32 {%r2, %r3}, [depot+8];
    st.local.u32 [@+96], 9; ld.local.u32 %r4, [depot+32]; ld.local.v2.u32 {%r5, %r6}, [@+72];
    st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5}; st.global.u32 [%rd1+16], %r6;)"),
                       5) == Words{7, 8, 9, 7, 8});
    }
}

TEST_CASE("wrap: addresses of a kernel's and of a function's parameters") {
    for (const std::string& way : kShort) {
        CAPTURE(way);
        CHECK(words_of(with(way, "block", R"(
    ld.param.v2.u32 {%r2, %r3}, [@+64]; ld.param.u32 %r4, [@+76];
    st.global.v2.u32 [%rd1], {%r2, %r3}; st.global.u32 [%rd1+8], %r4;)"),
                       3) == Words{1, 2, 4});
        CHECK(words_of(R"(
    { .param .b32 result; .param .align 16 .b8 argument[16]; st.param.v4.b32 [argument], {21, 22, 23, 24};
      call (result), of_argument, (argument); ld.param.b32 %r2, [result]; }
    st.global.u32 [%rd1], %r2;)",
                       1,
                       ".func (.param .b32 r) of_argument(.param .align 16 .b8 p[16])\n"
                       "{ .reg .b32 %r<4>; .reg .b64 %rd<4>;\n" +
                           with(way, "p", "ld.param.b32 %r3, [@+72]; st.param.b32 [r], %r3; ret; }")) ==
              Words{23});
    }
}

TEST_CASE("wrap: constant addresses") {
    for (const std::string& way : kShort) {
        CAPTURE(way);
        // In 64 bits they are those of global memory.
        if (way.find("cvt.u64") != std::string::npos) continue;
        CHECK(words_of(with(way, "constants", R"(
    ld.const.v2.u32 {%r2, %r3}, [@+64]; ld.const.u32 %r4, [@+76];
    st.global.v2.u32 [%rd1], {%r2, %r3}; st.global.u32 [%rd1+8], %r4;)"),
                       3) == Words{10, 20, 40});
    }
}

TEST_CASE("wrap: the generic address of what is negative") {
    for (const std::string& way : kShort) {
        CAPTURE(way);
        const bool wide = way.find("cvt.u32") == std::string::npos && way.starts_with("mov.u64");
        const std::string widened = wide ? "" : "cvt.u64.u32 %rd2, %r1;";
        for (const std::string space : {"shared", "local"}) {
            CAPTURE(space);
            const std::string body = widened + replaced(R"(
    cvta.#.u64 %rd4, %rd2; st.u32 [%rd4+64], 5; ld.#.u32 %r2, [$]; isspacep.# %p1, %rd4; selp.u32 %r3, 1, 0, %p1;
    cvta.to.#.u64 %rd5, %rd4; ld.#.u32 %r4, [%rd5+64];
    st.global.v2.u32 [%rd1], {%r2, %r4};)",
                                                        '#', space);
            const std::string variable = space == "shared" ? "fixed" : "depot";
            CHECK(words_of(with(way, variable, replaced(body, '$', variable)), 2) == Words{5, 5});
        }
    }
}

TEST_CASE("wrap: what is not within a block's shared memory is a fault") {
    const Module module(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 a, .param .u64 b)
{
    .shared .align 16 .b8 fixed[4096]; .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u32 %r1, [a]; ld.param.u64 %rd1, [b];
    st.shared.u32 [fixed], 1; st.shared.v4.u32 [%r1+16], {1, 2, 3, 4}; st.shared.u32 [%rd1], 5;
    ret;
})");
    CHECK(run(module, "k", 1, 1, 0xfffffff0u, std::uint64_t{0xffffffff00000000}).outcome ==
          Outcome::Finished);
    for (const unsigned address : {4096u - 16, 0xffffffe0u, 0x7fffffffu, 0x80000000u, 0x7fffffe0u})
        CHECK(run(module, "k", 1, 1, address, std::uint64_t{0}).outcome == Outcome::IllegalAddress);
    CHECK(run(module, "k", 1, 1, 0u, std::uint64_t{0xfffffffc}).outcome == Outcome::IllegalAddress);
}

}  // namespace
}  // namespace simcuda::testing
