// The limits of a context, and when they can no longer be set.
#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr const char* kUsers = R"(
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.extern .func (.param .b64 result) malloc (.param .b64 bytes);
.extern .func free (.param .b64 memory);
.global .align 1 .b8 text[2] = {32, 0};
.func say()
{
    .reg .b64 %a<2>; .param .b64 format; .param .b64 arguments; .param .b32 result;
    mov.u64 %a0, text; st.param.b64 [format], %a0; mov.u64 %a1, 0; st.param.b64 [arguments], %a1;
    call.uni (result), vprintf, (format, arguments);
    ret;
}
.visible .entry prints() { call.uni say; ret; }
.visible .entry allocates()
{
    .reg .b64 %a<2>; .param .b64 bytes; .param .b64 memory;
    mov.u64 %a0, 16; st.param.b64 [bytes], %a0; call.uni (memory), malloc, (bytes);
    ld.param.b64 %a1, [memory]; st.param.b64 [bytes], %a1; call.uni free, (bytes);
    ret;
}
.visible .entry neither() { ret; }
)";

struct Users {
    Users() { OK(cuModuleLoadData, &module, kUsers); }
    CUfunction operator[](const char* name) const {
        CUfunction function = nullptr;
        OK(cuModuleGetFunction, &function, module, name);
        return function;
    }
    void launch(const char* name) const {
        OK(cuLaunchKernel, (*this)[name], 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    }
    CUmodule module = nullptr;
};

void can_set(CUlimit limit, bool can) {
    std::size_t before = 0, after = 0;
    OK(cuCtxGetLimit, &before, limit);
    FAILS(can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit, limit, before + 4096);
    OK(cuCtxGetLimit, &after, limit);
    EXPECT(after == (can ? before + 4096 : before));
}

SIM_TEST("limits: what kernels print into is fixed when the first that prints is launched", {}) {
    const Gpu gpu;
    const Users users;
    users.launch("neither");
    users.launch("allocates");
    can_set(CU_LIMIT_PRINTF_FIFO_SIZE, true);
    users.launch("prints");
    can_set(CU_LIMIT_PRINTF_FIFO_SIZE, false);
    OK(cuCtxSynchronize);
    can_set(CU_LIMIT_PRINTF_FIFO_SIZE, false);
    can_set(CU_LIMIT_STACK_SIZE, true);
    CUcontext other = nullptr;
    OK(cuCtxCreate, &other, nullptr, 0, gpu.device);
    can_set(CU_LIMIT_PRINTF_FIFO_SIZE, true);
}

SIM_TEST("limits: the heap of kernels is fixed when the first that uses it is launched, by a graph too", {}) {
    const Gpu gpu;
    const Users users;
    users.launch("prints");
    can_set(CU_LIMIT_MALLOC_HEAP_SIZE, true);
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = users["allocates"];
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphAddKernelNode, &node, graph, nullptr, 0, &params);
    OK(cuGraphInstantiate, &exec, graph, 0);
    can_set(CU_LIMIT_MALLOC_HEAP_SIZE, true);
    OK(cuGraphLaunch, exec, nullptr);
    can_set(CU_LIMIT_MALLOC_HEAP_SIZE, false);
    OK(cuCtxSynchronize);
}

}  // namespace
