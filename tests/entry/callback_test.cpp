// Host functions may call nothing of the driver's; libgomp tells by the refusal that it runs in one, and
// frees later.
#include "tests/entry/rig.h"

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
