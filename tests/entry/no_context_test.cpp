// Calls of threads that have no current context, or that of another GPU, on a stream that is named.
#include "tests/entry/both_ways.h"

using namespace rig;

namespace {

constexpr std::size_t kMany = 6;

// Allocates and frees in `stream` with `current` current, more than the GPU holds in all.
void check_stream_ordered(CUcontext own, CUcontext current, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr buffers[2 * kMany] = {};
    OK(cuCtxSetCurrent, current);
    for (std::size_t i = 0; i < 2 * kMany; ++i) {
        if (i % 2 == 0) {
            OK(cuMemAllocAsync, &buffers[i], kBuffer, stream);
        } else {
            OK(cuMemAllocFromPoolAsync, &buffers[i], kBuffer, pool, stream);
        }
    }
    OK(cuCtxSetCurrent, own);
    for (std::uint32_t i = 0; i < 2 * kMany; ++i) {
        int device = -1;
        OK(cuPointerGetAttribute, &device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, buffers[i]);
        EXPECT(device == 0);
        const auto data = pattern(kBuffer, i);
        OK(cuMemcpyHtoDAsync_v2, buffers[i], data.data(), kBuffer, stream);
        OK(cuStreamSynchronize, stream);
    }
    for (std::uint32_t i = 0; i < 2 * kMany; ++i) {
        std::vector<std::uint8_t> data(kBuffer);
        OK(cuMemcpyDtoHAsync_v2, data.data(), buffers[i], kBuffer, stream);
        OK(cuStreamSynchronize, stream);
        EXPECT(data == pattern(kBuffer, i));
    }
    OK(cuCtxSetCurrent, current);
    for (const CUdeviceptr buffer : buffers) OK(cuMemFreeAsync, buffer, stream);
    OK(cuCtxSetCurrent, own);
    OK(cuStreamSynchronize, stream);
    cuuint64_t used = 1;
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    EXPECT(used == 0);
}

}  // namespace

FAMILY_TEST("no context: stream-ordered memory in a stream that is named is managed, and freed whole") {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    for (int round = 0; round < 3; ++round) check_stream_ordered(gpu.context, nullptr, pool, stream);
    OK(cuCtxSetCurrent, nullptr);
    CUdeviceptr p = 0;
    for (const CUstream of_context : {CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync, &p, kBuffer, of_context);
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocFromPoolAsync, &p, kBuffer, pool, of_context);
    }
}

BODY(no_context_elsewhere) {
    const Gpu gpu;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    CUcontext other = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuDeviceGetDefaultMemPool, &pool, gpu.device);
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    check_stream_ordered(gpu.context, other, pool, stream);
}

TEST_CASE("no context: stream-ordered memory is of the stream's GPU, whichever is current") {
    run_both("no_context_elsewhere", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

// More than the GPU and the host may hold, were it not given back.
BODY(no_context_frees) {
    const Gpu gpu;
    for (int round = 0; round < 6; ++round) {
        CUdeviceptr buffers[2 * kMany] = {}, small = 0;
        for (std::size_t i = 0; i < 2 * kMany; ++i) {
            if (i == kMany) {
                OK(cuMemAllocAsync, &buffers[i], kBuffer, CU_STREAM_LEGACY);
            } else {
                OK(cuMemAlloc_v2, &buffers[i], kBuffer);
            }
            OK(cuMemsetD8_v2, buffers[i], static_cast<unsigned char>(i), kBuffer);
        }
        OK(cuMemAlloc_v2, &small, 256);
        // What is under way is waited for.
        for (std::size_t i = 1; i < 2 * kMany; ++i)
            EXPECT(launch("add", kBuffer / 4, nullptr, buffers[i], buffers[i - 1], 1u,
                          static_cast<unsigned>(kBuffer / 4)) == CUDA_SUCCESS);
        OK(cuCtxSetCurrent, nullptr);
        for (const CUdeviceptr buffer : buffers) {
            FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, buffer + 256);
            OK(cuMemFree_v2, buffer);
            FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, buffer);
            EXPECT(off_device(buffer, kBuffer));
        }
        OK(cuMemFree_v2, small);
        CUcontext current = gpu.context;
        OK(cuCtxGetCurrent, &current);
        EXPECT(current == nullptr);
        OK(cuCtxSetCurrent, gpu.context);
        OK(cuCtxSynchronize);
    }
}

TEST_CASE("no context: buffers are freed, in or out, and their memory is had again") {
    run_both("no_context_frees", Driver::Simulated, {{"LMS_HOST_LIMIT", "6M"}});
}

BODY(no_context_answers) {
    const Gpu gpu;
    CUstream stream = nullptr, other = nullptr;
    CUevent event = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    std::vector<std::uint8_t> host(1 << 16);
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate, &event, 0);
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    const CUmodule module = load_kernels();
    const auto without = [&](const std::string& what) {
        CUdeviceptr big = 0, of_pool = 0, small = 0;
        void* pinned = nullptr;
        OK(cuMemAlloc_v2, &big, kBuffer);
        OK(cuMemAllocAsync, &of_pool, kBuffer, other);
        OK(cuMemAlloc_v2, &small, 256);
        OK(cuMemHostAlloc, &pinned, 4096, 0);
        OK(cuMemHostRegister_v2, host.data(), host.size(), 0);
        OK(cuStreamSynchronize, other);
        return [=, &gpu, &host] {
            OK(cuCtxSetCurrent, nullptr);
            TELL(what + ", big", cuMemFree_v2, big);
            TELL(what + ", big again", cuMemFree_v2, big);
            TELL(what + ", of a pool", cuMemFree_v2, of_pool);
            TELL(what + ", small", cuMemFree_v2, small);
            TELL(what + ", nothing", cuMemFree_v2, 0);
            TELL(what + ", pinned", cuMemFreeHost, pinned);
            TELL(what + ", registered", cuMemHostUnregister, host.data());
            OK(cuCtxSetCurrent, gpu.context);
        };
    };
    without("plain")();
    for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                            CU_STREAM_CAPTURE_MODE_RELAXED}) {
        const auto free = without("capture " + std::to_string(mode));
        CUgraph captured = nullptr;
        OK(cuStreamBeginCapture_v2, stream, mode);
        free();
        TELL("the capture ends", cuStreamEndCapture, stream, &captured);
        if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) OK(cuMemHostUnregister, host.data());
    }
    OK(cuCtxSetCurrent, nullptr);
    TELL("none", cuModuleUnload, module);
    TELL("again", cuModuleUnload, module);
    TELL("none", cuStreamDestroy_v2, other);
    TELL("again", cuStreamDestroy_v2, other);
    TELL("none", cuEventDestroy_v2, event);
    TELL("none", cuGraphExecDestroy, exec);
    OK(cuCtxSetCurrent, gpu.context);
    const auto free = without("after a fault");
    EXPECT(launch("add", 1, nullptr, CUdeviceptr{64}, CUdeviceptr{64}, 1u, 1u) == CUDA_SUCCESS);
    OK(cuCtxSetCurrent, nullptr);
    free();
}

TEST_CASE("no context: what is given back is answered as without the shim") {
    same_both_ways("no_context_answers");
    same_under_pressure("no_context_answers");
}
