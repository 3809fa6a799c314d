#include "tests/random/kernels.h"

#include "tests/support/kernels.h"

namespace rnd {

namespace {

// Of the words from %r0 on; the body finds their addresses in %a0 (to), %a1 (a) and %a2 (b), and k in %r1.
std::string kernel(const std::string& name, const std::string& parameters, const std::string& load,
                   const std::string& body) {
    return support::word_kernel(name, parameters, load, R"(
    add.u32 %i, %i, %r0;
    mul.wide.u32 %o, %i, 4;
    add.u64 %a0, %a0, %o;
)" + body);
}

const char* const kCounts = "ld.param.u32 %r0, [at];\n ld.param.u32 %n, [n];\n ld.param.u32 %r1, [k];\n";
const char* const kCountParameters = ".param .u32 at, .param .u32 n, .param .u32 k";

const char* const kMix = R"(
    add.u64 %a1, %a1, %o;
    add.u64 %a2, %a2, %o;
    ld.global.u32 %r2, [%a1];
    ld.global.u32 %r3, [%a2];
    ld.global.u32 %r4, [%a0];
    mul.lo.u32 %r4, %r4, 0x9E3779B1;
    mul.lo.u32 %r3, %r3, 3;
    xor.b32 %r2, %r2, %r3;
    add.u32 %r4, %r4, %r2;
    add.u32 %r4, %r4, %r1;
    add.u32 %r4, %r4, %i;
    st.global.u32 [%a0], %r4;
)";

std::string from_table(const std::string& then) {
    return std::string("ld.param.u64 %a3, [table];\n") + kCounts +
           "ld.global.u64 %a0, [%a3];\n ld.global.u64 %a1, [%a3+8];\n ld.global.u64 %a2, [%a3+16];\n" + then;
}

}  // namespace

std::string kernel_text() {
    const std::string counts = kCountParameters;
    const std::string flip = "not.b64 %a0, %a0;\n not.b64 %a1, %a1;\n not.b64 %a2, %a2;\n";
    return support::kPtxHead +
           kernel("mix", ".param .u64 to, .param .u64 a, .param .u64 b, " + counts,
                  std::string("ld.param.u64 %a0, [to];\n ld.param.u64 %a1, [a];\n ld.param.u64 %a2, [b];\n") +
                      kCounts,
                  kMix) +
           kernel("section", ".param .u64 to, .param .u64 a, .param .u64 b, .param .u64 lower, " + counts,
                  std::string("ld.param.u64 %a3, [to];\n ld.param.u64 %a4, [a];\n ld.param.u64 %a5, [b];\n"
                              "ld.param.u64 %a6, [lower];\n shl.b64 %a7, %a6, 2;\n"
                              "add.u64 %a0, %a3, %a7;\n add.u64 %a1, %a4, %a7;\n add.u64 %a2, %a5, %a7;\n") +
                      kCounts,
                  kMix) +
           kernel("tagged", ".param .u64 to, .param .u64 a, .param .u64 b, " + counts,
                  std::string("ld.param.u64 %a3, [to];\n ld.param.u64 %a4, [a];\n ld.param.u64 %a5, [b];\n"
                              "and.b64 %a0, %a3, 281474976710655;\n and.b64 %a1, %a4, 281474976710655;\n"
                              "and.b64 %a2, %a5, 281474976710655;\n") +
                      kCounts,
                  kMix) +
           kernel("packed", ".param .align 8 .b8 all[56]",
                  "ld.param.u32 %r0, [all];\n ld.param.u32 %n, [all+4];\n ld.param.u32 %r1, [all+8];\n"
                  "ld.param.u64 %a0, [all+16];\n ld.param.u64 %a1, [all+40];\n ld.param.u64 %a2, [all+48];\n",
                  kMix) +
           kernel("table", ".param .u64 table, " + counts, from_table(""), kMix) +
           kernel("hidden", ".param .u64 table, " + counts, from_table(flip), kMix) +
           kernel("add", ".param .u64 to, " + counts, std::string("ld.param.u64 %a0, [to];\n") + kCounts,
                  "red.global.add.u32 [%a0], %r1;\n") +
           kernel("fill", ".param .u64 to, " + counts, std::string("ld.param.u64 %a0, [to];\n") + kCounts,
                  "mul.lo.u32 %r4, %i, 0x85EBCA6B;\n add.u32 %r4, %r4, %r1;\n st.global.u32 [%a0], %r4;\n");
}

}  // namespace rnd
