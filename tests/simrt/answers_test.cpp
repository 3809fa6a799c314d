// What NVIDIA's runtime answers at the edges, in calls that are the driver's with other names.
#include <string>

#include "tests/simrt/runtime.h"

namespace {

using namespace sim;

SIM_TEST("answers: the first call of a program may be a question about a capture", {}) {
    cudaStreamCaptureStatus status{};
    RT_ANSWERS(cudaErrorInvalidValue, cudaStreamGetCaptureInfo, nullptr, nullptr, nullptr, nullptr, nullptr,
               nullptr, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaStreamIsCapturing, nullptr, nullptr);
    RT_ANSWERS(cudaSuccess, cudaStreamIsCapturing, nullptr, &status);
    EXPECT(status == cudaStreamCaptureStatusNone);
}

SIM_TEST("answers: of memory", {}) {
    const Gpu gpu;
    std::size_t free = 0, total = 0, both_free = 0, both_total = 0;
    RT_ANSWERS(cudaSuccess, cudaMemGetInfo, &both_free, &both_total);
    RT_ANSWERS(cudaSuccess, cudaMemGetInfo, &free, nullptr);
    RT_ANSWERS(cudaSuccess, cudaMemGetInfo, nullptr, &total);
    EXPECT(free == both_free && total == both_total);
    void* memory = nullptr;
    unsigned flags = 0;
    RT_ANSWERS(cudaSuccess, cudaHostAlloc, &memory, 4096, cudaHostAllocDefault);
    RT_ANSWERS(cudaSuccess, cudaHostGetFlags, &flags, memory);
    EXPECT(flags == cudaHostAllocMapped);
    RT_ANSWERS(cudaErrorInvalidValue, cudaHostUnregister, nullptr);
    RT_ANSWERS(cudaErrorHostMemoryNotRegistered, cudaHostUnregister, &flags);
    RT_ANSWERS(cudaSuccess, cudaDestroyTextureObject, 0);
    RT_ANSWERS(cudaSuccess, cudaDestroySurfaceObject, 0);
}

SIM_TEST("answers: of the device", {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    const auto set_banks =
        reinterpret_cast<cudaError_t (*)(int)>(runtime_symbol("cudaDeviceSetSharedMemConfig"));
    for (const int config : {-1, 4}) {
        RT_ANSWERS(cudaErrorInvalidValue, cudaDeviceSetCacheConfig, static_cast<cudaFuncCache>(config));
        EXPECT(set_banks(config) == cudaErrorInvalidValue);
    }
    for (const unsigned flags : {3, 5, 6, 7}) RT_ANSWERS(cudaErrorInvalidValue, cudaSetDeviceFlags, flags);
    for (const unsigned flags : {0, 1, 2, 4}) RT_ANSWERS(cudaSuccess, cudaSetDeviceFlags, flags);
    int value = 0;
    RT_ANSWERS(cudaErrorInvalidValue, cudaDeviceGetP2PAttribute, &value, static_cast<cudaDeviceP2PAttr>(-1),
               0, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaDeviceGetP2PAttribute, nullptr, cudaDevP2PAttrAccessSupported, 0,
               1);
    char id[13] = {};
    RT_ANSWERS(cudaErrorInvalidValue, cudaDeviceGetPCIBusId, id, 12, 0);
    RT_ANSWERS(cudaSuccess, cudaDeviceGetPCIBusId, id, 13, 0);
    EXPECT(std::string(id) == "0000:01:00.0");
}

}  // namespace
