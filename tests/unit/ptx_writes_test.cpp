// Which of a kernel's parameters its writes go to: kernels that only read by some, and kernels that would
// fool whoever looks less closely.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "shim/code/ptx_taint.h"

using lms::code::ParameterWords;
using lms::code::PtxModule;

namespace {

constexpr const char* kModuleHead = ".version 8.4\n.target sm_75\n.address_size 64\n";
constexpr std::size_t kPointers = 4;

// Which of the parameters of a kernel with this body it may write by: "ab" of a to d, each a pointer that
// %rd1 to %rd4 hold. It always writes by d.
std::string written(const std::string& text, const std::string& before = "") {
    std::string kernel = ".visible .entry k(";
    for (const char* name : {"a", "b", "c", "d"})
        kernel += std::string(".param .u64 .ptr .align 1 ") + name + ", ";
    kernel +=
        ".param .u32 n)\n{\n.reg .pred %p<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
        "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];\n"
        "ld.param.u32 %r1, [n]; st.global.u32 [%rd4], %r1;\n" +
        text + "\nret;\n}\n";
    PtxModule module(kModuleHead + before + kernel);
    REQUIRE(module.addresses_of("k") == PtxModule::Answer::Complete);
    const ParameterWords words = module.written_by("k");
    std::string names;
    for (std::size_t i = 0; i < kPointers; ++i) {
        if (words.touch(8 * i, 8)) names += static_cast<char>('a' + i);
    }
    return names;
}

// The words of 8 bytes that a kernel with these parameters and this body may write by.
std::vector<std::size_t> words(const std::string& parameters, const std::string& text) {
    PtxModule module(kModuleHead + (".visible .entry k(" + parameters + ") {" + text + " ret; }"));
    REQUIRE(module.addresses_of("k") == PtxModule::Answer::Complete);
    std::vector<std::size_t> all;
    for (std::size_t word = 0; word < 200; ++word) {
        if (module.written_by("k").touch(8 * word, 8)) all.push_back(word);
    }
    return all;
}

using Words = std::vector<std::size_t>;

}  // namespace

TEST_CASE("writes: what is only loaded from is only read") {
    CHECK(written("mov.u32 %r2, %tid.x; mul.wide.s32 %rd5, %r2, 4; add.s64 %rd6, %rd1, %rd5;"
                  "ld.global.nc.f32 %f1, [%rd6+8]; ld.global.v4.f32 {%f2, %f3, %f4, %f5}, [%rd2];"
                  "st.global.f32 [%rd3], %f1;") == "cd");
    CHECK(written("ld.u8 %rs1, [%rd1]; ldu.global.u32 %r2, [%rd2]; prefetch.global.L2 [%rd3];") == "d");
    // What was loaded is a number, also where it says which element is written.
    CHECK(written("ld.global.u32 %r2, [%rd1]; mul.wide.u32 %rd5, %r2, 4; add.s64 %rd6, %rd2, %rd5;"
                  "st.global.u32 [%rd6], %r2;") == "bd");
    CHECK(written("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r2, %r3}, [%rd1], 16;") == "d");
    CHECK(written("st.global.u64 [%rd3], %r1; bar.sync 0; ld.global.u64 %rd5, [%rd1];") == "cd");
    CHECK(written("griddepcontrol.launch_dependents; ld.global.u32 %r2, [%rd1]; griddepcontrol.wait;"
                  "ld.global.u32 %r3, [%rd2]; st.global.u32 [%rd3], %r3;") == "cd");
}

TEST_CASE("writes: stores, reductions, atomics, and what is not known to only read") {
    for (const char* one :
         {"st.global.u32 [%rd2], 1;", "st.u8 [%rd2+-8], 1;", "st.volatile.global.v2.u32 [%rd2+8], {1, 2};",
          "red.global.add.u32 [%rd2], 1;", "red.add.f32 [%rd2], 0f00000000;",
          "atom.global.cas.b32 %r2, [%rd2], 0, 1;", "atom.exch.b64 %rd9, [%rd2], 0;",
          "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {%f1, %f2}, 16;",
          "discard.global.L2 [%rd2], 128;", "multimem.red.relaxed.sys.global.add.u32 [%rd2], 1;",
          "strange.new [%rd2], %r1;", "strange.new.global %r2, [%rd2];"}) {
        CAPTURE(one);
        CHECK(written(one) == "bd");
    }
}

TEST_CASE("writes: copies between memories write where they go to") {
    const std::string tile = ".shared .align 16 .b8 tile[64]; mov.u32 %r2, tile;";
    CHECK(written(tile + "cp.async.ca.shared.global [%r2], [%rd1], 16;") == "d");
    CHECK(written(tile + "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], "
                         "64, [%r2];") == "d");
    CHECK(written(tile + "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 64;") == "ad");
    CHECK(written(tile + "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r2], 64;") ==
          "ad");
    CHECK(written("cp.async.bulk.prefetch.L2.global [%rd1], 64;") == "d");
    // Into what a tensor map names that was made here, too.
    const std::string store =
        "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd3, {%r1}], [%r2];";
    CHECK(written(tile + "tensormap.replace.tile.global_address.global.b1024.b64 [%rd3], %rd1;" + store) ==
          "acd");
    CHECK(written(tile +
                  "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r2], %rd2;"
                  "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
                  "aligned [%rd3], [%r2], 128;" +
                  store) == "bcd");
    // A form that does not say where it goes: both ways.
    CHECK(written("cp.strange [%rd1], [%rd2], 16;") == "abd");
}

TEST_CASE("writes: addresses that several parameters had a part in") {
    SUBCASE("the one or the other") {
        CHECK(written("setp.eq.s32 %p1, %r1, 0; selp.b64 %rd5, %rd1, %rd2, %p1; st.global.u32 [%rd5], 1;") ==
              "abd");
        CHECK(written("mov.u64 %rd5, %rd1; @%p1 mov.u64 %rd5, %rd3; red.add.u32 [%rd5], 1;") == "acd");
        CHECK(written("$L:\nst.global.u32 [%rd5], 1; mov.u64 %rd5, %rd6; mov.u64 %rd6, %rd1; @%p1 bra $L;") ==
              "ad");
    }
    SUBCASE("their difference is no number like others") {
        CHECK(written("sub.s64 %rd5, %rd1, %rd2; add.s64 %rd6, %rd3, %rd5; st.global.u32 [%rd6], 1;") ==
              "abcd");
        CHECK(written("sub.s64 %rd5, %rd1, %rd4; shr.s64 %rd6, %rd5, 2; mad.lo.s64 %rd7, %rd6, 4, %rd4;"
                      "st.global.u32 [%rd7], 1;") == "ad");
        // Nor where it went through memory.
        CHECK(written("sub.s64 %rd5, %rd1, %rd3; st.global.u64 [%rd3], %rd5; ld.global.u64 %rd6, [%rd3];"
                      "add.s64 %rd7, %rd3, %rd6; st.global.u32 [%rd7], 1;") == "acd");
    }
    SUBCASE("put together of parts") {
        CHECK(written("mov.b64 {%r2, %r3}, %rd1; shfl.sync.idx.b32 %r4|%p1, %r2, 0, 31, -1;"
                      "mov.b64 %rd5, {%r4, %r3}; st.global.u32 [%rd5], 1;") == "ad");
        CHECK(written("cvt.u32.u64 %r2, %rd1; shr.u64 %rd5, %rd2, 32; cvt.u32.u64 %r3, %rd5;"
                      "prmt.b32 %r4, %r2, 0, 0x3210; bfi.b32 %r5, %r4, 0, 0, 32; mov.b64 %rd6, {%r5, %r3};"
                      "st.u32 [%rd6], 1;") == "abd");
        CHECK(written(".reg .v2 .b32 half; mov.b64 half, %rd1; mov.b64 %rd5, {half.x, half.y};"
                      "selp.b64 %rd6, %rd2, %rd5, %p1; st.global.u32 [%rd6], 1;") == "abd");
        CHECK(written("xor.b64 %rd5, %rd1, %rd2; xor.b64 %rd6, %rd5, %rd2; st.global.u32 [%rd6], 1;") ==
              "abd");
        CHECK(written("mov.b64 %fd1, %rd1; neg.f64 %fd2, %fd1; neg.f64 %fd3, %fd2; mov.b64 %rd5, %fd3;"
                      "add.s64 %rd6, %rd2, %rd5; st.global.u32 [%rd6], 1;") == "abd");
    }
}

TEST_CASE("writes: addresses that were put into memory") {
    const std::string tile = ".shared .align 8 .b8 tile[64]; mov.u32 %r2, tile;";
    CHECK(written(tile + "st.shared.u64 [%r2], %rd1; ld.shared.u64 %rd5, [%r2]; st.global.u32 [%rd5], 1;") ==
          "ad");
    CHECK(written(tile + "st.shared.v2.u64 [%r2], {%rd1, %rd2}; ld.shared.u64 %rd5, [%r2+8];"
                         "atom.global.add.u32 %r3, [%rd5], 1;") == "abd");
    CHECK(written(".local .align 8 .b8 depot[16]; mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;"
                  "st.u64 [%SP], %rd1; ld.u64 %rd5, [%SP]; st.u32 [%rd5], 1;") == "ad");
    CHECK(written(tile + "atom.shared.exch.b64 %rd5, [%r2], %rd1; atom.shared.exch.b64 %rd6, [%r2], %rd2;"
                         "st.global.u32 [%rd6], 1;") == "abd");
    // Shared and local memory themselves are nobody's, nor are variables and what malloc gives.
    CHECK(written(tile + "st.shared.u32 [%r2], 1; cvta.shared.u64 %rd5, %rd6;") == "d");
    CHECK(written("st.global.u32 [total], 1; mov.u64 %rd5, total; red.add.u32 [%rd5], 1;",
                  ".visible .global .align 4 .u32 total;\n") == "d");
    CHECK(written("{ .param .b64 param0; st.param.b64 [param0], 16; .param .b64 retval0;"
                  "call.uni (retval0), malloc, (param0); ld.param.b64 %rd5, [retval0]; }"
                  "st.u32 [%rd5], 1;",
                  ".extern .func (.param .b64 r) malloc (.param .b64 a);\n") == "d");
}

TEST_CASE("writes: calls") {
    const std::string store = ".func put(.param .b64 p) { ld.param.u64 %rd1, [p]; st.u32 [%rd1], 1; ret; }\n";
    const auto call = [](const std::string& function, const std::string& value) {
        return "{ .param .b64 param0; st.param.b64 [param0+0], " + value + "; call.uni " + function +
               ", (param0); }";
    };
    CHECK(written(call("put", "%rd2"), store) == "bd");
    CHECK(written(call("look", "%rd2"),
                  ".func look(.param .b64 p) { ld.param.u64 %rd1, [p]; ld.u32 %r1, [%rd1]; ret; }\n") == "d");
    CHECK(written(call("outer", "%rd3"), store + ".func outer(.param .b64 p) { ld.param.u64 %rd9, [p];" +
                                             call("put", "%rd9") + " ret; }\n") == "cd");
    CHECK(written(call("malloc", "%rd2"),
                  ".func malloc(.param .b64 p) { ld.param.u64 %rd1, [p]; st.u32 [%rd1], 1; ret; }\n") ==
          "bd");
    // Arguments that are read where they lie.
    CHECK(written(call("put", "%rd2"),
                  ".func put(.param .b64 p) { .local .b64 depot; mov.b64 %rd3, depot; mov.b64 %rd1, p;"
                  "st.local.u64 [%rd3], %rd3; ld.local.u64 %rd2, [%rd1]; st.u32 [%rd2], 1; ret; }\n") ==
          "bd");
    // And written there.
    CHECK(written("{ .param .b64 param0; st.param.b64 [param0], %rd1; .param .b64 param1;"
                  "st.param.b64 [param1], %rd2; call.uni put, (param0, param1); }",
                  ".func put(.param .b64 p, .param .b64 q) { mov.b64 %rd1, p; ld.param.u64 %rd2, [q];"
                  "st.local.u64 [%rd1], %rd2; ld.param.u64 %rd3, [p]; st.u32 [%rd3], 1; ret; }\n") == "abd");
    // What a function returns has its arguments in it.
    CHECK(written("{ .param .b64 param0; st.param.b64 [param0+0], %rd1; .param .b64 retval0;"
                  "call.uni (retval0), next, (param0); ld.param.b64 %rd5, [retval0+0]; }"
                  "st.u32 [%rd5], 1;",
                  ".func (.param .b64 r) next(.param .b64 p) { ld.param.u64 %rd1, [p]; add.s64 %rd1, %rd1, 4;"
                  "st.param.b64 [r+0], %rd1; ret; }\n") == "ad");
    CHECK(written("{ .param .b64 param0; st.param.b64 [param0], %rd1; .param .b32 retval0;"
                  "call.uni (retval0), vprintf, (param0, param0); }",
                  ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n") == "d");
}

TEST_CASE("writes: structs are told word by word") {
    const std::string two = ".param .align 8 .b8 s[40], .param .u32 n";
    CHECK(words(two,
                "ld.param.u64 %rd1, [s+8]; ld.param.u64 %rd2, [s+24]; ld.u32 %r1, [%rd1];"
                "st.u32 [%rd2], %r1;") == Words{3});
    CHECK(words(two, "ld.param.v2.u64 {%rd1, %rd2}, [s+16]; ld.u32 %r1, [%rd2]; st.u32 [%rd1], %r1;") ==
          Words{2});
    // One register has both.
    CHECK(words(two, ".reg .v2 .b64 v; ld.param.v2.b64 v, [s+16]; mov.b64 %rd1, v.y; st.u32 [%rd1], 1;") ==
          Words{2, 3});
    // Octal: byte 16.
    CHECK(words(two, "ld.param.u64 %rd2, [s+020]; st.u32 [%rd2], 1;") == Words{0, 1, 2, 3, 4});
    // By an address that is computed, or a type that is not known: all of it.
    CHECK(words(two, "mov.b64 %rd1, s; ld.param.u64 %rd2, [%rd1+8]; st.u32 [%rd2], 1;") ==
          Words{0, 1, 2, 3, 4});
    CHECK(words(two, "cvta.param.u64 %rd1, s; ld.u64 %rd2, [%rd1]; st.u32 [%rd2], 1;") ==
          Words{0, 1, 2, 3, 4});
    CHECK(words(two, "ld.param.x64 %rd2, [s+8]; st.u32 [%rd2], 1;") == Words{0, 1, 2, 3, 4});
    // The last word stands for all beyond it.
    Words last;
    for (std::size_t word = 127; word < 200; ++word) last.push_back(word);
    CHECK(words(".param .align 8 .b8 s[4000]", "ld.param.u64 %rd1, [s+2000]; st.u32 [%rd1], 1;") == last);
    // Tensor maps, which are arguments themselves.
    CHECK(words(".param .align 64 .b8 m[128], .param .u64 .ptr p",
                ".shared .b8 tile[64]; mov.u32 %r2, tile; mov.b64 %rd1, m; ld.param.u64 %rd2, [p]; st.u32 "
                "[%rd2], 1; cp.async.bulk.tensor.1d."
                "global.shared::cta.tile.bulk_group [%rd1, {%r1}], [%r2];")
              .size() == 17);
}

TEST_CASE("writes: everything, where nothing is certain") {
    const auto words_of = [](const std::string& text) {
        return PtxModule(kModuleHead + text).written_by("k");
    };
    const auto all = [&](const std::string& text) { return words_of(text) == ParameterWords::all(); };
    CHECK(words_of(".visible .entry k(.param .u64 a) { ret; }").none());
    CHECK(words_of(".visible .entry k(.param .u64 a) { ld.param.u64 %rd1, [a]; ld.u32 %r1, [%rd1]; ret; }")
              .none());
    // Hidden addresses.
    CHECK(
        all(".visible .entry k(.param .u64 a) { ld.param.u64 %rd1, [a]; ld.global.u64 %rd2, [%rd1];"
            "st.global.u32 [%rd2], 1; ret; }"));
    // Stores without an address, and parameters of no known size.
    CHECK(all(".visible .entry k(.param .u64 a) { st.global.u32 %rd1, 1; ret; }"));
    CHECK(
        all(".visible .entry k(.param .strange a, .param .u64 .ptr b) { ld.param.u64 %rd1, [b];"
            "st.global.u32 [%rd1], 1; ret; }"));
    CHECK(all("no PTX"));
    PtxModule other(kModuleHead + std::string(".visible .entry other() { ret; }"));
    CHECK(other.written_by("k").none());
}
