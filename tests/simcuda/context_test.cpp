// Initialisation, devices, contexts and who has which.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // cuCtxAttach
#include <thread>

#include "tests/simcuda/kernels.h"
#include "tests/support/child.h"

namespace {

using namespace sim;

SIM_TEST("context: nothing works before cuInit, nor without a context", {}) {
    int count = 0;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount, &count);
    CUdeviceptr p = 0;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc, &p, 1);
    int version = 0;
    OK(cuDriverGetVersion, &version);
    EXPECT(version == 13000);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuInit, 1);
    OK(cuInit, 0);
    OK(cuInit, 0);
    OK(cuDeviceGetCount, &count);
    EXPECT(count == 1);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc, &p, 1);
    CUcontext current = nullptr;
    OK(cuCtxGetCurrent, &current);
    EXPECT(current == nullptr);
}

SIM_TEST("context: a context is current per thread", {}) {
    const Gpu gpu;
    std::thread([] {
        CUdeviceptr p = 0;
        FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc, &p, 1);
    }).join();
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 1);
}

// cuda.h: a context's resources, CUevent among them, are not to be passed to calls after cuCtxDestroy.
SIM_TEST("context: its events and streams end with it", {}) {
    const Gpu gpu;
    CUcontext made = nullptr;
    OK(cuCtxCreate, &made, nullptr, 0, gpu.device);
    CUevent theirs = nullptr, stays = nullptr;
    CUstream stream = nullptr;
    OK(cuEventCreate, &theirs, 0);
    OK(cuStreamCreate, &stream, 0);
    OK(cuEventRecord, theirs, stream);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuEventCreate, &stays, 0);
    OK(cuCtxDestroy, made);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery, theirs);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy, theirs);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery, stream);
    OK(cuEventQuery, stays);
    OK(cuEventDestroy, stays);
}

SIM_TEST("context: a context ends when it is detached as often as it was made and attached to", {}) {
    const Gpu gpu;
    CUcontext made = nullptr, attached = nullptr, seen = nullptr;
    OK(cuCtxCreate, &made, nullptr, 0, gpu.device);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxAttach, &attached, 1);
    OK(cuCtxAttach, &attached, 0);
    EXPECT(attached == made);
    OK(cuCtxSetCurrent, gpu.context);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach, made);         // not current
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach, gpu.context);  // primary, never attached to
    OK(cuCtxSetCurrent, made);
    OK(cuCtxDetach, made);
    unsigned version = 0;
    OK(cuCtxGetApiVersion, made, &version);
    OK(cuCtxDetach, made);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetApiVersion, made, &version);
    OK(cuCtxGetCurrent, &seen);
    EXPECT(seen != made);
}

SIM_TEST("context: contexts are pushed and popped", {}) {
    const Gpu gpu;
    CUcontext other = nullptr, seen = nullptr;
    OK(cuCtxCreate, &other, nullptr, 0, gpu.device);
    OK(cuCtxGetCurrent, &seen);
    EXPECT(seen == other);
    OK(cuCtxPopCurrent, &seen);
    EXPECT(seen == other);
    OK(cuCtxGetCurrent, &seen);
    EXPECT(seen == gpu.context);
    OK(cuCtxPushCurrent, other);
    unsigned long long one = 0, two = 0;
    OK(cuCtxGetId, gpu.context, &one);
    OK(cuCtxGetId, nullptr, &two);
    EXPECT(one != two);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, 0);
    OK(cuCtxSetCurrent, gpu.context);
    // Kernels go to streams of their own context only; all else to any.
    const Kernels kernels;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    EXPECT(launch(kernels["store"], 1, 1, stream, p, 1u) == CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemsetD8Async, p, 5, 4, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(read_back(p, 4) == std::vector<std::uint8_t>(4, 5));
    OK(cuCtxDestroy, other);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent, other);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy,
          gpu.context);  // a primary context is released, not destroyed
}

SIM_TEST("context: using a destroyed context is an error", {}) {
    const Gpu gpu;
    CUcontext other = nullptr;
    OK(cuCtxCreate, &other, nullptr, 0, gpu.device);
    std::thread([&] { OK(cuCtxDestroy, other); }).join();
    CUdeviceptr p = 0;
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc, &p, 1);
}

SIM_TEST("context: the primary context is counted", {}) {
    OK(cuInit, 0);
    unsigned flags = 1;
    int active = 1;
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    EXPECT(active == 0);
    CUcontext one = nullptr, two = nullptr;
    OK(cuDevicePrimaryCtxSetFlags, 0, CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuDevicePrimaryCtxRetain, &one, 0);
    OK(cuDevicePrimaryCtxRetain, &two, 0);
    EXPECT(one == two);
    OK(cuDevicePrimaryCtxRelease, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    EXPECT(active == 1);
    EXPECT(flags == CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuDevicePrimaryCtxRelease, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    EXPECT(active == 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease, 0);
}

SIM_TEST("context: a context takes device memory and may find none",
         {{"SIMCUDA_MEMORY", "2M"}, {"SIMCUDA_CONTEXT_BYTES", "1M"}}) {
    const Gpu gpu;
    EXPECT(free_bytes() == 1 << 20);
    CUcontext other = nullptr;
    OK(cuCtxCreate, &other, nullptr, 0, gpu.device);
    EXPECT(free_bytes() == 0);
    CUcontext third = nullptr;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate, &third, nullptr, 0, gpu.device);
    CUstream stream = nullptr;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuStreamCreate, &stream, 0);
}

SIM_TEST("context: several devices have memory of their own",
         {{"SIMCUDA_DEVICES", "2"}, {"SIMCUDA_MEMORY", "16M"}}) {
    const Gpu gpu;
    int count = 0, can = 0;
    OK(cuDeviceGetCount, &count);
    EXPECT(count == 2);
    OK(cuDeviceCanAccessPeer, &can, 0, 1);
    EXPECT(can == 1);
    CUdeviceptr here = 0, there = 0;
    OK(cuMemAlloc, &here, 12 << 20);
    CUcontext second = nullptr;
    OK(cuDevicePrimaryCtxRetain, &second, 1);
    OK(cuCtxSetCurrent, second);
    OK(cuMemAlloc, &there, 12 << 20);
    int ordinal = 5;
    OK(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, here);
    EXPECT(ordinal == 0);
    const auto data = pattern(12 << 20, 1);
    OK(cuMemcpyHtoD, there, data.data(), data.size());
    OK(cuMemcpyPeer, here, gpu.context, there, second, data.size());
    EXPECT(read_back(here, data.size()) == data);
    OK(cuCtxEnablePeerAccess, gpu.context, 0);
    FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess, gpu.context, 0);
    CUdevice missing = 0;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet, &missing, 2);
}

SIM_TEST("context: no device at all", {{"SIMCUDA_DEVICES", "0"}}) {
    FAILS(CUDA_ERROR_NO_DEVICE, cuInit, 0);
}

SIM_TEST("context: exit handlers older than the driver still have their context", {}) {
    std::atexit([] {
        CUdevice device = 5;
        CUdeviceptr p = 0;
        const bool served = CU(cuCtxGetDevice)(&device) == CUDA_SUCCESS && device == 0 &&
                            CU(cuMemAlloc)(&p, 4) == CUDA_SUCCESS &&
                            CU(cuMemsetD32Async)(p, 1, 1, nullptr) == CUDA_SUCCESS &&
                            CU(cuCtxSynchronize)() == CUDA_SUCCESS && CU(cuMemFree)(p) == CUDA_SUCCESS;
        if (!served) std::abort();
    });
    OK(cuInit, 0);
    CUcontext context = nullptr;
    OK(cuCtxCreate, &context, nullptr, 0, 0);
    OK(cuCtxSynchronize);
}

SIM_TEST("context: a forked child has no driver, and the parent keeps its own", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    EXPECT(support::in_child([] {
               CUdeviceptr q = 0;
               return CU(cuMemAlloc)(&q, 4) == CUDA_ERROR_NOT_INITIALIZED &&
                              CU(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED
                          ? 0
                          : 1;
           }) == 0);
    OK(cuMemFree, p);
}

}  // namespace
