// Allocation of rows.
#include "tests/families/rig.h"

using namespace rig;

FAMILY_TEST("allocation: rows with a pitch, of more than the GPU has") {
    const Gpu gpu;
    constexpr std::size_t kWidth = 1000, kRows = 500, kPitch = 1024;
    std::vector<CUdeviceptr> buffers(12);
    const auto rows = [](std::uint32_t seed) { return pattern(kWidth * kRows, seed); };
    CUDA_MEMCPY2D copy{};
    copy.srcPitch = copy.dstPitch = kWidth;
    copy.WidthInBytes = kWidth;
    copy.Height = kRows;
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
        std::size_t pitch = 0;
        OK(cuMemAllocPitch_v2, &buffers[i], &pitch, kWidth, kRows, 4);
        EXPECT(pitch == kPitch);
        const auto data = rows(i);
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = data.data();
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = buffers[i];
        copy.dstPitch = pitch;
        OK(cuMemcpy2D_v2, &copy);
    }
    std::vector<std::uint8_t> found(kWidth * kRows);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcPitch = kPitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = found.data();
    copy.dstPitch = kWidth;
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
        copy.srcDevice = buffers[i];
        OK(cuMemcpy2D_v2, &copy);
        EXPECT(found == rows(i));
        OK(cuMemFree_v2, buffers[i]);
    }
}
