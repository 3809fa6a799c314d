// Which ranges of memory a launch may access, by its kernel's PTX: as compilers write it, and where nothing
// may be concluded.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "shim/code/ptx_taint.h"

using lms::code::AccessBounds;
using lms::code::AccessRange;
using lms::code::LaunchShape;
using lms::code::PtxBounds;
using lms::code::PtxModule;

namespace {

constexpr std::uint64_t kApart = std::uint64_t{1} << 40;

// The parameters: pointers a, b and c, then n, m and k.
struct BoundedLaunch {
    LaunchShape shape{{4, 1, 1}, {256, 1, 1}};
    std::uint32_t n = 1000, m = 8;
    std::uint64_t k = 1000;
};

std::string name_of_address(std::uint64_t address) {
    const std::uint64_t pointer = (address + kApart / 2) / kApart;
    const auto offset = static_cast<std::int64_t>(address - pointer * kApart);
    return std::string(1, static_cast<char>('a' + pointer - 1)) + (offset < 0 ? "" : "+") +
           std::to_string(offset);
}

// "a+0..4000, b+0..4000 w": bytes of what the pointers lead to; "a? w" where nothing bounds what is accessed
// through it; "none" where the code shows nothing.
std::string bounds_text(const std::string& text, const BoundedLaunch& launch = {},
                        const std::string& directives = "", const std::string& before = "") {
    PtxModule module(
        ".version 8.4\n.target sm_90\n.address_size 64\n" + before +
        ".visible .entry f(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .u32 m, "
        ".param .u64 k)\n" +
        directives +
        "{\n.reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [k];\n"
        "ld.param.u32 %r1, [n]; ld.param.u32 %r2, [m];\n" +
        text + "\nret;\n}\n");
    REQUIRE(module.addresses_of("f") == PtxModule::Answer::Complete);
    const auto all = module.bounds_of("f");
    if (!all) return "none";
    const std::uint64_t block[] = {kApart, 2 * kApart, 3 * kApart, launch.n | std::uint64_t{launch.m} << 32,
                                   launch.k};
    std::vector<std::uint64_t> inputs;
    for (const auto& each : all->inputs())
        std::memcpy(&inputs.emplace_back(), reinterpret_cast<const char*>(block) + each.offset, each.bytes);
    const AccessBounds found = PtxBounds::placed(all->follow(launch.shape, inputs), inputs);
    std::vector<std::string> each;
    for (const AccessRange& range : found.ranges) {
        const std::string begin = name_of_address(range.begin);
        const std::uint64_t pointer = (static_cast<std::uint64_t>(begin[0] - 'a') + 1) * kApart;
        each.push_back(begin + ".." + std::to_string(static_cast<std::int64_t>(range.end - pointer)) +
                       (range.written ? " w" : ""));
    }
    for (std::size_t i = 0; i < 3; ++i) {
        if (found.read.touch(8 * i, 8)) each.push_back(std::string(1, static_cast<char>('a' + i)) + "?");
        if (found.written.touch(8 * i, 8)) each.push_back(std::string(1, static_cast<char>('a' + i)) + "? w");
    }
    std::ranges::sort(each);
    std::string joined;
    for (const std::string& one : each) joined += (joined.empty() ? "" : ", ") + one;
    return joined;
}

// %r5: the thread's number in the grid.
const std::string kIndex =
    "mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.s32 %r5, %r3, %r4, %r6;\n";
// [%rd10] and [%rd11]: a and b at %r5, of 4 bytes each.
const std::string kElements =
    "mul.wide.s32 %rd9, %r5, 4; add.s64 %rd10, %rd1, %rd9; add.s64 %rd11, %rd2, %rd9;\n";
const std::string kCopy = "ld.global.u32 %r20, [%rd10]; st.global.u32 [%rd11], %r20;\n";

// The parameters of 8 bytes that a kernel asks for and that its answer does not depend on.
std::string moving(const std::string& text) {
    PtxModule module(
        ".version 8.4\n.target sm_90\n.address_size 64\n"
        ".visible .entry f(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 k)\n"
        "{\n.reg .pred %p<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [k];\n" +
        text + "\nret;\n}\n");
    const auto all = module.bounds_of("f");
    REQUIRE(all);
    std::string names;
    for (std::size_t i = 0; i < all->inputs().size(); ++i) {
        if (all->moves_along(i)) names += "abck"[all->inputs()[i].offset / 8];
    }
    std::ranges::sort(names);
    return names;
}

}  // namespace

TEST_CASE("bounds: counters that begin before 0") {
    // LLVM counts up before it tests: -32, which is no number of 32 bits without a sign, then 0, 32, ...
    CHECK(bounds_text(
              "mov.u64 %rd5, %rd1; mov.u32 %r3, -32; $L: ld.global.u32 %r9, [%rd5];"
              "add.s64 %rd5, %rd5, 128; add.s32 %r3, %r3, 32; setp.lt.u32 %p1, %r3, 352; @%p1 bra $L;") ==
          "a+0..1412");
}

TEST_CASE("bounds: the rest of a division by a constant") {
    const auto loads = [](const std::string& rest) {
        return bounds_text(kIndex + rest + "mul.wide.u32 %rd9, %r8, 4; add.s64 %rd10, %rd1, %rd9;" +
                           "ld.global.u32 %r20, [%rd10];");
    };
    CHECK(loads("mul.hi.u32 %r7, %r5, -1431655765; shr.u32 %r10, %r7, 1; mul.lo.s32 %r11, %r10, 3;"
                "sub.s32 %r8, %r5, %r11;") == "a+0..12");
    CHECK(loads("mul.hi.u32 %r7, %r5, -1431655765; shr.u32 %r10, %r7, 1; mad.lo.s32 %r8, %r10, -3, %r5;") ==
          "a+0..12");
    // Of 16 bits, as for a block's number.
    CHECK(
        loads(
            "mov.u32 %r3, %ctaid.x; cvt.u16.u32 %rs1, %r3; mul.lo.s16 %rs2, %rs1, 86; shr.u16 %rs3, %rs2, 8;"
            "mul.lo.s16 %rs4, %rs3, 3; sub.s16 %rs5, %rs1, %rs4; cvt.u32.u16 %r8, %rs5;") == "a+0..12");
    // Of other numbers, or by a factor that is too small.
    CHECK(loads("mul.hi.u32 %r7, %r4, -1431655765; shr.u32 %r10, %r7, 1; mul.lo.s32 %r11, %r10, 3;"
                "sub.s32 %r8, %r5, %r11;") != "a+0..12");
    CHECK(loads("mul.hi.u32 %r7, %r5, -1431655767; shr.u32 %r10, %r7, 1; mul.lo.s32 %r11, %r10, 3;"
                "sub.s32 %r8, %r5, %r11;") != "a+0..12");
    CHECK(loads("mul.hi.u32 %r7, %r5, -1431655765; shr.u32 %r10, %r7, 1; add.s32 %r5, %r5, 1;"
                "mul.lo.s32 %r11, %r10, 3; sub.s32 %r8, %r5, %r11;") != "a+0..12");
    // By a shift of which nothing is known.
    CHECK(loads("mul.hi.u32 %r7, %r5, 1431655766; ld.global.u32 %r9, [%rd2]; shr.u32 %r10, %r7, %r9;"
                "mad.lo.s32 %r8, %r10, -3, %r5;") != "a+0..12, b+0..4");
}

TEST_CASE("bounds: the rest of a signed division") {
    const auto loads = [](const std::string& number) {
        return bounds_text(kIndex + number + "div.s32 %r7, %r5, %r2; mul.lo.s32 %r11, %r7, %r2;" +
                           "sub.s32 %r8, %r5, %r11; mul.wide.s32 %rd9, %r8, 4; add.s64 %rd10, %rd1, %rd9;" +
                           "ld.global.u32 %r20, [%rd10];");
    };
    CHECK(loads("") == "a+0..32");
    // Of what may be negative, it may be so too.
    CHECK(loads("add.s32 %r5, %r5, -512;") == "a-4064..4096");
    CHECK(loads("cvt.s64.s32 %rd5, %r5; neg.s64 %rd6, %rd5; cvt.u32.u64 %r5, %rd6;") == "a?");
}

TEST_CASE("bounds: a block's number as one of 16 bits says nothing of its upper half") {
    BoundedLaunch launch;
    launch.shape.blocks[0] = 70000;
    const std::string at =
        "mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd9, %r3, 4; add.s64 %rd10, %rd1, %rd9;"
        "ld.global.u32 %r20, [%rd10];";
    const std::string all = "a+0..280000";
    CHECK(bounds_text(at, launch) == all);
    CHECK(bounds_text("mov.u16 %rs1, %ctaid.x; setp.ge.u16 %p1, %rs1, 100; @%p1 ret;" + at, launch) == all);
}

TEST_CASE("bounds: what a pointer decides beside where accesses are") {
    const std::string load = "ld.global.u32 %r9, [%rd9];";
    CHECK(moving("add.s64 %rd9, %rd1, 16;" + load + "st.global.u32 [%rd2], %r9;") == "ab");
    CHECK(moving("mad.lo.s64 %rd9, %rd4, 4, %rd1;" + load) == "a");
    CHECK(moving("cvta.to.global.u64 %rd8, %rd1; sub.s64 %rd9, %rd8, 8;" + load) == "a");
    // Whether there is an access, and where it is within what the pointer leads to.
    CHECK(moving("setp.eq.s64 %p1, %rd1, 0; @%p1 ret; mov.u64 %rd9, %rd1;" + load) == "");
    CHECK(moving("setp.lt.u64 %p1, %rd1, %rd2; @%p1 ret; mov.u64 %rd9, %rd3;" + load) == "c");
    CHECK(moving("and.b64 %rd9, %rd1, -16;" + load) == "");
    CHECK(moving("sub.s64 %rd8, %rd2, %rd1; add.s64 %rd9, %rd3, %rd8;" + load) == "");
    // One of two, a sum of two.
    CHECK(moving("setp.eq.s64 %p1, %rd4, 0; selp.b64 %rd9, %rd1, %rd2, %p1;" + load) == "");
    CHECK(moving("add.s64 %rd9, %rd1, %rd4;" + load) == "");
}

TEST_CASE("bounds: a grid of threads, guarded") {
    CHECK(bounds_text("ld.global.u32 %r3, [%rd1+8]; st.global.v4.u32 [%rd2], {%r3, %r3, %r3, %r3};") ==
          "a+8..12, b+0..16 w");
    CHECK(bounds_text(kIndex + kElements + kCopy) == "a+0..4096, b+0..4096 w");
    CHECK(bounds_text(kIndex + "setp.ge.s32 %p1, %r5, %r1; @%p1 bra $E;" + kElements + kCopy + "$E:") ==
          "a+0..4000, b+0..4000 w");
    CHECK(bounds_text(kIndex + "setp.ge.s32 %p1, %r5, %r1; @%p1 ret;" + kElements + kCopy) ==
          "a+0..4000, b+0..4000 w");
    CHECK(bounds_text(kIndex + "setp.lt.u32 %p1, %r5, %r1; @!%p1 bra $E;" + kElements + kCopy + "$E:") ==
          "a+0..4000, b+0..4000 w");
    // As Triton masks loads.
    CHECK(bounds_text(kIndex + "setp.lt.s32 %p1, %r5, %r1;" + kElements +
                      "@%p1 ld.global.b32 %r20, [%rd10]; @%p1 st.global.b32 [%rd11], %r20;") ==
          "a+0..4000, b+0..4000 w");
    // No thread.
    CHECK(bounds_text(kIndex + "setp.ge.s32 %p1, %r5, %r1; @%p1 ret;" + kElements + kCopy, {.n = 0}) == "");
    // "a[i - 3] .. a[i + 3]"
    CHECK(bounds_text(kIndex + "setp.ge.s32 %p1, %r5, %r1; @%p1 ret;" + kElements +
                      "ld.global.u32 %r20, [%rd10+-12]; ld.global.u32 %r21, [%rd10+12];") == "a-12..4012");
    CHECK(bounds_text(kIndex + "setp.lt.s32 %p1, %r5, 3; setp.ge.or.s32 %p2, %r5, %r1, %p1; @%p2 ret;" +
                      kElements + kCopy) == "a+12..4000, b+12..4000 w");
    CHECK(
        bounds_text(kIndex +
                    "setp.gt.s32 %p1, %r5, 2; setp.lt.s32 %p2, %r5, %r1; and.pred %p3, %p1, %p2; @!%p3 ret;" +
                    kElements + kCopy) == "a+12..4000, b+12..4000 w");
    // Where not both hold, either may.
    CHECK(bounds_text(kIndex +
                      "ld.global.u32 %r7, [%rd3]; setp.lt.s32 %p1, %r5, 10; setp.eq.s32 %p2, %r7, 0;"
                      "and.pred %p3, %p1, %p2; @%p3 ret;" +
                      kElements + kCopy) == "a+0..4096, b+0..4096 w, c+0..4");
    // Atomics write.
    CHECK(bounds_text("mov.u32 %r3, %tid.x; mul.wide.u32 %rd9, %r3, 8; add.s64 %rd10, %rd1, %rd9;"
                      "atom.global.add.u64 %rd11, [%rd10], %rd4; red.global.add.u32 [%rd2+4], 1;") ==
          "a+0..2048 w, b+4..8 w");
    CHECK(bounds_text(
              "mov.u32 %r3, %laneid; mul.wide.u32 %rd9, %r3, 2; add.s64 %rd10, %rd1, %rd9; ld.global.u16 "
              "%rs1, [%rd10];") == "a+0..64");
}

TEST_CASE("bounds: grids of two and three dimensions") {
    const std::string index =
        "mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.s32 %r7, %r3, %r4, %r6;"
        "mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ntid.y; mov.u32 %r6, %tid.y; mad.lo.s32 %r8, %r3, %r4, %r6;"
        "mov.u32 %r3, %ctaid.z; mov.u32 %r4, %ntid.z; mov.u32 %r6, %tid.z; mad.lo.s32 %r9, %r3, %r4, %r6;";
    const BoundedLaunch launch{{{2, 4, 3}, {32, 8, 2}}, 50, 30};
    CHECK(bounds_text(
              index +
                  "setp.ge.s32 %p1, %r7, %r1; setp.ge.s32 %p2, %r8, %r2; or.pred %p3, %p1, %p2; @%p3 ret;"
                  "mad.lo.s32 %r10, %r9, %r2, %r8; mad.lo.s32 %r5, %r10, %r1, %r7;" +
                  kElements + kCopy,
              launch) == "a+0..36000, b+0..36000 w");
    CHECK(bounds_text(index + "mov.u32 %r10, %nctaid.y; mad.lo.s32 %r5, %r9, %r10, %r8;" + kElements + kCopy,
                      launch) == "a+0..208, b+0..208 w");
}

TEST_CASE("bounds: loops over a grid") {
    const std::string stride = kIndex + "mov.u32 %r7, %nctaid.x; mul.lo.s32 %r8, %r4, %r7;\n";
    const BoundedLaunch launch{.n = 5000, .k = 5000};
    for (const std::string type : {"s32", "u32"}) {
        CHECK(bounds_text(stride + "setp.ge." + type + " %p1, %r5, %r1; @%p1 bra $E; $L:" + kElements +
                              kCopy + "add.s32 %r5, %r5, %r8; setp.lt." + type +
                              " %p2, %r5, %r1; @%p2 bra $L; $E:",
                          launch) == "a+0..20000, b+0..20000 w");
    }
    // LLVM: a copy at the end of each round.
    CHECK(bounds_text(stride +
                          "mov.b32 %r9, %r5; $L: setp.ge.s32 %p1, %r9, %r1; @%p1 bra $E;"
                          "mul.wide.s32 %rd9, %r9, 4; add.s64 %rd10, %rd1, %rd9; ld.global.u32 %r20, [%rd10];"
                          "add.s32 %r10, %r9, %r8; mov.b32 %r9, %r10; bra.uni $L; $E:",
                      launch) == "a+0..20000");
    // 64 bits, unsigned.
    CHECK(bounds_text(kIndex +
                          "cvt.u64.u32 %rd5, %r5; setp.ge.u64 %p1, %rd5, %rd4; @%p1 bra $E; $L:"
                          "shl.b64 %rd9, %rd5, 2; add.s64 %rd10, %rd1, %rd9; ld.global.u32 %r20, [%rd10];"
                          "add.s64 %rd5, %rd5, 1024; setp.lt.u64 %p2, %rd5, %rd4; @%p2 bra $L; $E:",
                      launch) == "a+0..20000");
}

TEST_CASE("bounds: loops of one thread") {
    // By 4, and what is left: nvcc counts down by what is there in steps of 4.
    CHECK(bounds_text(
              "and.b32 %r3, %r1, 3; sub.s32 %r4, %r1, %r3; mov.u32 %r5, 0; $L: mul.wide.s32 %rd9, %r5, 4;"
              "add.s64 %rd10, %rd1, %rd9; ld.global.u32 %r20, [%rd10]; ld.global.u32 %r21, [%rd10+4];"
              "ld.global.u32 %r22, [%rd10+8]; ld.global.u32 %r23, [%rd10+12]; add.s32 %r5, %r5, 4;"
              "add.s32 %r4, %r4, -4; setp.ne.s32 %p1, %r4, 0; @%p1 bra $L;"
              "$R: mul.wide.s32 %rd11, %r5, 4; add.s64 %rd12, %rd2, %rd11; ld.global.u32 %r24, [%rd12];",
              {.n = 1002}) == "a+0..4000, b+16..4004");
    // What is left of a loop by 4 whose threads begin at different places.
    CHECK(bounds_text(kIndex + "and.b32 %r7, %r5, 3; setp.eq.s32 %p1, %r7, 0; @%p1 ret; mov.u64 %rd5, %rd1;"
                               "$L: st.global.u32 [%rd5], %r7; add.s64 %rd5, %rd5, 4; add.s32 %r7, %r7, -1;"
                               "setp.ne.s32 %p1, %r7, 0; @%p1 bra $L;") == "a+0..12 w");
    // But not in steps of 2, which pass 0 by, nor where some thread begins with 0.
    for (const std::string begins :
         {"rem.u32 %r7, %r5, 7; setp.eq.s32 %p1, %r7, 0; @%p1 ret; mov.u32 %r8, -2;",
          "and.b32 %r7, %r5, 3; mov.u32 %r8, -1;"})
        CHECK(bounds_text(kIndex + begins +
                          "mov.u64 %rd5, %rd1;"
                          "$L: st.global.u32 [%rd5], %r7; add.s64 %rd5, %rd5, 4; add.s32 %r7, %r7, %r8;"
                          "setp.ne.s32 %p1, %r7, 0; @%p1 bra $L;") == "a? w");
    // A matrix by its columns, by 4: the pointer moves by the rows' bytes, four times a round.
    CHECK(bounds_text("mul.wide.s32 %rd5, %r2, 4; mov.u32 %r4, %r1; mov.u64 %rd6, %rd1; $L:"
                      "ld.global.u32 %r20, [%rd6]; add.s64 %rd7, %rd6, %rd5; ld.global.u32 %r21, [%rd7];"
                      "add.s64 %rd8, %rd7, %rd5; ld.global.u32 %r22, [%rd8]; add.s64 %rd9, %rd8, %rd5;"
                      "add.s64 %rd6, %rd9, %rd5; ld.global.u32 %r23, [%rd9]; add.s32 %r4, %r4, -4;"
                      "setp.ne.s32 %p1, %r4, 0; @%p1 bra $L;") == "a+0..31972");
    // LLVM's loops over a grid: the next number is tested.
    CHECK(bounds_text(
              kIndex +
                  "mov.u32 %r7, %nctaid.x; mul.lo.s32 %r8, %r7, %r4; setp.ge.s32 %p1, %r5, %r1; @%p1 ret;"
                  "mov.b32 %r9, %r5; $L: mul.wide.s32 %rd9, %r9, 4; add.s64 %rd10, %rd1, %rd9;"
                  "ld.global.u32 %r20, [%rd10]; add.s32 %r10, %r9, %r8; setp.lt.s32 %p2, %r10, %r1;"
                  "mov.b32 %r9, %r10; @%p2 bra $L;",
              {.n = 5000}) == "a+0..20000");
    // A pointer that each round moves.
    CHECK(bounds_text(
              "mov.u32 %r3, 0; mov.u64 %rd5, %rd1; $L: st.global.u32 [%rd5], %r3; add.s64 %rd5, %rd5, 4;"
              "add.s32 %r3, %r3, 1; setp.lt.s32 %p1, %r3, %r1; @%p1 bra $L;") == "a+0..4000 w");
    // Loops in loops.
    CHECK(bounds_text("mov.u32 %r3, 0; $O: mov.u32 %r4, 0; $I: mad.lo.s32 %r5, %r3, %r2, %r4;" + kElements +
                          kCopy +
                          "add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, %r2; @%p1 bra $I; add.s32 %r3, %r3, 1;"
                          "setp.lt.s32 %p2, %r3, %r1; @%p2 bra $O;",
                      {.n = 10, .m = 8}) == "a+0..320, b+0..320 w");
    // Downwards, signed.
    CHECK(bounds_text("add.s32 %r5, %r1, -1; setp.lt.s32 %p1, %r5, 0; @%p1 ret; $L:" + kElements + kCopy +
                      "add.s32 %r5, %r5, -1; setp.gt.s32 %p2, %r5, -1; @%p2 bra $L;") ==
          "a+0..4000, b+0..4000 w");
    // Another way out only shortens it.
    CHECK(
        bounds_text("mov.u32 %r5, 0; $L:" + kElements + kCopy +
                    "setp.eq.s32 %p1, %r20, 7; @%p1 bra $E; add.s32 %r5, %r5, 1; setp.lt.s32 %p2, %r5, %r1; "
                    "@%p2 bra $L; $E:") == "a+0..4000, b+0..4000 w");
}

TEST_CASE("bounds: numbers that are computed") {
    CHECK(bounds_text(kIndex + "div.u32 %r7, %r5, 3; mul.wide.u32 %rd9, %r7, 4; add.s64 %rd10, %rd1, %rd9; "
                               "ld.global.u32 %r20, [%rd10];") == "a+0..1368");
    CHECK(bounds_text(kIndex + "rem.s32 %r5, %r5, 100;" + kElements + kCopy) == "a+0..400, b+0..400 w");
    CHECK(bounds_text(kIndex + "and.b32 %r5, %r5, 31;" + kElements + kCopy) == "a+0..128, b+0..128 w");
    // As Triton finds a thread's part of a tile.
    CHECK(bounds_text(
              "mov.u32 %r3, %ctaid.x; shl.b32 %r4, %r3, 6; mov.u32 %r6, %tid.x; bfe.u32 %r7, %r6, 3, 4;"
              "shl.b32 %r8, %r7, 2; or.b32 %r5, %r4, %r8; setp.lt.s32 %p1, %r5, %r1;" +
              kElements + "@%p1 ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [ %rd10 + 0 ];") == "a+0..1024");
    CHECK(bounds_text(kIndex + "shr.u32 %r5, %r5, 5;" + kElements + kCopy) == "a+0..128, b+0..128 w");
    CHECK(bounds_text(kIndex + "min.s32 %r5, %r5, 9; max.s32 %r5, %r5, 2;" + kElements + kCopy) ==
          "a+8..40, b+8..40 w");
    CHECK(bounds_text(kIndex + "neg.s32 %r5, %r5;" + kElements + kCopy) == "a-4092..4, b-4092..4 w");
    CHECK(bounds_text(kIndex +
                      "cvt.s64.s32 %rd5, %r5; mad.lo.s64 %rd6, %rd5, 8, %rd1; ld.global.u64 %rd7, [%rd6];") ==
          "a+0..8192");
    // A loaded number of 8 bits is no larger.
    CHECK(bounds_text(
              "ld.global.u8 %rs1, [%rd2]; mul.wide.u16 %r3, %rs1, 4; cvt.u64.u32 %rd5, %r3; add.s64 %rd6, "
              "%rd1, %rd5;"
              "ld.global.u32 %r4, [%rd6];") == "a+0..1024, b+0..1");
    // Loaded, then held against a parameter.
    CHECK(bounds_text("ld.global.u32 %r5, [%rd3]; setp.ge.u32 %p1, %r5, %r1; @%p1 ret;" + kElements +
                      kCopy) == "a+0..4000, b+0..4000 w, c+0..4");
}

TEST_CASE("bounds: parameters that lie in a struct") {
    const std::string head =
        ".version 8.4\n.target sm_75\n.address_size 64\n.visible .entry f(.param .align 8 .b8 "
        "s[16])\n{\n.reg .b32 %r<9>;\n"
        ".reg .b64 %rd<9>;\n";
    for (const std::string text :
         {"ld.param.u64 %rd2, [s]; ld.param.v2.u32 {%r3, %r1}, [s+4];",
          "mov.b64 %rd1, s; ld.param.u64 %rd2, [%rd1]; ld.param.u32 %r1, [%rd1+8];",
          "mov.b64 %rd1, s; add.s64 %rd3, %rd1, 8; ld.param.u64 %rd2, [s]; ld.param.u32 %r1, [%rd3];"}) {
        PtxModule module(head + text +
                         "mad.wide.s32 %rd4, %r1, 4, %rd2; ld.global.u32 %r2, [%rd4]; ret;\n}\n");
        const auto all = module.bounds_of("f");
        REQUIRE(all);
        REQUIRE(all->inputs().size() == 2);
        std::vector<std::uint64_t> inputs;
        for (const auto& each : all->inputs()) inputs.push_back(each.bytes == 8 ? 1 << 20 : 10);
        CHECK(PtxBounds::placed(all->follow({{1, 1, 1}, {1, 1, 1}}, inputs), inputs).ranges ==
              std::vector<AccessRange>{{(1 << 20) + 40, (1 << 20) + 44, false}});
    }
}

TEST_CASE("bounds: accesses that nothing bounds") {
    // By loaded numbers of 64 bits.
    CHECK(bounds_text("cvta.to.global.u64 %rd7, %rd1; ld.global.u64 %rd5, [%rd2]; add.s64 %rd6, %rd7, %rd5; "
                      "st.global.u32 [%rd6], 1;") == "a? w, b+0..8");
    CHECK(bounds_text(
              "$L: st.global.u32 [%rd1], 1; add.s64 %rd1, %rd1, 4; ld.global.u32 %r3, [%rd2]; setp.ne.s32 "
              "%p1, %r3, 0;"
              "@%p1 bra $L;") == "a? w, b+0..4");
    // A loop whose counter goes round its type.
    CHECK(
        bounds_text("mov.u64 %rd5, 5; $L: add.s64 %rd6, %rd1, %rd5; ld.global.u8 %rs1, [%rd6]; add.s64 %rd5, "
                    "%rd5, -2;"
                    "setp.ne.s64 %p1, %rd5, 0; @%p1 bra $L;") == "a?");
    CHECK(
        bounds_text("ld.global.u32 %r3, [%rd1]; wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r4, %r5, "
                    "%r6, %r7, %r8, %r9, %r10, "
                    "%r11}, [%rd2], %r1;") == "a+0..4, b?");
}

TEST_CASE("bounds: kernels that show nothing") {
    const std::string load = "ld.global.u32 %r20, [%rd1];";
    CHECK(bounds_text(load) == "a+0..4");
    CHECK(bounds_text(load + "$T: .branchtargets $A, $B; brx.idx %r1, $T; $A: ret; $B:") == "none");
    CHECK(bounds_text("{.param .b32 x; st.param.b32 [x], %r1; call g, (x);}" + load, {}, "",
                      ".func g(.param .b32 x) { ret; }") == "none");
    // Text that is printed may be memory of the program's.
    CHECK(bounds_text(
              "{.param .b64 x; .param .b64 y; st.param.b64 [x], %rd1; st.param.b64 [y], %rd2; .param .b32 z;"
              "call (z), vprintf, (x, y);}" +
                  load,
              {}, "", ".extern .func (.param .b32 z) vprintf(.param .b64 x, .param .b64 y);") == "none");
    // Names that mean two things.
    CHECK(bounds_text("mov.u32 %r5, 1; {.reg .b32 %r<9>; mov.u32 %r5, %r1;}" + kElements + kCopy) == "none");
    CHECK(bounds_text("{ $L: } { $L: }" + load) == "none");
    CHECK(bounds_text(".reg .v2 .b32 v; mov.u32 v.x, 1;" + load) == "none");
    // Their grid is of clusters.
    CHECK(bounds_text(load, {}, ".blocksareclusters .reqntid 32, 1, 1 .reqnctapercluster 2, 1, 1") == "none");
    // Tensor maps that the kernel makes.
    CHECK(bounds_text("tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;" + load) ==
          "none");
    // Loops that are entered at two places.
    CHECK(
        bounds_text("setp.eq.s32 %p1, %r1, 0; @%p1 bra $B; $A: add.s32 %r3, %r3, 1; $B: add.s32 %r4, %r4, 1;"
                    "setp.lt.s32 %p2, %r4, 9; @%p2 bra $A;" +
                    load) == "none");
}

// Each of these was taken for less than it may be.
TEST_CASE("bounds: values that may be more than they seem") {
    const std::string anywhere = "a?, b? w, c+0..4";
    const std::string some = "ld.global.u32 %r5, [%rd3];";
    const std::string some16 = "ld.global.s16 %rs1, [%rd3];";
    const std::string use16 = "cvt.s32.s16 %r5, %rs1;" + kElements + kCopy;
    SUBCASE("negative numbers are large unsigned ones") {
        const std::string all16 = "a-131072..131072, b-131072..131072 w, c+0..2";
        CHECK(bounds_text(some16 + "cvt.u32.s16 %r6, %rs1; setp.lt.u32 %p1, %r6, 10; @%p1 ret;" + use16) ==
              all16);
        CHECK(bounds_text(some16 + "mul.wide.s16 %r6, %rs1, 4; setp.lt.u32 %p1, %r6, 40; @%p1 ret;" +
                          use16) == all16);
        CHECK(bounds_text(some + "shr.s32 %r6, %r5, 1; setp.lt.u32 %p1, %r6, 10; @%p1 ret;" + kElements +
                          kCopy) == anywhere);
        CHECK(bounds_text("mov.u64 %rd5, -1; mov.u32 %r6, 7; shr.u64 %rd6, %rd5, %r6; setp.gt.s64 %p1, %rd4, "
                          "%rd6; @%p1 ret;"
                          "st.global.u32 [%rd1], 1;") == "a+0..4 w");
    }
    SUBCASE("a factor is read by the type of the product") {
        CHECK(bounds_text(some + "mul.wide.s32 %rd5, %r5, %r1; setp.lt.s64 %p1, %rd5, 0; @%p1 ret;" +
                              kElements + kCopy,
                          {.n = 4294967280}) == anywhere);
    }
    SUBCASE("registers may be wider than what is converted") {
        CHECK(bounds_text("mov.u32 %r6, -3; cvt.u16.u32 %r5, %r6; ld.global.u32 %r7, [%rd3];" + kElements +
                          kCopy) == anywhere);
        CHECK(bounds_text(
                  "mov.u32 %r6, %tid.x; add.s32 %r6, %r6, 4096; cvt.u16.u32 %rs1, %r6; cvt.s16.s8 %rs2, %rs1;"
                  "setp.gt.s16 %p1, %rs2, 5; @%p1 ret; mul.wide.u16 %r5, %rs1, 1;" +
                  kElements + kCopy) == "a+16384..17408, b+16384..17408 w");
    }
    SUBCASE("instructions that give values elsewhere than most") {
        CHECK(bounds_text("mov.u32 %r5, 0; bar.red.popc.u32 %r5, 0, %p1; ld.global.u32 %r7, [%rd3];" +
                          kElements + kCopy) == anywhere);
        CHECK(bounds_text(
                  "setp.eq.s32 %p1, %r1, 0; tex.2d.v4.s32.s32 {%r3, %r4, %r5, %r6}|%p1, [%rd3, {%r1, %r1}];"
                  "@%p1 st.global.u32 [%rd1], 1;") == "a+0..4 w");
    }
    SUBCASE("registers that have another value each time") {
        CHECK(bounds_text("mov.u32 %r6, %clock; setp.gt.u32 %p1, %r6, 9; @%p1 ret; mov.u32 %r5, %clock;"
                          "ld.global.u32 %r7, [%rd3];" +
                          kElements + kCopy) == anywhere);
    }
    SUBCASE("modifiers and expressions") {
        CHECK(
            bounds_text("mov.u32 %r6, %tid.x; neg.s32 %r6, %r6; min.relu.s32 %r5, %r6, 3; ld.global.u32 %r7, "
                        "[%rd3];" +
                        kElements + kCopy) == anywhere);
        CHECK(bounds_text("mov.u32 %r6, %tid.x; and.b32 %r5, %r6, ~7; ld.global.u32 %r7, [%rd3];" +
                          kElements + kCopy) == anywhere);
    }
    SUBCASE("what a round takes over was computed in the round before") {
        CHECK(bounds_text(
                  "mov.u32 %r5, 0; mov.u32 %r8, 500; mov.u32 %r9, 0; ld.global.u32 %r7, [%rd3]; $L:" +
                  kElements + kCopy +
                  "mov.u32 %r5, %r8; add.s32 %r8, %r5, 1; add.s32 %r9, %r9, 1; setp.lt.s32 %p1, %r9, 10; "
                  "@%p1 bra $L;") == "a+0..2040, b+0..2040 w, c+0..4");
    }
}

// %r5 goes up by 1 in each round of some loop, and how many rounds there are does not show.
TEST_CASE("bounds: loops that may go on") {
    const std::string begin =
        "mov.u32 %r5, 0; mov.u32 %r8, 0; ld.global.u32 %r7, [%rd3];"
        "setp.eq.s32 %p2, %r7, 0; $L:" +
        kElements + kCopy;
    const auto unbounded = [&](const std::string& rest) {
        CHECK(bounds_text(begin + rest) == "a?, b? w, c+0..4");
    };
    // What is tested goes on in some rounds alone.
    unbounded("add.s32 %r5, %r5, 1; @%p2 add.s32 %r8, %r8, 1; setp.lt.s32 %p1, %r8, 10; @%p1 bra $L;");
    unbounded(
        "add.s32 %r5, %r5, 1; @%p2 bra $S; add.s32 %r8, %r8, 1; $S: setp.lt.s32 %p1, %r8, 10; @%p1 bra $L;");
    // It is tested in some rounds alone.
    unbounded(
        "@%p2 bra $S; setp.ge.s32 %p3, %r8, 10; @%p3 bra $E; $S:"
        "add.s32 %r5, %r5, 1; add.s32 %r8, %r8, 1; bra $L; $E:");
    // It begins anew.
    unbounded(
        "add.s32 %r5, %r5, 1; @%p2 mov.u32 %r8, 0; add.s32 %r8, %r8, 1; setp.lt.s32 %p1, %r8, 10; @%p1 bra "
        "$L;");
    // A loop in the loop goes on with it.
    unbounded(
        "mov.u32 %r9, 0; $I: add.s32 %r5, %r5, 1; add.s32 %r9, %r9, 1; setp.lt.s32 %p3, %r9, 5; @%p3 bra $I;"
        "add.s32 %r8, %r8, 1; setp.lt.s32 %p1, %r8, 10; @%p1 bra $L;");
    // The bound moves on.
    unbounded("add.s32 %r5, %r5, 1; add.s32 %r9, %r5, 5; setp.lt.s32 %p1, %r5, %r9; @%p1 bra $L;");
    // An older test is asked again.
    unbounded(
        "@%p2 bra $S; setp.lt.s32 %p1, %r8, 10; $S: add.s32 %r5, %r5, 1; add.s32 %r8, %r8, 1; @%p1 bra $L;");
    // Its steps pass the end of its type by.
    unbounded("add.s32 %r5, %r5, 1; add.s32 %r8, %r8, 7; setp.ne.s32 %p1, %r8, 10; @%p1 bra $L;");
    unbounded("add.s32 %r5, %r5, 1; add.s32 %r8, %r8, 3; setp.lt.u32 %p1, %r8, -1; @%p1 bra $L;");
    unbounded("add.s32 %r5, %r5, 1; add.s32 %r8, %r8, 1; setp.le.s32 %p1, %r8, 0x7fffffff; @%p1 bra $L;");
    unbounded("add.s32 %r5, %r5, 1; add.s32 %r8, %r8, -1; setp.ge.u32 %p1, %r8, 0; @%p1 bra $L;");
}

// 2^40 ways of asking, were each predicate asked as often as it is named.
TEST_CASE("bounds: predicates of predicates") {
    std::string text = ".reg .pred %q<50>; setp.eq.s32 %q0, %r1, 0;";
    for (int i = 0; i < 40; ++i) {
        const std::string from = "%q" + std::to_string(i);
        text += "or.pred %q" + std::to_string(i + 1) + ", " + from + ", " + from + ";";
    }
    CHECK(bounds_text(text + "@%q40 ret; st.global.u32 [%rd1], 1;") == "a+0..4 w");
}

TEST_CASE("bounds: a choice, by what its condition says of either") {
    // IREE's blocks of a matrix: four columns of blocks by a number of the grid that counts on through two
    // rows.
    const std::string column =
        "mov.u32 %r3, %ctaid.x; setp.lt.u32 %p1, %r3, 2; shl.b32 %r4, %r3, 7; add.s32 %r6, %r4, -256;"
        "selp.b32 %r5, %r4, %r6, %p1;";
    CHECK(bounds_text(column + kElements + kCopy) == "a+0..516, b+0..516 w");
    // The same the other way round, and by a condition that is an opposite.
    CHECK(bounds_text("mov.u32 %r3, %ctaid.x; setp.ge.u32 %p1, %r3, 2; shl.b32 %r4, %r3, 7;"
                      "add.s32 %r6, %r4, -256; selp.b32 %r5, %r6, %r4, %p1;" +
                      kElements + kCopy) == "a+0..516, b+0..516 w");
    // What the condition says is forgotten behind it.
    CHECK(bounds_text(column + "mov.u32 %r5, %r3;" + kElements + kCopy) == "a+0..16, b+0..16 w");
    CHECK(bounds_text(column + "mov.u32 %r5, %r6; add.s32 %r5, %r5, 256;" + kElements + kCopy) ==
          "a+0..1540, b+0..1540 w");
    // One that cannot be.
    CHECK(bounds_text("setp.lt.u32 %p1, %r1, 2000; selp.b32 %r5, 3, -1, %p1;" + kElements + kCopy) ==
          "a+12..16, b+12..16 w");
    // Of a condition that nobody knows, both.
    CHECK(bounds_text("ld.global.u32 %r7, [%rd3]; setp.lt.u32 %p1, %r7, 9; selp.b32 %r5, 3, 1, %p1;" +
                      kElements + kCopy) == "a+4..16, b+4..16 w, c+0..4");
}

TEST_CASE("bounds: the rest of a division by a power of two") {
    // As LLVM and Triton write it: of a number that may be negative, what it adds is computed from its sign.
    const auto rest = [](const std::string& x, const std::string& mask) {
        return bounds_text(x +
                           "shr.s32 %r7, %r3, 31; shr.u32 %r8, %r7, 26; add.s32 %r9, %r3, %r8;"
                           "and.b32 %r10, %r9, " +
                           mask + "; sub.s32 %r5, %r3, %r10;" + kElements + kCopy);
    };
    const std::string index =
        "mov.u32 %r11, %ctaid.x; shl.b32 %r12, %r11, 8; mov.u32 %r13, %tid.x; or.b32 %r3, %r12, %r13;";
    CHECK(rest(index, "-64") == "a+0..256, b+0..256 w");
    // Bits that it does not have.
    CHECK(rest(index, "1048512") == "a+0..256, b+0..256 w");
    // Bits that it has.
    CHECK(rest(index, "448") == "a-1792..4096, b-1792..4096 w");
    const std::string below = "mov.u32 %r13, %tid.x; sub.s32 %r3, %r13, 100;";
    CHECK(rest(below, "-64") == "a-252..256, b-252..256 w");
    // Less than the unit is no more than the number.
    CHECK(rest("mov.u32 %r13, %tid.x; and.b32 %r3, %r13, 7;", "-64") == "a+0..32, b+0..32 w");
    CHECK(bounds_text(index + "and.b32 %r10, %r3, -64; sub.s32 %r5, %r3, %r10;" + kElements + kCopy) ==
          "a+0..256, b+0..256 w");
    // Of another number, or behind a change of it.
    CHECK(bounds_text("and.b32 %r10, 200, -64; sub.s32 %r5, 5, %r10;" + kElements + kCopy) ==
          "a-748..-744, b-748..-744 w");
    CHECK(bounds_text("div.u32 %r9, 100, 8; mul.lo.s32 %r10, %r9, 8; sub.s32 %r5, 5, %r10;" + kElements +
                      kCopy) == "a-364..-360, b-364..-360 w");
    CHECK(bounds_text(index + "and.b32 %r10, %r12, -64; sub.s32 %r5, %r3, %r10;" + kElements + kCopy) !=
          "a+0..256, b+0..256 w");
    CHECK(bounds_text(index + "add.s32 %r9, %r12, 3; and.b32 %r10, %r9, -64; sub.s32 %r5, %r3, %r10;" +
                      kElements + kCopy) == "a-3072..4096, b-3072..4096 w");
    CHECK(bounds_text(index + "and.b32 %r10, %r3, -64; add.s32 %r3, %r3, 1; sub.s32 %r5, %r3, %r10;" +
                      kElements + kCopy) != "a+0..256, b+0..256 w");
}

TEST_CASE("bounds: blocks of a grid that do different work") {
    // As inductor writes updates of many tensors as one kernel: by the block's number, which pointer it uses.
    const auto updates = [](const std::string& first, const std::string& second) {
        return bounds_text(
            "mov.u32 %r3, %ctaid.x; mov.u64 %rd5, %rd1; mov.u32 %r4, 0;" + first +
            "@%p1 bra $L; mov.u64 %rd5, %rd2; mov.u32 %r4, 1;" + second +
            "@%p2 bra $L; mov.u64 %rd5, %rd3; mov.u32 %r4, 3; $L: sub.s32 %r5, %r3, %r4;"
            "mul.wide.s32 %rd6, %r5, 16; add.s64 %rd7, %rd5, %rd6; st.global.u32 [%rd7], %r1;");
    };
    CHECK(updates("setp.lt.u32 %p1, %r3, 1;", "setp.lt.u32 %p2, %r3, 3;") ==
          "a+0..4 w, b+0..4 w, b+16..20 w, c+0..4 w");
    CHECK(updates("setp.eq.s32 %p1, %r3, 0;", "setp.le.u32 %p2, %r3, 2;") ==
          "a+0..4 w, b+0..4 w, b+16..20 w, c+0..4 w");
    // Beyond the grid, of which all blocks are alike.
    CHECK(updates("setp.lt.u32 %p1, %r3, 4;", "setp.lt.u32 %p2, %r3, 9;") == "a+0..52 w");
    // By something else.
    CHECK(updates("setp.lt.u32 %p1, %r3, 1;", "ld.global.u32 %r8, [%rd1]; setp.lt.u32 %p2, %r8, 3;") ==
          "a+0..4, a+0..4 w, a? w, b? w, c? w");
    CHECK(updates("mov.u32 %r3, %ctaid.y; setp.lt.u32 %p1, %r3, 1;", "setp.lt.u32 %p2, %r3, 3;") ==
          "a+0..4 w");
}
