// Copies and fills: every form moves the bytes it should, all of them and no other.
#include <algorithm>
#include <cstring>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

constexpr std::size_t kBytes = 3'000'001;  // several pieces and an odd end

CUdeviceptr allocate(std::size_t bytes) {
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, bytes);
    return p;
}

std::uint8_t* pinned(std::size_t bytes) {
    void* p = nullptr;
    OK(cuMemHostAlloc, &p, bytes, 0);
    return static_cast<std::uint8_t*>(p);
}

SIM_TEST("copy: linear copies in all directions", {}) {
    const Gpu gpu;
    const auto data = pattern(kBytes, 1);
    const CUdeviceptr a = allocate(kBytes), b = allocate(kBytes);
    OK(cuMemcpyHtoD, a, data.data(), kBytes);
    OK(cuMemcpyDtoD, b, a, kBytes);
    EXPECT(read_back(b, kBytes) == data);
    std::vector<std::uint8_t> host(kBytes);
    OK(cuMemcpy, reinterpret_cast<CUdeviceptr>(host.data()), b, kBytes);
    EXPECT(host == data);
    std::vector<std::uint8_t> other(kBytes);
    OK(cuMemcpy, reinterpret_cast<CUdeviceptr>(other.data()), reinterpret_cast<CUdeviceptr>(host.data()),
       kBytes);
    EXPECT(other == data);
    OK(cuMemsetD8, a, 0, kBytes);
    OK(cuMemcpy, a + 1, reinterpret_cast<CUdeviceptr>(data.data()), kBytes - 2);
    auto shifted = read_back(a, kBytes);
    EXPECT(shifted.front() == 0);
    EXPECT(shifted.back() == 0);
    EXPECT(std::equal(shifted.begin() + 1, shifted.end() - 1, data.begin()));
    OK(cuMemcpyPeer, b, gpu.context, a, gpu.context, kBytes);
    EXPECT(read_back(b, kBytes) == shifted);
}

SIM_TEST("copy: asynchronous copies of pinned memory read and write at execution",
         {{"SIMCUDA_H2D_GBPS", "0.2"}}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUdeviceptr p = allocate(8 << 20);
    std::uint8_t *first = pinned(8 << 20), *second = pinned(kBytes);
    std::memset(second, 1, kBytes);
    OK(cuMemcpyHtoDAsync, p, first, 8 << 20, stream);  // keeps the stream busy for 40 ms
    OK(cuMemcpyHtoDAsync, p, second, kBytes, stream);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    std::memset(second, 2, kBytes);  // too early: the program's mistake shows
    OK(cuStreamSynchronize, stream);
    EXPECT(read_back(p, kBytes) == std::vector<std::uint8_t>(kBytes, 2));
}

SIM_TEST("copy: asynchronous copies of pageable memory have read it when they return",
         {{"SIMCUDA_H2D_GBPS", "0.2"}}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUdeviceptr p = allocate(8 << 20);
    OK(cuMemcpyHtoDAsync, p, pinned(8 << 20), 8 << 20, stream);
    auto data = pattern(kBytes, 2);
    const auto sent = data;
    OK(cuMemcpyHtoDAsync, p, data.data(), kBytes, stream);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    std::fill(data.begin(), data.end(), 0);
    OK(cuStreamSynchronize, stream);
    EXPECT(read_back(p, kBytes) == sent);
}

SIM_TEST("copy: copies into pageable memory and between host memories block, in stream order",
         {{"SIMCUDA_H2D_GBPS", "0.2"}}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUdeviceptr p = allocate(kBytes);
    std::uint8_t *from = pinned(kBytes), *to = pinned(kBytes);
    const auto data = pattern(kBytes, 3);
    std::memcpy(from, data.data(), kBytes);
    OK(cuMemcpyHtoDAsync, p, from, kBytes, stream);
    std::vector<std::uint8_t> host(kBytes);
    OK(cuMemcpyDtoHAsync, host.data(), p, kBytes, stream);
    EXPECT(host == data);
    OK(cuMemcpyHtoDAsync, p, from, kBytes, stream);
    OK(cuMemcpyAsync, reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), kBytes, stream);
    OK(cuStreamQuery, stream);
    EXPECT(std::memcmp(to, data.data(), kBytes) == 0);
}

SIM_TEST("copy: a synchronous copy on the legacy stream does not wait for a non-blocking stream",
         {{"SIMCUDA_H2D_GBPS", "0.1"}}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUdeviceptr p = allocate(8 << 20), q = allocate(100);
    OK(cuMemcpyHtoDAsync, p, pinned(8 << 20), 8 << 20, stream);
    read_back(q, 100);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
}

SIM_TEST("copy: fills of every width", {}) {
    const Gpu gpu;
    constexpr std::size_t kCount = 1000;
    const CUdeviceptr p = allocate(8 * kCount);
    OK(cuMemsetD8, p, 0xAA, 8 * kCount);
    OK(cuMemsetD8, p + 1, 0x11, 3);
    OK(cuMemsetD16, p + 8, 0x2233, kCount);
    OK(cuMemsetD32, p + 4 * kCount, 0x44556677, 100);
    std::vector<std::uint8_t> expected(8 * kCount, 0xAA);
    std::fill_n(&expected[1], 3, 0x11);
    for (std::size_t i = 0; i < kCount; ++i) {
        expected[8 + 2 * i] = 0x33;
        expected[9 + 2 * i] = 0x22;
    }
    for (std::size_t i = 0; i < 100; ++i) {
        const std::uint32_t word = 0x44556677;
        std::memcpy(&expected[4 * kCount + 4 * i], &word, 4);
    }
    EXPECT(read_back(p, 8 * kCount) == expected);
}

SIM_TEST("copy: two-dimensional fills stay inside their rectangle", {}) {
    const Gpu gpu;
    constexpr std::size_t kPitch = 512, kHeight = 20;
    const CUdeviceptr p = allocate(kPitch * kHeight);
    OK(cuMemsetD8, p, 1, kPitch * kHeight);
    OK(cuMemsetD2D32, p + 2 * kPitch + 8, kPitch, 0x05060708, 30, 15);
    std::vector<std::uint8_t> expected(kPitch * kHeight, 1);
    for (std::size_t row = 2; row < 17; ++row) {
        for (std::size_t i = 0; i < 30; ++i) {
            const std::uint32_t word = 0x05060708;
            std::memcpy(&expected[row * kPitch + 8 + 4 * i], &word, 4);
        }
    }
    EXPECT(read_back(p, kPitch * kHeight) == expected);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8, p, 10, 1, 11, 2);  // rows overlap
}

SIM_TEST("copy: pitched copies move a box and nothing else", {}) {
    const Gpu gpu;
    constexpr std::size_t kPitch = 300, kHeight = 40, kDepth = 5, kAll = kPitch * kHeight * kDepth;
    const auto data = pattern(kAll, 5);
    const CUdeviceptr p = allocate(kAll);
    OK(cuMemsetD8, p, 0, kAll);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = data.data();
    copy.srcPitch = kPitch;
    copy.srcHeight = kHeight;
    copy.srcXInBytes = 3;
    copy.srcY = 4;
    copy.srcZ = 1;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = p;
    copy.dstPitch = kPitch;
    copy.dstHeight = kHeight;
    copy.dstXInBytes = 7;
    copy.dstY = 2;
    copy.dstZ = 0;
    copy.WidthInBytes = 100;
    copy.Height = 30;
    copy.Depth = 4;
    OK(cuMemcpy3D, &copy);
    std::vector<std::uint8_t> expected(kAll);
    for (std::size_t z = 0; z < 4; ++z) {
        for (std::size_t y = 0; y < 30; ++y) {
            std::copy_n(&data[((z + 1) * kHeight + y + 4) * kPitch + 3], 100,
                        &expected[(z * kHeight + y + 2) * kPitch + 7]);
        }
    }
    EXPECT(read_back(p, kAll) == expected);

    CUDA_MEMCPY2D flat{};
    std::vector<std::uint8_t> out(50 * 64, 0xCC);
    flat.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    flat.srcDevice = p;
    flat.srcPitch = kPitch;
    flat.srcXInBytes = 7;
    flat.srcY = 2;
    flat.dstMemoryType = CU_MEMORYTYPE_HOST;
    flat.dstHost = out.data();
    flat.dstPitch = 64;
    flat.WidthInBytes = 60;
    flat.Height = 50;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D, &(flat.srcPitch = 50, flat));
    flat.srcPitch = kPitch;
    OK(cuMemcpy2D, &flat);
    for (std::size_t y = 0; y < 50; ++y) {
        EXPECT(std::equal(&out[y * 64], &out[y * 64 + 60], &expected[(y + 2) * kPitch + 7]));
        EXPECT(std::count(&out[y * 64 + 60], &out[y * 64] + 64, 0xCC) == 4);
    }
    flat.srcY = kHeight * kDepth;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D, &flat);  // past the allocation
}

SIM_TEST("copy: rows that run out of page-locked host memory are refused, on either side", {}) {
    const Gpu gpu;
    constexpr std::size_t kBlock = 4 << 10, kPitch = 128;
    const auto data = pattern(kBlock, 13);
    CUdeviceptr p = 0;
    void* pinned = nullptr;
    OK(cuMemAlloc, &p, 2 * kBlock);
    OK(cuMemHostAlloc, &pinned, kBlock, 0);
    std::memcpy(pinned, data.data(), kBlock);
    OK(cuMemsetD8, p, 0, 2 * kBlock);
    CUDA_MEMCPY2D up{}, down{};
    up.srcMemoryType = down.dstMemoryType = CU_MEMORYTYPE_HOST;
    up.dstMemoryType = down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    up.srcHost = down.dstHost = pinned;
    up.dstDevice = down.srcDevice = p;
    for (CUDA_MEMCPY2D* copy : {&up, &down}) {
        copy->srcPitch = copy->dstPitch = kPitch;
        copy->WidthInBytes = 100;
        std::size_t& row = copy == &up ? copy->srcY : copy->dstY;
        // A row too many, rows a pitch too far apart, and from the last row on.
        const auto refused = [&](std::size_t rows, std::size_t pitch, std::size_t first) {
            copy->Height = rows;
            (copy == &up ? copy->srcPitch : copy->dstPitch) = pitch;
            row = first;
            FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D, copy);
            FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync, copy, nullptr);
        };
        refused(kBlock / kPitch + 1, kPitch, 0);
        refused(kBlock / kPitch, kPitch + 4, 0);
        refused(2, kPitch, kBlock / kPitch - 1);
        (copy == &up ? copy->srcPitch : copy->dstPitch) = kPitch;
        row = 0;
        copy->Height = kBlock / kPitch;
        (copy == &up ? copy->srcMemoryType : copy->dstMemoryType) = CU_MEMORYTYPE_UNIFIED;
        (copy == &up ? copy->srcDevice : copy->dstDevice) = reinterpret_cast<CUdeviceptr>(pinned);
        ++copy->Height;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D, copy);
        --copy->Height;
        OK(cuMemcpy2D, copy);
    }
    EXPECT(std::equal(data.begin(), data.end(), static_cast<std::uint8_t*>(pinned)));
}

}  // namespace
