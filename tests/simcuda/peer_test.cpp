// Two devices: peer access by its rules, and copies from one to the other.
#include <atomic>
#include <chrono>
#include <thread>

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

// Work of a stream that takes until it is let go; of itself after a while, for a call that waits for it.
class Held {
  public:
    explicit Held(CUstream stream) { OK(cuLaunchHostFunc, stream, hold, this); }
    bool let_go() { return !open_.exchange(true); }

  private:
    static void hold(void* self) {
        auto& open = static_cast<Held*>(self)->open_;
        for (int i = 0; i < 5000 && !open; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        open = true;
    }
    std::atomic<bool> open_{false};
};

SIM_TEST("peer: a copy of linear memory returns at once, between what is before and after it",
         {{"SIMCUDA_DEVICES", "2"}}) {
    constexpr std::size_t kBytes = 100'000;
    const Two gpus;
    const CUdeviceptr there = Two::allocate(kBytes);
    CUstream first = nullptr, second = nullptr;
    OK(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
    OK(cuMemsetD8, there, 9, kBytes);
    OK(cuCtxSynchronize);
    OK(cuCtxSetCurrent, gpus.first.context);
    const CUdeviceptr here = Two::allocate(kBytes);
    OK(cuStreamCreate, &first, CU_STREAM_NON_BLOCKING);
    for (const CUstream busy : {first, second}) {
        OK(cuMemsetD8, here, 1, kBytes);
        OK(cuCtxSynchronize);
        Held held(busy);
        if (busy == first) OK(cuMemsetD8Async, here, 2, kBytes, first);
        OK(cuMemcpyPeer, there, gpus.second, here, gpus.first.context, kBytes);
        // Later work of both.
        OK(cuMemsetD8Async, here, 3, kBytes, first);
        std::vector<std::uint8_t> copied(kBytes);
        void* pinned = nullptr;
        OK(cuMemHostAlloc, &pinned, kBytes, CU_MEMHOSTALLOC_PORTABLE);
        OK(cuCtxSetCurrent, gpus.second);
        OK(cuMemcpyDtoHAsync, pinned, there, kBytes, second);
        EXPECT(held.let_go());
        OK(cuStreamSynchronize, second);
        const auto* bytes = static_cast<const std::uint8_t*>(pinned);
        copied.assign(bytes, bytes + kBytes);
        EXPECT(copied == std::vector<std::uint8_t>(kBytes, busy == first ? 2 : 1));
        OK(cuCtxSetCurrent, gpus.first.context);
        OK(cuCtxSynchronize);
    }
}

}  // namespace
