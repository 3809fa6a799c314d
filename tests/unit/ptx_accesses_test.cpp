// Where the accesses of a kernel begin, as a sum of its parameters, and what else had a part in them.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "shim/code/ptx_taint.h"

using lms::code::KernelAccess;
using lms::code::LinearTerm;
using lms::code::PtxModule;

namespace {

constexpr const char* kHead = ".version 8.4\n.target sm_75\n.address_size 64\n";

// The accesses of a kernel with this body, whose parameters are a, b and c of 64 bits, in %rd1 to %rd3, and i
// and j of 32 bits, in %r1 and %r2; each as "a+4*i+65536|abi w": where it begins, what had a part in it,
// whether it may be written.
std::string accesses(const std::string& text, const std::string& before = "") {
    PtxModule module(kHead + before +
                     ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 i, "
                     ".param .u32 j)\n{\n.reg .pred %p<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
                     "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];"
                     "ld.param.u32 %r1, [i]; ld.param.u32 %r2, [j];\n" +
                     text + "\nret;\n}\n");
    REQUIRE(module.addresses_of("k") == PtxModule::Answer::Complete);
    std::vector<std::string> all;
    for (const KernelAccess& access : module.accesses_of("k")) {
        std::string one;
        for (const LinearTerm& term : access.begins.terms) {
            one += one.empty() ? "" : "+";
            if (term.factor != 1) one += std::to_string(term.factor) + "*";
            one += term.bytes == 8 ? std::string(1, static_cast<char>('a' + term.offset / 8))
                                   : std::string(term.is_signed ? "s" : "") + (term.offset == 24 ? "i" : "j");
        }
        if (access.begins.constant != 0) one += "+" + std::to_string(access.begins.constant);
        one += "|";
        for (std::size_t word = 0; word < 3; ++word) {
            if (access.words.touch(8 * word, 8)) one += static_cast<char>('a' + word);
        }
        // Both in one word.
        if (access.words.touch(24, 8)) one += "n";
        all.push_back(one + (access.written ? " w" : ""));
    }
    std::ranges::sort(all);
    std::string text_of_all;
    for (const std::string& one : all) text_of_all += (text_of_all.empty() ? "" : ", ") + one;
    return text_of_all;
}

}  // namespace

TEST_CASE("accesses: a pointer, and what threads add to it") {
    CHECK(accesses("ld.global.u32 %r3, [%rd1]; st.global.u32 [%rd2+8], %r3;") == "a|a, b|b w");
    CHECK(accesses("mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;"
                   "mad.lo.s32 %r6, %r3, %r4, %r5; setp.ge.s32 %p1, %r6, %r1; mul.wide.s32 %rd4, %r6, 4;"
                   "cvta.to.global.u64 %rd5, %rd1; add.s64 %rd6, %rd5, %rd4; st.global.u32 [%rd6], 1;") ==
          "a|a w");
    CHECK(accesses("atom.global.add.u32 %r3, [%rd1], 1; red.global.add.u32 [%rd2], 1;") == "a|a w, b|b w");
    CHECK(accesses("") == "");
}

TEST_CASE("accesses: beyond those that are kept apart by constants the parameters still tell") {
    std::string text;
    for (int i = 10; i < 80; ++i) {
        const std::string address = "%rd" + std::to_string(i);
        text += "add.s64 " + address + ", %rd1, " + std::to_string(65536 * i) + "; ld.global.u32 %r3, [" +
                address + "];";
    }
    text += "add.s64 %rd5, %rd1, %rd2; add.s64 %rd6, %rd5, 65536; st.global.u32 [%rd6], 1;";
    CHECK(accesses(text).find("a+b|ab w") != std::string::npos);
}

TEST_CASE("accesses: sums of parameters, each times a constant") {
    CHECK(accesses("shl.b64 %rd4, %rd2, 3; add.s64 %rd5, %rd1, %rd4; st.global.u32 [%rd5], 1;") ==
          "a+8*b|ab w");
    CHECK(accesses("sub.s64 %rd5, %rd1, %rd2; ld.global.u32 %r3, [%rd5];") == "a+-1*b|ab");
    CHECK(accesses("mad.lo.s64 %rd5, %rd2, 24, %rd1; ld.global.u32 %r3, [%rd5];") == "a+24*b|ab");
    CHECK(accesses("mul.lo.s64 %rd4, %rd2, -8; add.s64 %rd5, %rd4, %rd1; ld.global.u32 %r3, [%rd5];") ==
          "a+-8*b|ab");
    CHECK(accesses("mul.wide.s32 %rd4, %r1, 4; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r3, [%rd5];") ==
          "a+4*si|an");
    CHECK(accesses("add.s32 %r9, %r1, %r2; cvt.u64.u32 %rd4, %r9; add.s64 %rd5, %rd1, %rd4;"
                   "ld.global.u32 %r3, [%rd5];") == "a+i+j|an");
    // A loop begins where its first round does.
    CHECK(accesses("mov.u64 %rd4, %rd2; $L: shl.b64 %rd5, %rd4, 2; add.s64 %rd6, %rd1, %rd5;"
                   "ld.global.u32 %r3, [%rd6]; add.s64 %rd4, %rd4, 1; setp.lt.s64 %p1, %rd4, %rd3;"
                   "@%p1 bra $L;") == "a+4*b|ab");
    CHECK(accesses("mov.u64 %rd4, %rd1; $L: ld.global.u32 %r3, [%rd4]; add.s64 %rd4, %rd4, %rd2;"
                   "@%p1 bra $L;") == "a|ab");
    // They cancel out.
    CHECK(accesses("sub.s64 %rd4, %rd1, %rd2; add.s64 %rd5, %rd4, %rd2; ld.global.u32 %r3, [%rd5];") ==
          "a|ab");
}

TEST_CASE("accesses: constants count by 64 KiB, and one access as far as that goes") {
    CHECK(accesses("add.s64 %rd4, %rd1, -4194304; ld.global.u32 %r3, [%rd4];") == "a+-4194304|a");
    CHECK(accesses("ld.global.u32 %r3, [%rd1+65544]; ld.global.u32 %r3, [%rd1+65552];") == "a+65536|a");
    CHECK(accesses("ld.global.u32 %r3, [%rd1+-8]; ld.global.u32 %r3, [%rd1+0];") == "a|a");
    CHECK(accesses("add.s64 %rd4, %rd1, 0x100000; ld.global.u32 %r3, [%rd4];") == "a+1048576|a");
}

TEST_CASE("accesses: what is no sum leaves what had a part in it") {
    CHECK(accesses("and.b64 %rd4, %rd1, 281474976710655; ld.global.u32 %r3, [%rd4];") == "|a");
    CHECK(accesses("shr.u64 %rd4, %rd2, 1; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r3, [%rd5];") == "a|ab");
    CHECK(accesses("mul.lo.s64 %rd4, %rd2, %rd3; add.s64 %rd5, %rd1, %rd4; ld.global.u32 %r3, [%rd5];") ==
          "a|abc");
    // The one or the other.
    CHECK(accesses("selp.b64 %rd4, %rd1, %rd2, %p1; st.global.u32 [%rd4], 1;") == "|ab w");
    CHECK(accesses("mov.u64 %rd4, %rd1; @%p1 mov.u64 %rd4, %rd2; st.global.u32 [%rd4], 1;") == "|ab w");
    CHECK(accesses(".local .align 8 .b8 depot[16]; mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;"
                   "st.u64 [%SP], %rd1; ld.u64 %rd5, [%SP]; st.u32 [%rd5], 1;")
              .find("|a w") != std::string::npos);
}

TEST_CASE("accesses: through functions") {
    CHECK(accesses("{ .param .b64 param0; st.param.b64 [param0], %rd4; .param .b64 param1;"
                   "st.param.b64 [param1], %rd2; call.uni put, (param0, param1); } add.s64 %rd4, %rd1, %rd3;",
                   ".func put(.param .b64 p, .param .b64 q) { ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];"
                   "shl.b64 %rd3, %rd2, 2; add.s64 %rd4, %rd1, %rd3; st.u32 [%rd4], 1; ret; }\n") ==
          "a+4*b+c|abc w");
}

TEST_CASE("accesses: of variables, shared memory, textures and prefetches there are none") {
    CHECK(accesses("ld.global.u32 %r3, [v]; st.shared.u32 [s], %r3; tex.1d.v4.u32.s32 {%r3, %r4, %r5, %r6},"
                   "[%rd1, {%r1}]; prefetch.global.L2 [%rd2]; ld.const.u32 %r7, [w];",
                   ".visible .global .u32 v; .shared .u32 s; .const .u32 w;\n") == "");
}
