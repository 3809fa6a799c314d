// What one device is and holds.
#include <algorithm>
#include <cstdio>

#include "tools/simcuda/driver/identity.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/nvml/nvml.h"

namespace simcuda::nvml {
namespace {

// A process is there while it holds memory: a context does.
template <typename Info>
nvmlReturn_t processes(nvmlDevice_t handle, unsigned* count, Info* infos) {
    return query(handle, count, [&](const Device& device) {
        const auto all = users(device);
        const unsigned room = *count;
        *count = static_cast<unsigned>(all.size());
        if (*count > room) return NVML_ERROR_INSUFFICIENT_SIZE;
        if (*count == 0) return NVML_SUCCESS;
        if (infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        for (const auto& user : all) {
            Info& info = *infos++;
            info.pid = static_cast<unsigned>(user.process);
            info.usedGpuMemory = user.bytes;
            // Not of a part of a GPU.
            if constexpr (requires { info.gpuInstanceId; })
                info.gpuInstanceId = info.computeInstanceId = 0xffff'ffff;
        }
        return NVML_SUCCESS;
    });
}

nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned* count) {
    return query(handle, count, [&](const Device&) {
        *count = 0;
        return NVML_SUCCESS;
    });
}

// There are no links between simulated GPUs, nor sensors on them.
nvmlReturn_t not_supported(nvmlDevice_t handle) {
    return query(handle, handle, [](const Device&) { return NVML_ERROR_NOT_SUPPORTED; });
}

}  // namespace

NVML_API nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned length) {
    return query(handle, name, [&](const Device&) { return copy_text(driver::kDeviceName, name, length); });
}

NVML_API nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
    return query(handle, index, [&](const Device& device) {
        *index = static_cast<unsigned>(device.ordinal);
        return NVML_SUCCESS;
    });
}
NVML_API nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned* number) {
    return nvmlDeviceGetIndex(handle, number);
}

NVML_API nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
    return query(handle, memory, [&](const Device& device) {
        const std::uint64_t used = memory_used(device), total = driver::knobs().memory;
        *memory = {total, total - std::min(used, total), used};
        return NVML_SUCCESS;
    });
}

NVML_API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
    return query(handle, memory, [&](const Device& device) {
        if (memory->version != nvml_version<nvmlMemory_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
        const std::uint64_t used = memory_used(device), total = driver::knobs().memory;
        *memory = {memory->version, total, 0, total - std::min(used, total), used};
        return NVML_SUCCESS;
    });
}

NVML_API nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* pci) {
    return query(handle, pci, [&](const Device& device) {
        *pci = {};
        pci->bus = static_cast<unsigned>(driver::pci_bus(device.ordinal));
        std::snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%s",
                      driver::pci_id(device.ordinal).c_str());
        std::snprintf(pci->busId, sizeof pci->busId, "%s", driver::pci_id(device.ordinal, 8).c_str());
        return NVML_SUCCESS;
    });
}

NVML_API nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major, int* minor) {
    return query(handle, major, [&](const Device&) {
        if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
        *major = static_cast<int>(driver::knobs().arch / 10);
        *minor = static_cast<int>(driver::knobs().arch % 10);
        return NVML_SUCCESS;
    });
}

// Nobody measures how busy a simulated GPU is.
NVML_API nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t* rates) {
    return query(handle, rates, [&](const Device&) {
        *rates = {};
        return NVML_SUCCESS;
    });
}

NVML_API nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned* count,
                                              nvmlProcessInfo_v1_t* infos) {
    return processes(handle, count, infos);
}
NVML_API nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned* count,
                                                 nvmlProcessInfo_t* infos) {
    return processes(handle, count, infos);
}
NVML_API nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                 nvmlProcessInfo_t* infos) {
    return processes(handle, count, infos);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned* count, nvmlProcessInfo_v1_t*) {
    return no_processes(handle, count);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned* count, nvmlProcessInfo_t*) {
    return no_processes(handle, count);
}

NVML_API nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned, unsigned*) {
    return not_supported(handle);
}
NVML_API nvmlDeviceGetNvLinkVersion(nvmlDevice_t handle, unsigned, unsigned*) {
    return not_supported(handle);
}
NVML_API nvmlDeviceGetNvLinkCapability(nvmlDevice_t handle, unsigned, int, unsigned*) {
    return not_supported(handle);
}
NVML_API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned, nvmlPciInfo_t*) {
    return not_supported(handle);
}
NVML_API nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned, int*) {
    return not_supported(handle);
}
NVML_API nvmlDeviceGetP2PStatus(nvmlDevice_t from, nvmlDevice_t to, int, int*) {
    if (running() && device_of(to) == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return not_supported(from);
}
NVML_API nvmlDeviceGetTemperature(nvmlDevice_t handle, int, unsigned*) {
    return not_supported(handle);
}
NVML_API nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned*) {
    return not_supported(handle);
}

}  // namespace simcuda::nvml
