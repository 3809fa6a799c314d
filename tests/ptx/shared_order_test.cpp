// What threads of a warp hand to one another through memory with nothing to say that they do.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/ptx/device.h"
#include "tools/simcuda/ptx/parser.h"
#include "tools/simcuda/ptx/shared_order.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

constexpr unsigned kThreads = 64;

std::string module_of(std::string_view variables, std::string_view body) {
    return fmt::format(R"(.version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 buffer[512];
{}
.visible .entry k(.param .u64 out)
{{
    .reg .b64 %rd<9>; .reg .b32 %r<20>; .reg .pred %p<9>;
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2; mov.u32 %r2, %laneid;
    mov.u32 %r10, buffer; shl.b32 %r11, %r1, 2; add.u32 %r11, %r10, %r11;
{}
    ret;
}}
)",
                       variables, body);
}

// Runs kernel k; thread i stores to word i.
std::vector<unsigned> words_of(const std::string& text) {
    const Module module(text);
    const DeviceMemory out(kThreads * 4);
    std::memset(out.as<char>(), 0, kThreads * 4);
    exec::Launch launch = module.launch("k", pack(out.address()));
    launch.block[0] = kThreads;
    launch.time_limit_ns = 60'000'000'000;
    REQUIRE(run(std::move(launch)).outcome == Outcome::Finished);
    return {out.as<unsigned>(), out.as<unsigned>() + kThreads};
}

// What lane l puts down, lane 31 - l reads: some before it in any order of turns.
constexpr std::string_view kOtherEnd = R"(
    vote.sync.ballot.b32 %r3, 1, -1;
    mad.lo.u32 %r4, %r1, 3, 1; st.shared.u32 [%r11], %r4;
    xor.b32 %r5, %r1, 31; shl.b32 %r5, %r5, 2; add.u32 %r5, %r10, %r5; ld.shared.u32 %r6, [%r5];
    st.global.u32 [%rd2], %r6;)";

TEST_CASE("shared order: all of a warp have written before any reads") {
    const auto words = words_of(module_of("", kOtherEnd));
    for (unsigned i = 0; i < kThreads; ++i) CHECK(words[i] == (i ^ 31) * 3 + 1);
}

TEST_CASE("shared order: the same where threads have stacks of their own") {
    const std::string body = ".local .align 4 .b8 own[16]; st.local.u32 [own], %r1;" +
                             std::string(kOtherEnd) +
                             "ld.local.u32 %r7, [own]; add.u32 %r6, %r6, %r7; st.global.u32 [%rd2], %r6;";
    const auto words = words_of(module_of("", body));
    for (unsigned i = 0; i < kThreads; ++i) CHECK(words[i] == (i ^ 31) * 3 + 1 + i);
}

// Lane l goes round l + 1 times, with those that do. Each reads what the highest lane has put down in its
// round.
TEST_CASE("shared order: in a loop that lanes leave one by one") {
    const auto words = words_of(module_of("", R"(
    mov.u32 %r3, 0; mov.u32 %r4, 0; or.b32 %r5, %r1, 31; shl.b32 %r5, %r5, 2; add.u32 %r5, %r10, %r5;
LOOP:
    mad.lo.u32 %r6, %r3, 10, %r2; st.shared.u32 [%r11], %r6; ld.shared.u32 %r7, [%r5]; add.u32 %r4, %r4, %r7;
    setp.lt.u32 %p1, %r3, %r2; add.u32 %r3, %r3, 1; @%p1 bra LOOP;
    vote.sync.ballot.b32 %r3, 1, -1;
    st.global.u32 [%rd2], %r4;)"));
    for (unsigned i = 0; i < kThreads; ++i) CHECK(words[i] == (i % 32 + 1) * 31 + i % 32 * (i % 32 + 1) * 5);
}

// What a launch pays for.
TEST_CASE("shared order: only loads behind a store with nothing in between are waited before") {
    const auto found_in = [](std::string_view body) {
        const auto module = ptx::Parser::parse(module_of("", body));
        return ptx::loads_behind_stores(
                   *module->functions.back(),
                   [](const ptx::Instruction& i) { return i.opcode == "bar" || i.opcode == "shfl"; },
                   [](const ptx::Instruction& i) { return i.opcode == "st" && i.has("shared"); })
            .size();
    };
    const std::string store = "st.shared.u32 [%r11], %r2;", load = "ld.shared.u32 %r3, [%r11];";
    const std::string barrier = "bar.sync 0;", shuffle = "shfl.sync.bfly.b32 %r4, %r4, 1, 31, -1;";
    CHECK(found_in(store + load) == 1);
    CHECK(found_in(store + load + load) == 1);  // at the first they have met
    CHECK(found_in(store + "@%p1 " + load + load) == 2);
    CHECK(found_in(load + store) == 0);
    CHECK(found_in(store + barrier + load) == 0);
    CHECK(found_in(store + shuffle + load) == 0);
    CHECK(found_in(store + "@%p1 " + shuffle + load) == 1);
    CHECK(found_in("st.global.u32 [%rd2], %r2;" + load) == 0);
    CHECK(found_in(store + "ld.global.u32 %r3, [%rd2];") == 0);
    CHECK(found_in("LOOP: " + load + barrier + store + "@%p1 bra LOOP;") == 1);
    CHECK(found_in("LOOP: " + load + store + barrier + "@%p1 bra LOOP;") == 0);
    CHECK(found_in("@%p1 bra OVER; " + store + "OVER: " + load) == 1);
    CHECK(found_in(store + "bra OVER; " + load + "OVER: " + barrier + load) == 0);
}

// GCC's OpenMP: all lanes do what one would.
TEST_CASE("shared order: lanes that all count up one word count once, where the code is made so") {
    const std::string body = R"(
    mov.u32 %r3, 0; shr.u32 %r4, %r1, 5; shl.b32 %r4, %r4, 2; add.u32 %r4, %r10, %r4;
    setp.eq.u32 %p2, %r2, 0; @%p2 st.shared.u32 [%r4], 0; bar.sync 0;
LOOP:
    ld.shared.u32 %r5, [%r4]; add.u32 %r5, %r5, 1; st.shared.u32 [%r4], %r5;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 9; @%p1 bra LOOP;
    ld.shared.u32 %r5, [%r4];
    @%p2 atom.shared.exch.b32 %r6, [%r4], 77;
    st.global.u32 [%rd2], %r5;)";
    for (const unsigned word : words_of(module_of(".shared .align 4 .u32 __nvptx_uni[32];", body)))
        CHECK(word == 9);
}

// The second warp reads what the first writes meanwhile; who comes to a barrier last goes on before others of
// its warp. Local memory, so that threads have stacks of their own, as such code has.
TEST_CASE("shared order: lanes that read one word together read the same, where the code is made so") {
    const auto words = words_of(module_of(".shared .align 4 .u32 __nvptx_uni[32];", R"(
    .local .align 4 .b8 own[16]; st.local.u32 [own], %r1;
    mov.u32 %r3, 0; mov.u32 %r4, 0; setp.lt.u32 %p1, %r1, 32; setp.eq.u32 %p2, %r1, 0;
    @%p2 st.shared.u32 [%r10], 0;
LOOP:
    bar.sync 0; @%p1 bra WRITE;
    ld.shared.u32 %r5, [%r10]; mad.lo.u32 %r4, %r4, 3, %r5; bra NEXT;
WRITE:
    add.u32 %r5, %r3, 1; st.shared.u32 [%r10], %r5;
NEXT:
    add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 9; @%p3 bra LOOP;
    st.global.u32 [%rd2], %r4;)"));
    for (unsigned i = 33; i < kThreads; ++i) CHECK(words[i] == words[32]);
}

}  // namespace
}  // namespace simcuda::testing
