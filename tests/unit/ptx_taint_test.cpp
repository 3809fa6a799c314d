// Kernels whose addresses the arguments tell, and kernels whose addresses they do not.
#include <doctest/doctest.h>

#include <string>

#include "shim/code/ptx_taint.h"

using lms::code::PtxModule;
using Answer = PtxModule::Answer;

namespace {

constexpr const char* kTaintHead = ".version 8.4\n.target sm_75\n.address_size 64\n";

// What is said of a kernel with two parameters of 64 bits and one of 32, and of this body.
Answer body(const std::string& text, const std::string& before = "") {
    const std::string kernel =
        ".visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u64 k_param_1,\n\t.param .u32 k_param_2\n)\n"
        "{\n\t.reg .pred %p<9>;\n\t.reg .b32 %r<99>;\n\t.reg .b64 %rd<99>;\n"
        "\tld.param.u64 \t%rd1, [k_param_0];\n\tld.param.u64 \t%rd2, [k_param_1];\n"
        "\tld.param.u32 %r1, [k_param_2];\n\tcvta.to.global.u64 \t%rd3, %rd1;\n"
        "\tcvta.to.global.u64 %rd4, %rd2;\n" +
        text + "\tret;\n}\n";
    PtxModule module(kTaintHead + before + kernel + ".visible .entry other() { ret; }\n");
    // Else a text that cannot be followed would pass for hidden addresses.
    REQUIRE(module.addresses_of("other") == Answer::Complete);
    return module.addresses_of("k");
}

}  // namespace

TEST_CASE("addresses told: arguments, with offsets of any origin") {
    SUBCASE("computed") {
        CHECK(body("mov.u32 %r2, %tid.x; mul.wide.s32 %rd5, %r2, 4; add.s64 %rd6, %rd3, %rd5;"
                   "ld.global.f32 %f1, [%rd6+8]; st.global.f32 [%rd6], %f1;") == Answer::Complete);
    }
    SUBCASE("indices of 32 bits that were loaded") {
        CHECK(body("ld.global.u32 %r2, [%rd4]; mul.wide.s32 %rd5, %r2, 4; add.s64 %rd6, %rd3, %rd5;"
                   "red.global.add.u32 [%rd6], 1;") == Answer::Complete);
        CHECK(body("ld.global.s32 %r2, [%rd4]; cvt.s64.s32 %rd5, %r2; add.s64 %rd6, %rd1, %rd5;"
                   "ld.u8 %rs1, [%rd6];") == Answer::Complete);
    }
    SUBCASE("indices of 64 bits that were loaded") {
        CHECK(body("ld.global.u64 %rd5, [%rd4]; shl.b64 %rd6, %rd5, 2; add.s64 %rd7, %rd3, %rd6;"
                   "st.global.u32 [%rd7], %r1;") == Answer::Complete);
        CHECK(body("ld.global.u64 %rd5, [%rd4]; shl.b64 %rd6, %rd5, %r1; add.s64 %rd7, %rd3, %rd6;"
                   "st.global.u32 [%rd7], %r1;") == Answer::Complete);
        CHECK(body("ld.global.u64 %rd5, [%rd4]; add.s64 %rd7, %rd5, %rd3; ld.global.u8 %rs1, [%rd7];") ==
              Answer::Complete);
        CHECK(body("ld.global.u64 %rd5, [%rd4]; mad.lo.s64 %rd6, %rd5, 12, %rd3;"
                   "atom.global.add.u32 %r2, [%rd6], 1;") == Answer::Complete);
    }
    SUBCASE("one of two arguments, walked along in a loop") {
        CHECK(body("setp.eq.s32 %p1, %r1, 0; selp.b64 %rd5, %rd3, %rd4, %p1;\n$L__BB0_1:\n"
                   "ld.global.u32 %r2, [%rd5]; add.s64 %rd5, %rd5, 4; @%p1 bra $L__BB0_1;") ==
              Answer::Complete);
    }
    SUBCASE("through shared and local memory") {
        CHECK(body(".shared .align 8 .b8 tile[64]; mov.u32 %r2, tile; st.shared.u64 [%r2], %rd3;"
                   "bar.sync 0; ld.shared.u64 %rd5, [%r2]; ld.global.u32 %r3, [%rd5];") == Answer::Complete);
        CHECK(body(".local .align 8 .b8 __local_depot0[16]; mov.u64 %SPL, __local_depot0;"
                   "cvta.local.u64 %SP, %SPL; add.u64 %rd5, %SP, 8; st.u64 [%rd5], %rd3;"
                   "ld.u64 %rd6, [%rd5]; st.global.u32 [%rd6], %r1;") == Answer::Complete);
    }
    SUBCASE("exchanged between threads in halves") {
        CHECK(body("mov.b64 {%r2, %r3}, %rd3; shfl.sync.idx.b32 %r4|%p1, %r2, 0, 31, -1;"
                   "shfl.sync.idx.b32 %r5|%p2, %r3, 0, 31, -1; mov.b64 %rd5, {%r4, %r5};"
                   "ld.global.u32 %r6, [%rd5];") == Answer::Complete);
    }
    SUBCASE("variables of the module, and pointers in its constants, which the host writes") {
        CHECK(body("st.global.u32 [total], %r1; mov.u64 %rd5, total; atom.global.add.u32 %r2, [%rd5], 1;",
                   ".visible .global .align 4 .u32 total = 5;\n") == Answer::Complete);
        CHECK(body("ld.const.u64 %rd5, [rows+8]; cvta.to.global.u64 %rd6, %rd5;"
                   "st.global.u32 [%rd6], %r1;",
                   ".const .align 8 .b8 rows[32];\n") == Answer::Complete);
    }
    SUBCASE("arrays in the arguments") {
        CHECK(PtxModule(std::string(kTaintHead) +
                        ".visible .entry k(.param .align 8 .b8 k_param_0[64]) { mov.b64 %rd1, k_param_0;"
                        "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd3, %rd1, %rd2;"
                        "ld.param.u64 %rd4, [%rd3+16]; st.global.u32 [%rd4], %r1; ret; }")
                  .addresses_of("k") == Answer::Complete);
    }
    SUBCASE("a loaded offset to an argument that says it is a pointer") {
        const auto kernel = [](const std::string& parameter) {
            return PtxModule(kTaintHead + (".visible .entry k(.param .u64 " + parameter +
                                           "k_param_0) { ld.param.u64 %rd1, [k_param_0];"
                                           "ld.global.u64 %rd2, [%rd1]; add.s64 %rd3, %rd1, %rd2;"
                                           "st.global.u8 [%rd3], 1; ret; }"))
                .addresses_of("k");
        };
        CHECK(kernel(".ptr .global .align 1 ") == Answer::Complete);
        // What says nothing may be the offset, and the loaded value the pointer.
        CHECK(kernel("") == Answer::Incomplete);
    }
    SUBCASE("nothing global at all") {
        CHECK(body("bar.sync 0; .shared .align 4 .b8 s[4]; ld.shared.u32 %r2, [s];") == Answer::Complete);
    }
    SUBCASE("tensor maps that are arguments, or made here of such") {
        const std::string store =
            "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd9, {%r1}], [%r2];";
        const std::string load =
            "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2], "
            "[%rd9, {%r1}], [%r2];";
        const std::string tile = ".shared .align 128 .b8 tile[256]; mov.u32 %r2, tile;";
        for (const std::string& use : {store, load}) {
            CAPTURE(use);
            CHECK(body(tile + "mov.b64 %rd8, k_param_0; cvta.param.u64 %rd9, %rd8;" + use) ==
                  Answer::Complete);
            CHECK(body(tile + "mov.b64 %rd9, k_param_0;" + use) == Answer::Complete);
            CHECK(body(tile +
                       "tensormap.replace.tile.global_address.global.b1024.b64 [%rd3], %rd4;"
                       "mov.u64 %rd9, %rd3;" +
                       use) == Answer::Complete);
        }
    }
    SUBCASE("functions that touch no memory of the program's") {
        CHECK(body("{ // callseq 0, 0\n.param .b64 param0; st.param.b64 [param0+0], %rd3;"
                   ".param .b32 retval0; call.uni (retval0), vprintf, (param0, param0);"
                   "ld.param.b32 %r5, [retval0+0]; } st.global.u32 [%rd3], %r5;",
                   ".extern .func (.param .b32 func_retval0) vprintf\n(.param .b64 a, .param .b64 b)\n;\n") ==
              Answer::Complete);
    }
}

TEST_CASE("addresses hidden: loaded values, wherever they went since") {
    SUBCASE("as they are, with offsets") {
        CHECK(body("ld.global.u64 %rd5, [%rd3]; st.global.u32 [%rd5+4], %r1;") == Answer::Incomplete);
        CHECK(body("ld.u64 %rd5, [%rd1]; mul.wide.s32 %rd6, %r1, 8; add.s64 %rd7, %rd5, %rd6;"
                   "ld.f64 %fd1, [%rd7];") == Answer::Incomplete);
        CHECK(body("ld.global.v2.u64 {%rd5, %rd6}, [%rd3]; red.add.u32 [%rd6], 1;") == Answer::Incomplete);
        CHECK(body("ld.global.u64 %rd5, [%rd3]; cvta.to.global.u64 %rd6, %rd5;"
                   "atom.global.add.u32 %r2, [%rd6], 1;") == Answer::Incomplete);
        CHECK(body("ld.global.u64 %rd5, [%rd3]; add.s64 %rd6, %rd5, %rd2; ld.u8 %rs1, [%rd6];") ==
              Answer::Incomplete);
    }
    SUBCASE("followed") {
        CHECK(body("$L__BB0_1:\nld.u64 %rd1, [%rd1]; setp.ne.s64 %p1, %rd1, 0; @%p1 bra $L__BB0_1;") ==
              Answer::Incomplete);
    }
    SUBCASE("chosen") {
        CHECK(body("ld.global.u64 %rd5, [%rd3]; setp.eq.s32 %p1, %r1, 0; selp.b64 %rd6, %rd4, %rd5, %p1;"
                   "st.global.u32 [%rd6], %r1;") == Answer::Incomplete);
        CHECK(body("mov.u64 %rd6, %rd4; @%p1 ld.global.u64 %rd6, [%rd3]; st.global.u32 [%rd6], %r1;") ==
              Answer::Incomplete);
    }
    SUBCASE("with bits used for something else") {
        CHECK(body("ld.global.u64 %rd5, [%rd3]; and.b64 %rd6, %rd5, -8; ld.u32 %r2, [%rd6];") ==
              Answer::Incomplete);
        CHECK(body("ld.global.u64 %rd5, [%rd3]; shr.u64 %rd6, %rd5, 16; ld.u32 %r2, [%rd6];") ==
              Answer::Incomplete);
    }
    SUBCASE("put together from halves") {
        CHECK(body("ld.global.v2.u32 {%r2, %r3}, [%rd3]; mov.b64 %rd5, {%r2, %r3};"
                   "st.global.u32 [%rd5], 1;") == Answer::Incomplete);
        CHECK(body("ld.global.u32 %r2, [%rd3]; ld.global.u32 %r3, [%rd3+4]; cvt.u64.u32 %rd5, %r2;"
                   "cvt.u64.u32 %rd6, %r3; shl.b64 %rd7, %rd6, 32; or.b64 %rd8, %rd7, %rd5;"
                   "st.global.u32 [%rd8], 1;") == Answer::Incomplete);
    }
    SUBCASE("shifted by what nobody knows") {
        const auto after = [](const std::string& shift) {
            return body("ld.global.u64 %rd5, [%rd3]; ld.global.u32 %r2, [%rd3]; cvt.u64.u32 %rd6, %r2;" +
                        shift + "add.s64 %rd8, %rd7, %rd2; ld.u8 %rs1, [%rd8];");
        };
        CHECK(after("shl.b64 %rd7, %rd5, %r1;") == Answer::Incomplete);
        CHECK(after("shl.b64 %rd7, %rd6, %r1;") == Answer::Incomplete);
        CHECK(after("shl.b64 %rd7, %rd6, 0x20;") == Answer::Incomplete);
        CHECK(after("shl.b64 %rd7, %rd6, 32;") == Answer::Incomplete);
        // A scaled index.
        CHECK(after("shl.b64 %rd7, %rd6, 3;") == Answer::Complete);
        // Of no loaded value.
        CHECK(after("shl.b64 %rd7, 1, %r1;") == Answer::Complete);
    }
    SUBCASE("of a list that is walked along from an argument") {
        const auto walk = [](const std::string& next) {
            return body("$L__BB0_1:\nst.u32 [%rd1+8], %r1; ld.u64 %rd7, [%rd1];" + next +
                        "setp.ne.s64 %p1, %rd1, 0; @%p1 bra $L__BB0_1;");
        };
        // A tag in the upper bits, as nvcc has it taken away: ptr = (Node*)((ptr->next << 16) >> 16).
        CHECK(walk("shl.b64 %rd8, %rd7, 16; shr.s64 %rd1, %rd8, 16;") == Answer::Incomplete);
        CHECK(walk("shl.b64 %rd8, %rd7, 8; shl.b64 %rd8, %rd8, 8; shr.u64 %rd1, %rd8, 16;") ==
              Answer::Incomplete);
        // Kept in fewer bits.
        CHECK(walk("shl.b64 %rd1, %rd7, 4;") == Answer::Incomplete);
        CHECK(walk("ld.u32 %r2, [%rd1]; mul.wide.u32 %rd1, %r2, 256;") == Answer::Incomplete);
        CHECK(walk("rem.u64 %rd1, %rd7, 281474976710655;") == Answer::Incomplete);
        // Put together of bytes.
        CHECK(
            walk("mov.u64 %rd8, 0; $L__BB0_2: ld.u8 %rs1, [%rd1]; cvt.u64.u8 %rd9, %rs1;"
                 "shl.b64 %rd8, %rd8, 8; or.b64 %rd8, %rd8, %rd9; @%p2 bra $L__BB0_2; mov.u64 %rd1, %rd8;") ==
            Answer::Incomplete);
        CHECK(walk("mov.b64 {%r2, %r3}, %rd7; cvt.u64.u32 %rd8, %r2; cvt.u64.u32 %rd9, %r3;"
                   "bfi.b64 %rd1, %rd9, %rd8, 32, 32;") == Answer::Incomplete);
        // Before an offset is added, and one of several.
        CHECK(walk("ld.u32 %r2, [%rd1]; mul.wide.u32 %rd8, %r2, 256; add.s64 %rd9, %rd8, 8;"
                   "selp.b64 %rd1, %rd2, %rd9, %p2;") == Answer::Incomplete);
        CHECK(walk("mov.u64 %rd8, 0; sub.s64 %rd9, %rd8, %rd7; selp.b64 %rd1, %rd2, %rd9, %p2;") ==
              Answer::Incomplete);
        // Told by the way from an argument, or mixed with one.
        CHECK(walk("sub.s64 %rd8, %rd7, %rd3; add.s64 %rd1, %rd3, %rd8;") == Answer::Incomplete);
        CHECK(walk("xor.b64 %rd1, %rd7, %rd3;") == Answer::Incomplete);
        CHECK(walk("sub.s64 %rd8, %rd7, %rd3; shr.s64 %rd9, %rd8, 2; mad.lo.s64 %rd1, %rd9, 8, %rd3;") ==
              Answer::Complete);
        // An index.
        CHECK(walk("shl.b64 %rd8, %rd7, 4; add.s64 %rd1, %rd2, %rd8;") == Answer::Complete);
        CHECK(walk("mul.lo.s64 %rd8, %rd7, 12; sub.s64 %rd1, %rd2, %rd8;") == Answer::Complete);
        // Numbers that are stored where addresses are.
        CHECK(walk(".local .align 8 .b8 depot[16]; mov.u64 %rd8, depot; ld.global.u32 %r2, [%rd3];"
                   "mul.lo.s32 %r3, %r2, 3; st.local.u32 [%rd8+8], %r3; st.local.u64 [%rd8], %rd2;"
                   "ld.local.u64 %rd1, [%rd8];") == Answer::Complete);
    }
    SUBCASE("an element of a vector") {
        CHECK(body(".reg .v2 .b64 pair; ld.global.v2.b64 pair, [%rd3]; setp.eq.s32 %p1, %r1, 0;"
                   "selp.b64 %rd5, %rd4, pair.y, %p1; st.global.u32 [%rd5], 1;") == Answer::Incomplete);
    }
    SUBCASE("put into a tensor map") {
        const std::string store =
            "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd3, {%r1}], [%r2];";
        const auto with = [&](const std::string& value) {
            return body(
                ".shared .align 128 .b8 tile[256]; mov.u32 %r2, tile;"
                "ld.global.u32 %r5, [%rd3]; ld.global.u64 %rd7, [%rd3];" +
                value +
                "tensormap.replace.tile.global_address.global.b1024.b64 [%rd3], %rd9;"
                "tensormap.replace.tile.global_dim.global.b1024.b32 [%rd3], 0, %r5;" +
                store);
        };
        CHECK(with("mov.u64 %rd9, %rd4;") == Answer::Complete);
        CHECK(with("mov.u64 %rd9, %rd7;") == Answer::Incomplete);
        CHECK(with("mul.wide.u32 %rd9, %r5, 256;") == Answer::Incomplete);
        CHECK(with("mul.wide.u32 %rd8, %r5, 256; add.s64 %rd9, %rd8, 16;") == Answer::Incomplete);
    }
    SUBCASE("behind a line's number") {
        CHECK(body(".loc 1 1 1 st.global.u32 [%rd4], 1;\n") == Answer::Incomplete);
        CHECK(body(".loc 1 1 1\n st.global.u32 [%rd4], 1;\n") == Answer::Complete);
    }
    SUBCASE("through shared memory") {
        CHECK(body(".shared .align 8 .b8 tile[64]; ld.global.u64 %rd5, [%rd3]; st.shared.u64 [tile], %rd5;"
                   "ld.shared.u64 %rd6, [tile]; ld.u32 %r2, [%rd6];") == Answer::Incomplete);
        CHECK(body(".shared .align 8 .b8 tile[64]; mov.u32 %r2, tile;"
                   "cp.async.ca.shared.global [%r2], [%rd3], 8; ld.shared.u64 %rd6, [tile];"
                   "ld.u32 %r3, [%rd6];") == Answer::Incomplete);
    }
    SUBCASE("from a variable that kernels may write") {
        CHECK(body("ld.global.u64 %rd5, [head]; ld.u32 %r2, [%rd5];",
                   ".visible .global .align 8 .u64 head;\n") == Answer::Incomplete);
    }
    SUBCASE("exchanged") {
        CHECK(body("atom.global.exch.b64 %rd5, [%rd3], 0; ld.u32 %r2, [%rd5];") == Answer::Incomplete);
    }
    SUBCASE("the relation of two pointers put on a loaded one") {
        CHECK(body("ld.global.u64 %rd5, [%rd3]; sub.s64 %rd6, %rd4, %rd3; add.s64 %rd7, %rd5, %rd6;"
                   "ld.u32 %r2, [%rd7];") == Answer::Incomplete);
    }
    SUBCASE("an address from nowhere") {
        CHECK(body("mov.u64 %rd5, 4096; ld.global.u32 %r2, [%rd5];") == Answer::Incomplete);
        CHECK(body("ld.global.u32 %r2, [%rd77];") == Answer::Incomplete);
    }
    SUBCASE("in tensor maps") {
        const std::string store =
            "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd3, {%r1}], [%r2];";
        const std::string load =
            "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r2], "
            "[%rd3, {%r1}], [%r2];";
        const std::string tile = ".shared .align 128 .b8 tile[256]; mov.u32 %r2, tile;";
        for (const std::string& use : {store, load}) {
            CAPTURE(use);
            // Which others may have made.
            CHECK(body(tile + use) == Answer::Incomplete);
            CHECK(body(tile +
                       "ld.global.u64 %rd5, [%rd4];"
                       "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r2], %rd5;"
                       "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
                       "aligned [%rd3], [%r2], 128;" +
                       use) == Answer::Incomplete);
        }
    }
    SUBCASE("put into shared memory by what is no store") {
        CHECK(body(".shared .align 8 .b8 tile[64]; mov.u32 %r2, tile; st.shared.u64 [%r2], %rd4;"
                   "ld.global.v2.u32 {%r3, %r4}, [%rd3];"
                   "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r2], {%r3, %r4};"
                   "ld.shared.u64 %rd6, [%r2]; st.global.u32 [%rd6], 1;") == Answer::Incomplete);
    }
    SUBCASE("asynchronous copies") {
        const std::string tile =
            ".shared .align 8 .b8 tile[64]; mov.u32 %r2, tile; ld.global.u64 %rd5, [%rd3];";
        const std::string copy = "cp.async.cg.shared.global [%r2], ";
        CHECK(body(tile + copy + "[%rd5], 16;") == Answer::Incomplete);
        CHECK(body(tile + copy + "[%rd3], 16;") == Answer::Complete);
        // Tagged pointers, and pointers in halves.
        const std::string untag = "shl.b64 %rd6, %rd5, 16; shr.s64 %rd7, %rd6, 16; add.s64 %rd8, %rd7, 16;";
        CHECK(body(tile + untag + copy + "[%rd7], 16;") == Answer::Incomplete);
        CHECK(body(tile + untag + copy + "[%rd8], 16;") == Answer::Incomplete);
        CHECK(body(tile + "mov.b64 %rd6, {%r1, %r1};" + copy + "[%rd6], 16;") == Answer::Incomplete);
    }
}

TEST_CASE("ptx taint: calls") {
    const std::string store =
        ".func (.param .b64 func_retval0) at(.param .b64 at_param_0, .param .b32 at_param_1)\n{\n"
        "ld.param.u64 %rd1, [at_param_0]; ld.param.u32 %r1, [at_param_1]; st.u32 [%rd1], %r1;\n"
        "add.s64 %rd2, %rd1, 4; st.param.b64 [func_retval0+0], %rd2; ret;\n}\n";
    const auto call = [](const std::string& address) {
        return "{ .param .b64 param0; st.param.b64 [param0+0], " + address +
               "; .param .b32 param1; st.param.b32 [param1+0], %r1; .param .b64 retval0;\n"
               "call.uni (retval0),\n at,\n (\n param0,\n param1\n );\n ld.param.b64 %rd9, [retval0+0]; }";
    };
    SUBCASE("with an argument, and what comes back") {
        CHECK(body(call("%rd3") + "st.u32 [%rd9], 1;", store) == Answer::Complete);
    }
    SUBCASE("with a loaded value") {
        CHECK(body("ld.global.u64 %rd5, [%rd3];" + call("%rd5"), store) == Answer::Incomplete);
    }
    SUBCASE("that give a loaded value back") {
        const std::string next =
            ".func (.param .b64 func_retval0) at(.param .b64 at_param_0, .param .b32 at_param_1) {"
            "ld.param.u64 %rd1, [at_param_0]; ld.u64 %rd2, [%rd1];"
            "st.param.b64 [func_retval0+0], %rd2; ret; }\n";
        CHECK(body(call("%rd3"), next) == Answer::Complete);
        CHECK(body(call("%rd3") + "ld.u32 %r2, [%rd9];", next) == Answer::Incomplete);
    }
    SUBCASE("with a loaded value that is read where it lies") {
        const std::string in_place =
            ".func (.param .b64 func_retval0) at(.param .b64 at_param_0, .param .b32 at_param_1) {"
            ".local .b64 depot; mov.b64 %rd3, depot; st.local.u64 [%rd3], %rd3; mov.b64 %rd1, at_param_0;"
            "ld.local.u64 %rd2, [%rd1]; st.u32 [%rd2], 1; ret; }\n";
        CHECK(body("ld.global.u64 %rd5, [%rd3];" + call("%rd5"), in_place) == Answer::Incomplete);
        const std::string by_address =
            ".func (.param .b64 func_retval0) at(.param .b64 at_param_0, .param .b32 at_param_1) {"
            "mov.b64 %rd1, at_param_0; ld.param.u64 %rd2, [%rd1]; st.u32 [%rd2], 1; ret; }\n";
        CHECK(body("ld.global.u64 %rd5, [%rd3];" + call("%rd5"), by_address) == Answer::Incomplete);
        CHECK(body(call("%rd3"), by_address) == Answer::Complete);
    }
    SUBCASE("with a loaded value in a register, with something added") {
        const std::string in_register =
            ".func (.reg .b64 out) next(.reg .b64 in) { add.s64 out, in, 8; st.u32 [out], 1; ret; }\n"
            ".func put(.reg .b64 in) { add.s64 %rd1, in, 8; st.u32 [%rd1], 1; ret; }\n";
        CHECK(body("ld.global.u64 %rd5, [%rd3]; call put, (%rd5);", in_register) == Answer::Incomplete);
        CHECK(body("ld.global.u64 %rd5, [%rd3]; call (%rd6), next, (%rd5);", in_register) ==
              Answer::Incomplete);
        CHECK(body("call put, (%rd3); call (%rd6), next, (%rd3); st.u32 [%rd6], 1;", in_register) ==
              Answer::Complete);
    }
    SUBCASE("with an argument that a loaded value is put into where it lies") {
        const std::string changed =
            ".func (.param .b64 func_retval0) at(.param .b64 at_param_0, .param .b32 at_param_1) {"
            "ld.param.u64 %rd2, [at_param_0]; mov.b64 %rd1, at_param_0; ld.u64 %rd3, [%rd2];"
            "st.local.u64 [%rd1], %rd3; ld.param.u64 %rd4, [at_param_0]; st.u32 [%rd4], 1; ret; }\n";
        CHECK(body(call("%rd3"), changed) == Answer::Incomplete);
    }
    SUBCASE("of a function of the program's that is called like one of the runtime's") {
        const std::string own =
            ".visible .func (.param .b64 r) malloc(.param .b64 p) { ld.param.u64 %rd1, [p]; ld.u64 %rd2, "
            "[%rd1]; st.u32 [%rd2], 1; st.param.b64 [r], %rd2; ret; }\n";
        CHECK(body("{ .param .b64 param0; st.param.b64 [param0], %rd3; .param .b64 retval0;"
                   "call.uni (retval0), malloc, (param0); }",
                   own) == Answer::Incomplete);
    }
    SUBCASE("of what cannot be seen") {
        CHECK(body(call("%rd3"), ".extern .func (.param .b64 r) at(.param .b64 a, .param .b32 b);\n") ==
              Answer::Incomplete);
        CHECK(body("call (), %rd3, (), prototype_0;") == Answer::Incomplete);
    }
}

TEST_CASE("ptx taint: a name that means something else within a block is not followed") {
    const auto block = [](const std::string& text) {
        return body("{ " + text + " } st.global.u32 [%rd3], 1;");
    };
    // A register called like a parameter would pass for the parameter's address, and what a function gives
    // back in a parameter of that name for what the host gave.
    CHECK(block(".reg .b64 k_param_0; ld.global.u64 k_param_0, [%rd3]; add.s64 %rd5, k_param_0, 8;"
                "st.global.u32 [%rd5], 1;") == Answer::Incomplete);
    CHECK(block(".reg .b64 %x, k_param_<2>; mov.b64 k_param_1, %rd3;") == Answer::Incomplete);
    CHECK(block(".param .b64 k_param_1; st.param.b64 [k_param_1], %rd3;") == Answer::Incomplete);
    CHECK(block(".local .b64 x; } { .reg .b64 x; mov.b64 x, %rd3;") == Answer::Incomplete);
    CHECK(block(".reg .b64 x; mov.b64 x, %rd3; } { .shared .b64 x;") == Answer::Incomplete);
    // The same again.
    CHECK(block(".param .b64 x; st.param.b64 [x], 1; } { .param .b64 x;") == Answer::Complete);
    CHECK(block(".reg .b64 x; mov.b64 x, %rd3; } { .reg .b32 x; mov.b32 x, 1;") == Answer::Complete);
    CHECK(block(".reg .b64 k_param_0x, k_param<9>, param_<2>;") == Answer::Complete);
}

TEST_CASE("modules: several kernels, text around them, what is no PTX") {
    const std::string text = std::string(kTaintHead) +
                             "// } a brace in a comment\n.file 1 \"a } name\"\n/* { */\n"
                             ".global .align 1 .b8 text[4] = {125, 123, 0, 34};\n"
                             ".weak .entry told() .maxntid 256, 1, 1 .minnctapersm 2\n{ .loc 1 3 5\n"
                             ".pragma \"nounroll\"; ret; }\n"
                             ".visible .entry hidden(.param .u64 p) { ld.param.u64 %rd1, [p];"
                             "{ ld.u64 %rd2, [%rd1]; } ld.u64 %rd3, [%rd2]; ret; }\n"
                             ".section .debug_str { info_string0: .b8 34,0 }\n";
    PtxModule module(text + std::string(1, '\0') + "padding");
    CHECK(module.addresses_of("told") == Answer::Complete);
    CHECK(module.addresses_of("hidden") == Answer::Incomplete);
    CHECK(module.addresses_of("hidden") == Answer::Incomplete);
    CHECK(module.addresses_of("absent") == Answer::Absent);

    CHECK(PtxModule("int main() { return 0; }").addresses_of("main") == Answer::Incomplete);
    CHECK(PtxModule("").addresses_of("k") == Answer::Absent);
    CHECK(PtxModule(text.substr(0, text.find("ld.u64 %rd3"))).addresses_of("hidden") == Answer::Incomplete);
}

TEST_CASE("modules: text cut off anywhere, or with a character changed, is looked at without harm") {
    const std::string text = std::string(kTaintHead) +
                             ".global .attribute(.managed) .align 8 .b8 v[16] = {1, 2};\n"
                             ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
                             ".visible .entry k(.param .u64 p, .param .align 8 .b8 q[16]) .maxntid 64 {\n"
                             ".local .align 8 .b8 __local_depot0[8]; mov.u64 %SPL, __local_depot0; // \"\n"
                             "@!%p1 bra $L1; $L1: { .param .b64 param0; st.param.b64 [param0+0], %rd1;\n"
                             "call.uni (retval0), vprintf, (param0, param0); } mov.b64 {%r1, %r2}, %rd1;\n"
                             "shl.b64 %rd2, %rd1, 32; /* x */ ld.global.v2.u64 {%rd3, %rd4}, [v+8]; ret; }\n";
    REQUIRE(PtxModule(text).addresses_of("k") == Answer::Complete);
    for (std::size_t length = 0; length < text.size(); ++length) {
        PtxModule(text.substr(0, length)).addresses_of("k");
        for (const char c : {'{', '}', '"', '[', ';', '.', '\xff'}) {
            std::string changed = text;
            changed[length] = c;
            PtxModule(changed).addresses_of("k");
        }
    }
}

TEST_CASE("addresses told: pointers in text that people write without blanks") {
    CHECK(body("ld.global.u64 %rd5, [%rd4]; st .global.u32 [%rd5], 1;") == Answer::Incomplete);
    CHECK(body("ld.global.u64 %rd5, [%rd3]; mov.u64%rd4, %rd5; st.global.u32[%rd4], 1;") ==
          Answer::Incomplete);
    CHECK(body("mov.u64%rd5, %rd4; st.global.u32[%rd5], 1;") == Answer::Complete);
    CHECK(body("{.param .b64 x; st.param.b64 [x], %rd2; call free, (x);}"
               "{.reg.b64 x; ld.global.u64 x, [%rd3]; add.u64 %rd5, x, 8; st.global.u32 [%rd5], 1;}",
               ".extern .func free(.param.b64 a);\n") == Answer::Incomplete);
}
