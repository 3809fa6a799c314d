// The part of NVIDIA's management library that the simulated one has, declared here: the toolkit does not
// always come with nvml.h. A function that is not here is not exported, which programs that look names up
// take as NVML_ERROR_FUNCTION_NOT_FOUND.
#pragma once

extern "C" {

using nvmlDevice_t = struct nvmlDevice_st*;

enum nvmlReturn_t : int {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

struct nvmlMemory_t {
    unsigned long long total, free, used;
};
struct nvmlMemory_v2_t {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};
struct nvmlUtilization_t {
    unsigned gpu, memory;
};
struct nvmlProcessInfo_v1_t {
    unsigned pid;
    unsigned long long usedGpuMemory;
};
struct nvmlProcessInfo_t {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
};
}

// The size of a structure and its version, as callers put it into the structure.
template <typename T>
constexpr unsigned nvml_version(unsigned version) {
    return static_cast<unsigned>(sizeof(T)) | version << 24;
}

#define NVML_API extern "C" __attribute__((visibility("default"))) nvmlReturn_t
