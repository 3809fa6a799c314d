// Small kernels, written by hand in PTX.
#pragma once

#include "tests/simcuda/sim.h"
#include "tests/support/kernels.h"

namespace sim {

// out[i] = in[i] + 1 for i < n
inline std::string increment_kernel() {
    return support::word_kernel("increment", ".param .u64 out, .param .u64 in, .param .u32 n",
                                "ld.param.u64 %a1, [out];\nld.param.u64 %a2, [in];\nld.param.u32 %n, [n];\n",
                                R"(
    add.u64 %a1, %a1, %o;
    add.u64 %a2, %a2, %o;
    ld.global.u32 %r1, [%a2];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%a1], %r1;
)");
}

inline const std::string kKernels = support::kPtxHead + increment_kernel() + R"(
// Waits until *flag is not zero, then *out = *flag.
.visible .entry await(.param .u64 flag, .param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %a<3>;
    ld.param.u64 %a1, [flag];
    ld.param.u64 %a2, [out];
AGAIN:
    ld.volatile.global.u32 %r, [%a1];
    setp.eq.u32 %p, %r, 0;
    @%p bra AGAIN;
    st.global.u32 [%a2], %r;
    ret;
}

// *out = value
.visible .entry store(.param .u64 out, .param .u32 value)
{
    .reg .b32 %r;
    .reg .b64 %a;
    ld.param.u64 %a, [out];
    ld.param.u32 %r, [value];
    st.volatile.global.u32 [%a], %r;
    ret;
}

// *out = a + b + c: parameters of several sizes
.visible .entry mixed(.param .u8 a, .param .u64 b, .param .u16 c, .param .u64 out)
{
    .reg .b64 %a<5>;
    ld.param.u8 %a1, [a];
    ld.param.u64 %a2, [b];
    ld.param.u16 %a3, [c];
    ld.param.u64 %a4, [out];
    add.u64 %a1, %a1, %a2;
    add.u64 %a1, %a1, %a3;
    st.global.u64 [%a4], %a1;
    ret;
}

.visible .entry bounded(.param .u64 out) .maxntid 64, 1, 1
{
    ret;
}
)";

struct Kernels {
    Kernels() { OK(cuModuleLoadData, &module, kKernels.c_str()); }

    CUfunction operator[](const char* name) const {
        CUfunction function = nullptr;
        OK(cuModuleGetFunction, &function, module, name);
        return function;
    }

    CUmodule module = nullptr;
};

// Launches with one pointer per argument.
template <class... Arguments>
CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                Arguments... arguments) {
    void* parameters[] = {&arguments...};
    return CU(cuLaunchKernel)(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace sim

#define LAUNCH(function, blocks, threads, stream, ...) \
    EXPECT(::sim::launch(function, blocks, threads, stream, __VA_ARGS__) == CUDA_SUCCESS)
