// The simulated management library, by the names programs look up.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tests/simcuda/processes.h"
#include "tests/simcuda/sim.h"
#include "tools/simcuda/nvml/nvml_api.h"

namespace {

using namespace sim;

void* library() {
    static void* const handle = [] {
        const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
        return ::dlopen((self.parent_path().parent_path() / "sim/libnvidia-ml.so.1").c_str(), RTLD_NOW);
    }();
    return handle;
}

// The answer of a function, called with these arguments as they are.
template <typename... T>
int ask(const char* name, T... arguments) {
    void* const function = library() ? ::dlsym(library(), name) : nullptr;
    if (function == nullptr) {
        failed(__FILE__, __LINE__, std::string("not exported: ") + name);
        stop();
    }
    return reinterpret_cast<int (*)(T...)>(function)(arguments...);
}

nvmlDevice_t device(unsigned index) {
    nvmlDevice_t handle = nullptr;
    EXPECT(ask("nvmlDeviceGetHandleByIndex_v2", index, &handle) == NVML_SUCCESS);
    return handle;
}

SIM_TEST("nvml: counts its beginnings and ends, and answers only between them", {}) {
    unsigned count = 7;
    char version[80];
    EXPECT(ask("nvmlShutdown") == NVML_ERROR_UNINITIALIZED);
    EXPECT(ask("nvmlDeviceGetCount_v2", &count) == NVML_ERROR_UNINITIALIZED);
    EXPECT(ask("nvmlSystemGetDriverVersion", version, 80u) == NVML_ERROR_UNINITIALIZED);
    EXPECT(ask("nvmlInit_v2") == NVML_SUCCESS);
    EXPECT(ask("nvmlInitWithFlags", 0u) == NVML_SUCCESS);
    EXPECT(ask("nvmlShutdown") == NVML_SUCCESS);
    EXPECT(ask("nvmlDeviceGetCount_v2", &count) == NVML_SUCCESS);
    EXPECT(count == 1);
    EXPECT(ask("nvmlDeviceGetCount_v2", static_cast<unsigned*>(nullptr)) == NVML_ERROR_INVALID_ARGUMENT);
    nvmlDevice_t handle = device(0);
    EXPECT(ask("nvmlShutdown") == NVML_SUCCESS);
    EXPECT(ask("nvmlDeviceGetIndex", handle, &count) == NVML_ERROR_UNINITIALIZED);
    EXPECT(ask("nvmlShutdown") == NVML_ERROR_UNINITIALIZED);
    EXPECT(ask("nvmlInit") == NVML_SUCCESS);
    EXPECT(ask("nvmlDeviceGetCount", &count) == NVML_SUCCESS);
}

SIM_TEST("nvml: what it lacks is not there", {}) {
    EXPECT(library() != nullptr);
    for (const char* name : {"nvmlDeviceSetComputeMode", "nvmlDeviceGetFanSpeed", "nvmlEventSetCreate"})
        EXPECT(::dlsym(library(), name) == nullptr);
    const auto text = reinterpret_cast<const char* (*)(int)>(::dlsym(library(), "nvmlErrorString"));
    EXPECT(std::strcmp(text(NVML_SUCCESS), "Success") == 0);
    EXPECT(std::strcmp(text(NVML_ERROR_NOT_SUPPORTED), "Not Supported") == 0);
    EXPECT(std::strcmp(text(998), "Unknown Error") == 0);
}

SIM_TEST("nvml: a device has the name, number, identity and capability that the driver tells",
         {{"SIMCUDA_DEVICES", "3"}, {"SIMCUDA_ARCH", "86"}}) {
    EXPECT(ask("nvmlInit_v2") == NVML_SUCCESS);
    OK(cuInit, 0);
    for (unsigned i = 0; i < 3; ++i) {
        nvmlDevice_t handle = device(i), found = nullptr;
        char name[96], other[96], uuid[96], wanted[96];
        OK(cuDeviceGetName, other, 96, static_cast<int>(i));
        EXPECT(ask("nvmlDeviceGetName", handle, name, 96u) == NVML_SUCCESS);
        EXPECT(std::strcmp(name, other) == 0);
        EXPECT(ask("nvmlDeviceGetName", handle, name, 4u) == NVML_ERROR_INSUFFICIENT_SIZE);
        CUuuid bytes{};
        OK(cuDeviceGetUuid, &bytes, static_cast<int>(i));
        std::string digits = "GPU-";
        for (unsigned b = 0; b < 16; ++b) {
            if (b == 4 || b == 6 || b == 8 || b == 10) digits += '-';
            std::snprintf(wanted, sizeof wanted, "%02x", static_cast<unsigned char>(bytes.bytes[b]));
            digits += wanted;
        }
        EXPECT(ask("nvmlDeviceGetUUID", handle, uuid, 96u) == NVML_SUCCESS);
        EXPECT(digits == uuid);
        EXPECT(ask("nvmlDeviceGetHandleByUUID", static_cast<const char*>(uuid), &found) == NVML_SUCCESS);
        EXPECT(found == handle);
        OK(cuDeviceGetPCIBusId, other, 96, static_cast<int>(i));
        nvmlPciInfo_t pci{};
        EXPECT(ask("nvmlDeviceGetPciInfo_v3", handle, &pci) == NVML_SUCCESS);
        EXPECT(std::strcmp(pci.busIdLegacy, other) == 0);
        EXPECT(pci.busId == "0000" + std::string(other));
        EXPECT(pci.bus == i + 1 && pci.domain == 0 && pci.device == 0);
        for (const char* id : {pci.busId, pci.busIdLegacy}) {
            found = nullptr;
            EXPECT(ask("nvmlDeviceGetHandleByPciBusId_v2", id, &found) == NVML_SUCCESS);
            EXPECT(found == handle);
        }
        unsigned index = 9;
        int major = 0, minor = 0;
        EXPECT(ask("nvmlDeviceGetIndex", handle, &index) == NVML_SUCCESS);
        EXPECT(index == i);
        EXPECT(ask("nvmlDeviceGetCudaComputeCapability", handle, &major, &minor) == NVML_SUCCESS);
        EXPECT(major == 8 && minor == 6);
    }
    nvmlDevice_t none = nullptr;
    EXPECT(ask("nvmlDeviceGetHandleByIndex_v2", 3u, &none) == NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(ask("nvmlDeviceGetHandleByUUID", "GPU-0", &none) == NVML_ERROR_NOT_FOUND);
    EXPECT(ask("nvmlDeviceGetHandleByPciBusId_v2", "0000:09:00.0", &none) == NVML_ERROR_NOT_FOUND);
    int version = 0, driver = 0;
    OK(cuDriverGetVersion, &driver);
    EXPECT(ask("nvmlSystemGetCudaDriverVersion_v2", &version) == NVML_SUCCESS);
    EXPECT(version == driver);
}

SIM_TEST("nvml: memory and processes are those of the driver in this process; asking starts none",
         {{"SIMCUDA_MEMORY", "64M"}}) {
    EXPECT(ask("nvmlInit_v2") == NVML_SUCCESS);
    nvmlDevice_t handle = device(0);
    nvmlMemory_t memory{};
    unsigned count = 1;
    nvmlProcessInfo_t process{};
    EXPECT(ask("nvmlDeviceGetMemoryInfo", handle, &memory) == NVML_SUCCESS);
    EXPECT(memory.total == 64 << 20 && memory.free == memory.total && memory.used == 0);
    EXPECT(ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, &count, &process) == NVML_SUCCESS);
    EXPECT(count == 0);
    int device_count = 0;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount, &device_count);
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 5 << 20);
    std::size_t free = 0, total = 0;
    OK(cuMemGetInfo, &free, &total);
    EXPECT(ask("nvmlDeviceGetMemoryInfo", handle, &memory) == NVML_SUCCESS);
    EXPECT(memory.total == total && memory.free == free && memory.used == total - free);
    nvmlMemory_v2_t second{};
    EXPECT(ask("nvmlDeviceGetMemoryInfo_v2", handle, &second) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    second.version = nvml_version<nvmlMemory_v2_t>(2);
    EXPECT(second.version == 0x2000028);
    EXPECT(ask("nvmlDeviceGetMemoryInfo_v2", handle, &second) == NVML_SUCCESS);
    EXPECT(second.total == total && second.free == free && second.used == total - free &&
           second.reserved == 0);
    count = 0;
    EXPECT(ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, &count,
               static_cast<nvmlProcessInfo_t*>(nullptr)) == NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT(count == 1);
    EXPECT(ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, &count, &process) == NVML_SUCCESS);
    EXPECT(process.pid == static_cast<unsigned>(::getpid()) && process.usedGpuMemory == total - free);
    nvmlProcessInfo_v1_t first{};
    EXPECT(ask("nvmlDeviceGetComputeRunningProcesses", handle, &count, &first) == NVML_SUCCESS);
    EXPECT(first.pid == process.pid && first.usedGpuMemory == process.usedGpuMemory);
    EXPECT(ask("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, &count, &process) == NVML_SUCCESS);
    EXPECT(count == 0);
}

std::vector<nvmlProcessInfo_t> processes_of(nvmlDevice_t handle) {
    std::vector<nvmlProcessInfo_t> all(16);
    unsigned count = 16;
    EXPECT(ask("nvmlDeviceGetComputeRunningProcesses_v3", handle, &count, all.data()) == NVML_SUCCESS);
    all.resize(count);
    return all;
}

SIM_TEST("nvml: processes on the same GPUs are listed with their memory, also without the driver",
         {{"SIMCUDA_MEMORY", "64M"}, {"SIMCUDA_DEVICES", "2"}}) {
    const SharedGpus shared;
    const Channel channel;
    EXPECT(ask("nvmlInit_v2") == NVML_SUCCESS);
    EXPECT(processes_of(device(0)).empty());  // there is no page yet
    const auto other = fork_body([&] {
        const Gpu gpu;
        CUdeviceptr p = 0;
        OK(cuMemAlloc, &p, 5 << 20);
        Channel::send(channel.to_first, free_bytes());
        Channel::receive<bool>(channel.to_other);
    });
    const auto free = Channel::receive<std::size_t>(channel.to_first);
    nvmlMemory_t memory{};
    EXPECT(ask("nvmlDeviceGetMemoryInfo", device(0), &memory) == NVML_SUCCESS);
    EXPECT(memory.free == free && memory.used == memory.total - free);
    const auto alone = processes_of(device(0));
    EXPECT(alone.size() == 1 && alone[0].pid == static_cast<unsigned>(other) &&
           alone[0].usedGpuMemory == memory.used);
    EXPECT(processes_of(device(1)).empty());
    {
        const Gpu gpu;
        const auto both = processes_of(device(0));
        EXPECT(both.size() == 2 && both[0].pid == static_cast<unsigned>(::getpid()) &&
               both[1].pid == static_cast<unsigned>(other));
    }
    kill(other);
    reap(other);
    const auto left = processes_of(device(0));
    EXPECT(left.size() == 1 && left[0].pid == static_cast<unsigned>(::getpid()));
    EXPECT(ask("nvmlDeviceGetMemoryInfo", device(0), &memory) == NVML_SUCCESS);
    EXPECT(memory.free == free_bytes());
}

SIM_TEST("nvml: links between devices and sensors are not supported", {{"SIMCUDA_DEVICES", "2"}}) {
    EXPECT(ask("nvmlInit_v2") == NVML_SUCCESS);
    unsigned value = 0;
    int status = 0;
    nvmlUtilization_t rates{3, 3};
    EXPECT(ask("nvmlDeviceGetNvLinkState", device(0), 0u, &value) == NVML_ERROR_NOT_SUPPORTED);
    EXPECT(ask("nvmlDeviceGetNvLinkRemoteDeviceType", device(0), 0u, &status) == NVML_ERROR_NOT_SUPPORTED);
    EXPECT(ask("nvmlDeviceGetP2PStatus", device(0), device(1), 0, &status) == NVML_ERROR_NOT_SUPPORTED);
    EXPECT(ask("nvmlDeviceGetNvLinkState", static_cast<nvmlDevice_t>(nullptr), 0u, &value) ==
           NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(ask("nvmlDeviceGetUtilizationRates", device(0), &rates) == NVML_SUCCESS);
    EXPECT(rates.gpu == 0 && rates.memory == 0);
}

}  // namespace
