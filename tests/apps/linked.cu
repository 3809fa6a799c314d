// Device code that is linked when the program runs, as Numba does it: a kernel in PTX whose grid waits for
// all of its blocks by CUDA's device runtime, which is linked to it. Over buffers beyond the device's memory.
#include <cuda.h>

#include "batches.h"

#ifndef DEVICE_RUNTIME
#error "DEVICE_RUNTIME: where libcudadevrt.a lies"
#endif

#define CHECK_DRIVER(call)                                                                        \
    do {                                                                                          \
        CUresult check_result = (call);                                                           \
        if (check_result != CUDA_SUCCESS) FAIL("line %d: %s: %d", __LINE__, #call, check_result); \
    } while (0)

// Rounds of b[i] = 2 a[i] + a[i + 1], then the other way round.
const char kText[] = R"(.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry smooth(.param .u64 a, .param .u64 b, .param .u32 n, .param .u32 rounds)
{
    .reg .pred %p;
    .reg .b32 %r<12>;
    .reg .b64 %a<8>, %handle;
    ld.param.u64 %a1, [a];
    ld.param.u64 %a2, [b];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [rounds];
    { .param .b32 scope; .param .b64 result; st.param.b32 [scope], 1;
      call.uni (result), cudaCGGetIntrinsicHandle, (scope); ld.param.b64 %handle, [result]; }
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r5, %r3, %r4, %r5;
    mov.u32 %r3, %nctaid.x;
    mul.lo.u32 %r4, %r3, %r4;
ROUND:
    mov.u32 %r6, %r5;
NEXT:
    setp.ge.u32 %p, %r6, %r1;
    @%p bra DONE;
    add.u32 %r7, %r6, 1;
    rem.u32 %r7, %r7, %r1;
    mul.wide.u32 %a3, %r6, 4;
    mul.wide.u32 %a4, %r7, 4;
    add.u64 %a5, %a1, %a3;
    add.u64 %a4, %a1, %a4;
    add.u64 %a3, %a2, %a3;
    ld.volatile.global.u32 %r8, [%a5];
    ld.volatile.global.u32 %r9, [%a4];
    mad.lo.u32 %r8, %r8, 2, %r9;
    st.volatile.global.u32 [%a3], %r8;
    add.u32 %r6, %r6, %r4;
    bra NEXT;
DONE:
    { .param .b64 handle; .param .b32 flags; .param .b32 result; st.param.b64 [handle], %handle;
      st.param.b32 [flags], 0; call.uni (result), cudaCGSynchronize, (handle, flags);
      ld.param.b32 %r10, [result]; }
    setp.ne.u32 %p, %r10, 0;
    @%p trap;
    mov.u64 %a6, %a1;
    mov.u64 %a1, %a2;
    mov.u64 %a2, %a6;
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p, %r2, 0;
    @%p bra ROUND;
    ret;
}
)";

CUmodule linked() {
    CUlinkState state;
    void* image;
    std::size_t bytes;
    CUmodule module;
    CHECK_DRIVER(cuLinkCreate(0, nullptr, nullptr, &state));
    CHECK_DRIVER(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(kText), sizeof kText, "smooth", 0,
                               nullptr, nullptr));
    CHECK_DRIVER(cuLinkAddFile(state, CU_JIT_INPUT_LIBRARY, DEVICE_RUNTIME, 0, nullptr, nullptr));
    CHECK_DRIVER(cuLinkComplete(state, &image, &bytes));
    CHECK_DRIVER(cuModuleLoadData(&module, image));
    CHECK_DRIVER(cuLinkDestroy(state));
    return module;
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    constexpr unsigned kPairs = 8;
    unsigned n = static_cast<unsigned>(bytes / kPairs / 2 / sizeof(unsigned)), rounds = 5;
    CHECK(cudaFree(nullptr));
    CUfunction smooth;
    CHECK_DRIVER(cuModuleGetFunction(&smooth, linked(), "smooth"));
    std::list<Buffer<unsigned>> from, to;
    std::vector<std::vector<unsigned>> host(kPairs, std::vector<unsigned>(n));
    for (unsigned p = 0; p < kPairs; ++p) {
        for (unsigned i = 0; i < n; ++i) host[p][i] = noise(i, p);
        from.emplace_back(host[p]);
        to.emplace_back(n);
    }
    for (auto f = from.begin(), t = to.begin(); f != from.end(); ++f, ++t) {
        unsigned *a = f->get(), *b = t->get();
        void* arguments[] = {&a, &b, &n, &rounds};
        CHECK_DRIVER(cuLaunchCooperativeKernel(smooth, 8, 1, 1, 128, 1, 1, 0, nullptr, arguments));
    }
    auto t = to.begin();
    for (std::vector<unsigned>& values : host) {
        std::vector<unsigned> next(n);
        for (unsigned round = 0; round < rounds; ++round) {
            for (unsigned i = 0; i < n; ++i) next[i] = values[i] * 2 + values[(i + 1) % n];
            values.swap(next);
        }
        t++->expect(values, "linked");
    }
    return succeed();
}
