#include "tools/lms/driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <stdexcept>

namespace lms::tool {
namespace {

// Stands for both the versioned names of cuda.h (cuDeviceTotalMem is cuDeviceTotalMem_v2) and their types.
#define LMS_STRING(name) #name
#define LMS_DRIVER_CALL(library, function, ...)                                                    \
    checked(reinterpret_cast<decltype(&function)>(symbol(library, LMS_STRING(function))), library, \
            #function, __VA_ARGS__)

void* symbol(void* library, const char* name) {
    void* const address = dlsym(library, name);
    if (address == nullptr) throw std::runtime_error(fmt::format("it has no {}", name));
    return address;
}

std::string describe(void* library, CUresult result) {
    const auto name_of = reinterpret_cast<decltype(&cuGetErrorName)>(dlsym(library, "cuGetErrorName"));
    const char* name = nullptr;
    if (name_of == nullptr || name_of(result, &name) != CUDA_SUCCESS || name == nullptr) {
        return fmt::format("error {}", static_cast<int>(result));
    }
    return name;
}

template <typename Function, typename... Arguments>
void checked(Function function, void* library, const char* name, Arguments... arguments) {
    const CUresult result = function(arguments...);
    if (result != CUDA_SUCCESS)
        throw std::runtime_error(fmt::format("{}: {}", name, describe(library, result)));
}

// 0 for an attribute that this driver does not know.
int attribute(void* library, CUdevice_attribute which, CUdevice device) {
    const auto get =
        reinterpret_cast<decltype(&cuDeviceGetAttribute)>(symbol(library, "cuDeviceGetAttribute"));
    int value = 0;
    return get(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

Gpu inspect_gpu(void* library, int ordinal) {
    Gpu gpu;
    CUdevice device = 0;
    char name[256] = {};
    char bus[32] = {};
    std::size_t bytes = 0;
    LMS_DRIVER_CALL(library, cuDeviceGet, &device, ordinal);
    LMS_DRIVER_CALL(library, cuDeviceGetName, name, static_cast<int>(sizeof name), device);
    LMS_DRIVER_CALL(library, cuDeviceTotalMem, &bytes, device);
    LMS_DRIVER_CALL(library, cuDeviceGetPCIBusId, bus, static_cast<int>(sizeof bus), device);
    gpu.name = name;
    gpu.bus_id = bus;
    gpu.memory_bytes = bytes;
    gpu.virtual_memory =
        attribute(library, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) != 0;
    gpu.maps_host =
        attribute(library, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) != 0 ||
        attribute(library, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) != 0;
    return gpu;
}

}  // namespace

Driver inspect_driver(const std::string& path) {
    Driver driver;
    // Never closed: drivers do not take kindly to that.
    void* const library = dlopen(path.empty() ? "libcuda.so.1" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        driver.problem = dlerror();
        return driver;
    }
    link_map* map = nullptr;
    driver.path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : path;
    try {
        int count = 0;
        LMS_DRIVER_CALL(library, cuInit, 0u);
        LMS_DRIVER_CALL(library, cuDriverGetVersion, &driver.version);
        LMS_DRIVER_CALL(library, cuDeviceGetCount, &count);
        for (int ordinal = 0; ordinal < count; ++ordinal)
            driver.gpus.push_back(inspect_gpu(library, ordinal));
    } catch (const std::runtime_error& problem) {
        driver.problem = problem.what();
    }
    return driver;
}

}  // namespace lms::tool
