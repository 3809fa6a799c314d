// Host functions may call nothing of the driver's; libgomp tells by the refusal that it runs in one, and
// frees later.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/entry/graph_rig.h"

using namespace rig;

FAMILY_TEST(
    "callbacks: in one every call is refused, also what would not reach the driver, and does nothing") {
    const Gpu gpu;
    static const Buffer* resident = nullptr;
    static const Buffer* evicted = nullptr;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    crowd.bring_in(b);
    evicted = &a;
    resident = &b;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const auto refused = [](void*) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        std::size_t total = 0;
        std::vector<std::uint8_t> data(kBuffer);
        for (const Buffer* buffer : {resident, evicted}) {
            const CUdeviceptr at = buffer->at();
            FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemGetAddressRange_v2, &base, &bytes, at);
            FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemFree_v2, at);
            FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemFreeAsync, at, nullptr);
            FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemcpyDtoH_v2, data.data(), at, kBuffer);
            FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemcpyHtoDAsync_v2, at, data.data(), kBuffer, nullptr);
            FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemsetD8_v2, at, 9, kBuffer);
            FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemPrefetchAsync, at, kBuffer, 0, nullptr);
        }
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemAlloc_v2, &base, kBuffer);
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemAlloc_v2, &base, 8 * kMiB);
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemAllocAsync, &base, kBuffer, nullptr);
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemGetInfo_v2, &bytes, &total);
    };
    OK(cuLaunchHostFunc, stream, refused, nullptr);
    OK(cuStreamSynchronize, stream);
    OK(cuStreamDestroy_v2, stream);
    EXPECT(a.holds(1));
    EXPECT(b.holds(2));
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    OK(cuMemGetAddressRange_v2, &base, &bytes, a.at(5));
    EXPECT(base == a.at() && bytes == kBuffer);
}

FAMILY_TEST("callbacks: what is behind one stays in use, whatever is refused in it") {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 12; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    for (const auto& buffer : buffers) bring_in(buffer->at(), kBuffer, stream);
    OK(cuStreamSynchronize, stream);
    struct Callback {
        CUstream stream;
        CUstream other;
        std::atomic<CUdeviceptr> evicted{0};
        std::atomic<bool> refused{false};
        std::atomic<bool> over{false};
    } callback{stream, other};
    const auto refused = [](void* data) {
        Callback& self = *static_cast<Callback*>(data);
        while (self.evicted == 0) std::this_thread::yield();
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemsetD8Async, self.evicted, 9, kBuffer, self.other);
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuStreamSynchronize, self.stream);
        self.refused = true;
        while (!self.over) std::this_thread::yield();
    };
    OK(cuLaunchHostFunc, stream, refused, &callback);
    std::vector<CUdeviceptr> out;
    for (const auto& buffer : buffers) {
        if (buffer->resident()) {
            bring_in(buffer->at(), kBuffer, stream);
        } else {
            out.push_back(buffer->at());
        }
    }
    callback.evicted = out.front();
    while (!callback.refused) std::this_thread::yield();
    std::thread ending([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        callback.over = true;
    });
    for (const CUdeviceptr each : out) bring_in(each, kBuffer, other);
    ending.join();
    OK(cuCtxSynchronize);
    for (std::uint32_t i = 0; i < 12; ++i) EXPECT(buffers[i]->holds(i));
}
