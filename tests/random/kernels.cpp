#include "tests/random/kernels.h"

namespace rnd {

namespace {

// %i: the thread's element, beyond %n none; the body ends the kernel.
std::string kernel(const std::string& name, const std::string& parameters, const std::string& load,
                   const std::string& body) {
    return ".visible .entry " + name + "(" + parameters + R"()
{
    .reg .pred %p;
    .reg .b32 %i, %j, %at, %n, %k, %t, %v, %x, %y;
    .reg .b64 %to, %a, %b, %o, %table;
)" + load + R"(
    mov.u32 %i, %ctaid.x;
    mov.u32 %j, %ntid.x;
    mov.u32 %t, %tid.x;
    mad.lo.u32 %i, %i, %j, %t;
    setp.ge.u32 %p, %i, %n;
    @%p bra DONE;
    add.u32 %i, %i, %at;
    mul.wide.u32 %o, %i, 4;
    add.u64 %to, %to, %o;
)" + body + R"(
DONE:
    ret;
}
)";
}

const char* const kCounts = "ld.param.u32 %at, [at];\n ld.param.u32 %n, [n];\n ld.param.u32 %k, [k];\n";
const char* const kCountParameters = ".param .u32 at, .param .u32 n, .param .u32 k";

const char* const kMix = R"(
    add.u64 %a, %a, %o;
    add.u64 %b, %b, %o;
    ld.global.u32 %x, [%a];
    ld.global.u32 %y, [%b];
    ld.global.u32 %v, [%to];
    mul.lo.u32 %v, %v, 0x9E3779B1;
    mul.lo.u32 %y, %y, 3;
    xor.b32 %x, %x, %y;
    add.u32 %v, %v, %x;
    add.u32 %v, %v, %k;
    add.u32 %v, %v, %i;
    st.global.u32 [%to], %v;
)";

std::string from_table(const std::string& then) {
    return std::string("ld.param.u64 %table, [table];\n") + kCounts +
           "ld.global.u64 %to, [%table];\n ld.global.u64 %a, [%table+8];\n ld.global.u64 %b, [%table+16];\n" +
           then;
}

}  // namespace

std::string kernel_text() {
    const std::string counts = kCountParameters;
    const std::string flip = "not.b64 %to, %to;\n not.b64 %a, %a;\n not.b64 %b, %b;\n";
    return ".version 7.0\n.target sm_75\n.address_size 64\n" +
           kernel("mix", ".param .u64 to, .param .u64 a, .param .u64 b, " + counts,
                  std::string("ld.param.u64 %to, [to];\n ld.param.u64 %a, [a];\n ld.param.u64 %b, [b];\n") +
                      kCounts,
                  kMix) +
           kernel("packed", ".param .align 8 .b8 all[56]",
                  "ld.param.u32 %at, [all];\n ld.param.u32 %n, [all+4];\n ld.param.u32 %k, [all+8];\n"
                  "ld.param.u64 %to, [all+16];\n ld.param.u64 %a, [all+40];\n ld.param.u64 %b, [all+48];\n",
                  kMix) +
           kernel("table", ".param .u64 table, " + counts, from_table(""), kMix) +
           kernel("hidden", ".param .u64 table, " + counts, from_table(flip), kMix) +
           kernel("add", ".param .u64 to, " + counts, std::string("ld.param.u64 %to, [to];\n") + kCounts,
                  "red.global.add.u32 [%to], %k;\n") +
           kernel("fill", ".param .u64 to, " + counts, std::string("ld.param.u64 %to, [to];\n") + kCounts,
                  "mul.lo.u32 %v, %i, 0x85EBCA6B;\n add.u32 %v, %v, %k;\n st.global.u32 [%to], %v;\n");
}

}  // namespace rnd
