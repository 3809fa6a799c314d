// Sizes, formats and extents that there cannot be.
#include <cstdint>

#include "tests/simrt/runtime.h"

namespace {

using namespace sim;

constexpr std::size_t kMost = SIZE_MAX;

SIM_TEST("memory: allocations of the largest size are invalid, large ones too large", {}) {
    const Gpu gpu;
    void* memory = nullptr;
    std::size_t pitch = 0;
    for (const auto& [width, height] : {std::pair<std::size_t, std::size_t>{kMost, kMost},
                                        {kMost, 1},
                                        {kMost, 64},
                                        {64, kMost},
                                        {1, kMost}})
        RT_ANSWERS(cudaErrorInvalidValue, cudaMallocPitch, &memory, &pitch, width, height);
    RT_ANSWERS(cudaErrorMemoryAllocation, cudaMallocPitch, &memory, &pitch, std::size_t{1} << 40, 1);
    cudaPitchedPtr box{};
    for (const cudaExtent& extent :
         {cudaExtent{kMost, kMost, kMost}, {kMost, 1, 1}, {1, kMost, 1}, {1, 1, kMost}, {8, 8, kMost}})
        RT_ANSWERS(cudaErrorInvalidValue, cudaMalloc3D, &box, extent);
}

SIM_TEST("memory: fills beyond a box are invalid, and harm nothing", {}) {
    const Gpu gpu;
    cudaPitchedPtr box{};
    RT_ANSWERS(cudaSuccess, cudaMalloc3D, &box, cudaExtent{64, 8, 4});
    for (const cudaExtent& extent : {cudaExtent{64, kMost, 1}, {64, 8, kMost}, {kMost, 8, 1}, {64, 8, 5}})
        RT_ANSWERS(cudaErrorInvalidValue, cudaMemset3D, box, 1, extent);
    RT_ANSWERS(cudaSuccess, cudaMemset3D, box, 1, cudaExtent{64, 8, 4});
    RT_ANSWERS(cudaSuccess, cudaDeviceSynchronize);
}

SIM_TEST(
    "memory: arrays of no kind, or of one that there is not, are invalid; of those that are lacking, "
    "unsupported",
    {}) {
    const Gpu gpu;
    cudaArray_t array = nullptr;
    const auto answers = [&](cudaError_t wanted, int kind, unsigned flags) {
        const cudaChannelFormatDesc channel{32, 0, 0, 0, static_cast<cudaChannelFormatKind>(kind)};
        RT_ANSWERS(wanted, cudaMallocArray, &array, &channel, 64, 64, flags);
        RT_ANSWERS(wanted, cudaMalloc3DArray, &array, &channel, {64, 64, 0}, flags);
    };
    for (const int kind : {3, 32, 99, -1}) answers(cudaErrorInvalidValue, kind, 0);
    for (const unsigned flags : {0x1000u, ~0u})
        answers(cudaErrorInvalidValue, cudaChannelFormatKindFloat, flags);
    answers(cudaErrorNotSupported, cudaChannelFormatKindNV12, 0);
    answers(cudaSuccess, cudaChannelFormatKindFloat, 0);
}

SIM_TEST("memory: to free nothing is no error", {}) {
    const Gpu gpu;
    RT_ANSWERS(cudaSuccess, cudaFreeHost, nullptr);
    RT_ANSWERS(cudaSuccess, cudaFree, nullptr);
    int somewhere = 0;
    RT_ANSWERS(cudaErrorInvalidValue, cudaFreeHost, &somewhere);
}

}  // namespace
