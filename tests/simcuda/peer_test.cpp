// Two devices: peer access by its rules, and copies from one to the other.
#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

struct Two {
    Two() {
        OK(cuDevicePrimaryCtxRetain, &second, 1);
        OK(cuCtxSetCurrent, second);
    }
    // Memory of the one that is current.
    static CUdeviceptr allocate(std::size_t bytes) {
        CUdeviceptr p = 0;
        OK(cuMemAlloc, &p, bytes);
        return p;
    }
    Gpu first;
    CUcontext second = nullptr;
};

SIM_TEST("peer: access is enabled and disabled for each pair and direction", {{"SIMCUDA_DEVICES", "3"}}) {
    const Two gpus;
    CUcontext third = nullptr;
    OK(cuDevicePrimaryCtxRetain, &third, 2);
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, gpus.first.context);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuCtxEnablePeerAccess, gpus.first.context, 1);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuCtxEnablePeerAccess, gpus.second, 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess, nullptr, 0);
    OK(cuCtxEnablePeerAccess, gpus.first.context, 0);
    FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess, gpus.first.context, 0);
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, third);
    OK(cuCtxSetCurrent, gpus.first.context);  // the other direction is apart
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, gpus.second);
    OK(cuCtxEnablePeerAccess, gpus.second, 0);
    OK(cuCtxSetCurrent, gpus.second);
    OK(cuCtxDisablePeerAccess, gpus.first.context);
    FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, gpus.first.context);
    int can = 7;
    OK(cuDeviceCanAccessPeer, &can, 0, 2);
    EXPECT(can == 1);
    OK(cuDeviceCanAccessPeer, &can, 1, 1);
    EXPECT(can == 0);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer, &can, 0, 3);
    OK(cuDeviceGetP2PAttribute, &can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1);
    EXPECT(can == 1);
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute, &can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
          1, 1);
}

SIM_TEST("peer: copies in a stream, and of boxes", {{"SIMCUDA_DEVICES", "2"}}) {
    constexpr std::size_t kBytes = 300'000;
    const Two gpus;
    const CUdeviceptr there = Two::allocate(kBytes);
    OK(cuCtxSetCurrent, gpus.first.context);
    const CUdeviceptr here = Two::allocate(kBytes);
    const auto data = pattern(kBytes, 1);
    OK(cuMemcpyHtoD, here, data.data(), kBytes);
    OK(cuMemcpyPeerAsync, there, gpus.second, here, gpus.first.context, kBytes, nullptr);
    OK(cuCtxSynchronize);
    EXPECT(read_back(there, kBytes) == data);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeerAsync, there, gpus.second, here + 1, gpus.first.context,
          kBytes, nullptr);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeerAsync, there, nullptr, here, gpus.first.context, kBytes,
          nullptr);

    // Rows 2 to 5 of 100 bytes each, from column 10 on.
    OK(cuMemsetD8, there, 0, kBytes);
    CUDA_MEMCPY3D_PEER box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = here;
    box.srcContext = gpus.first.context;
    box.srcPitch = box.dstPitch = 100;
    box.srcXInBytes = 10;
    box.srcY = 2;
    box.dstDevice = there;
    box.dstContext = gpus.second;
    box.WidthInBytes = 50;
    box.Height = 4;
    box.Depth = 1;
    OK(cuMemcpy3DPeer, &box);
    OK(cuCtxSynchronize);
    const auto copied = read_back(there, 400);
    for (std::size_t i = 0; i < copied.size(); ++i)
        EXPECT(copied[i] == (i % 100 < 50 ? data[(i / 100 + 2) * 100 + 10 + i % 100] : 0));
    box.Height = 4000;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DPeer, &box);
}

}  // namespace
