// Kernels in PTX, written by hand, for tests of several folders.
#pragma once

#include <string>

namespace support {

// What a module begins with.
inline const std::string kPtxHead = ".version 7.0\n.target sm_75\n.address_size 64\n";

// A kernel with a thread for each of %n words. `load` reads the parameters, and into %n how many words there
// are; `body` finds its word's number in %i and its offset in bytes in %o. They have %a<9> for addresses,
// %r<9> for words, and the labels' names are their own but for DONE.
inline std::string word_kernel(const std::string& name, const std::string& parameters,
                               const std::string& load, const std::string& body) {
    return ".visible .entry " + name + "(" + parameters + R"()
{
    .reg .pred %outside;
    .reg .b32 %i, %n, %block, %thread, %r<9>;
    .reg .b64 %o, %a<9>;
)" + load + R"(
    mov.u32 %i, %ctaid.x;
    mov.u32 %block, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %i, %block, %thread;
    setp.ge.u32 %outside, %i, %n;
    @%outside bra DONE;
    mul.wide.u32 %o, %i, 4;
)" + body + R"(
DONE:
    ret;
}
)";
}

// out[i] = in[i] + k, whose parameters are out, `in`, k and n; `load` puts the address of `in` into %a2. A
// number that is 0, which the code does not show, has a part in where that is: so it names the whole of both
// buffers.
inline std::string add_kernel(const std::string& name, const std::string& in = ".param .u64 in",
                              const std::string& load = "ld.param.u64 %a2, [in];") {
    return word_kernel(name, ".param .u64 out, " + in + ", .param .u32 k, .param .u32 n",
                       "ld.param.u64 %a1, [out];\nld.param.u32 %r1, [k];\nld.param.u32 %n, [n];\n" + load,
                       R"(
    mov.u32 %r3, %clock;
    sub.u32 %r3, %r3, %r3;
    mad.wide.u32 %o, %r3, 4, %o;
    add.u64 %a1, %a1, %o;
    add.u64 %a2, %a2, %o;
    ld.global.u32 %r2, [%a2];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [%a1], %r2;
)");
}

}  // namespace support
