// Beginning and end, the system, and the devices there are.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <string>

#include "tools/simcuda/driver/identity.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/nvml/nvml.h"

namespace simcuda::nvml {
namespace {

constexpr std::size_t kMostDevices = 16;

std::atomic<unsigned> references{0};

std::array<Device, kMostDevices>& table() {
    static std::array<Device, kMostDevices> devices = [] {
        std::array<Device, kMostDevices> all{};
        for (std::size_t i = 0; i < all.size(); ++i) all[i].ordinal = static_cast<int>(i);
        return all;
    }();
    return devices;
}

unsigned device_count() {
    return static_cast<unsigned>(driver::knobs().devices);
}

// "GPU-" and the bytes in groups of 4, 2, 2, 2 and 6.
std::string uuid_text(int ordinal) {
    std::string text = "GPU";
    const auto bytes = driver::uuid_of(ordinal);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        char digits[4];
        std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += digits;
    }
    return text;
}

template <typename Matches>
nvmlReturn_t find_device(nvmlDevice_t* device, const char* text, Matches&& matches) {
    if (!running()) return NVML_ERROR_UNINITIALIZED;
    if (device == nullptr || text == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < device_count(); ++i) {
        if (!matches(static_cast<int>(i))) continue;
        *device = handle_of(static_cast<int>(i));
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t by_index(unsigned index, nvmlDevice_t* device) {
    if (!running()) return NVML_ERROR_UNINITIALIZED;
    if (device == nullptr || index >= device_count()) return NVML_ERROR_INVALID_ARGUMENT;
    *device = handle_of(static_cast<int>(index));
    return NVML_SUCCESS;
}

nvmlReturn_t by_pci(const char* id, nvmlDevice_t* device) {
    return find_device(device, id, [&](int ordinal) {
        const std::string full = driver::pci_id(ordinal);
        return id == full || id == full.substr(5) || id == driver::pci_id(ordinal, 8);
    });
}

nvmlReturn_t count_devices(unsigned* count) {
    if (!running()) return NVML_ERROR_UNINITIALIZED;
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *count = device_count();
    return NVML_SUCCESS;
}

nvmlReturn_t begin() {
    ++references;
    return NVML_SUCCESS;
}

nvmlReturn_t cuda_version(int* version) {
    if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *version = static_cast<int>(driver::knobs().cuda);
    return NVML_SUCCESS;
}

// The driver, if the process has it: the one that lies beside this library.
void* loaded_driver() {
    Dl_info self{};
    if (::dladdr(reinterpret_cast<void*>(&loaded_driver), &self) == 0) return nullptr;
    std::string path = self.dli_fname;
    path = path.substr(0, path.rfind('/') + 1) + "libcuda.so.1";
    return ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
}

// Bytes of device memory that this process has; 0 before it has the driver initialised.
std::uint64_t own_memory(int ordinal) {
    void* const driver = loaded_driver();
    if (driver == nullptr) return 0;
    const auto used = reinterpret_cast<std::uint64_t (*)(int)>(::dlsym(driver, "simcuda_device_memory_used"));
    const std::uint64_t bytes = used != nullptr ? used(ordinal) : 0;
    ::dlclose(driver);
    return bytes;
}

}  // namespace

bool running() {
    return references != 0;
}

nvmlDevice_t handle_of(int ordinal) {
    return reinterpret_cast<nvmlDevice_t>(&table()[static_cast<std::size_t>(ordinal)]);
}

const Device* device_of(nvmlDevice_t handle) {
    for (unsigned i = 0; i < device_count(); ++i)
        if (handle == handle_of(static_cast<int>(i))) return &table()[i];
    return nullptr;
}

std::vector<driver::shared::User> users(const Device& device) {
    auto all = driver::shared::users(static_cast<std::size_t>(device.ordinal));
    const std::uint64_t own = own_memory(device.ordinal);
    const auto listed = [](const driver::shared::User& user) { return user.process == ::getpid(); };
    if (own != 0 && std::none_of(all.begin(), all.end(), listed)) all.push_back({::getpid(), own});
    return all;
}

std::uint64_t memory_used(const Device& device) {
    std::uint64_t bytes = 0;
    for (const auto& user : users(device)) bytes += user.bytes;
    return bytes;
}

nvmlReturn_t copy_text(std::string_view text, char* out, unsigned length) {
    if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    text.copy(out, text.size());
    out[text.size()] = '\0';
    return NVML_SUCCESS;
}

NVML_API nvmlInit() {
    return begin();
}
NVML_API nvmlInit_v2() {
    return begin();
}
NVML_API nvmlInitWithFlags(unsigned) {
    return begin();
}

NVML_API nvmlShutdown() {
    unsigned held = references;
    do {
        if (held == 0) return NVML_ERROR_UNINITIALIZED;
    } while (!references.compare_exchange_weak(held, held - 1));
    return NVML_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
        case NVML_SUCCESS:
            return "Success";
        case NVML_ERROR_UNINITIALIZED:
            return "Uninitialized";
        case NVML_ERROR_INVALID_ARGUMENT:
            return "Invalid Argument";
        case NVML_ERROR_NOT_SUPPORTED:
            return "Not Supported";
        case NVML_ERROR_NOT_FOUND:
            return "Not Found";
        case NVML_ERROR_INSUFFICIENT_SIZE:
            return "Insufficient Size";
        case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
            return "Argument Version Mismatch";
    }
    return "Unknown Error";
}

NVML_API nvmlSystemGetDriverVersion(char* version, unsigned length) {
    return running() ? copy_text(driver::kDriverVersion, version, length) : NVML_ERROR_UNINITIALIZED;
}

// These two are answered before nvmlInit too.
NVML_API nvmlSystemGetNVMLVersion(char* version, unsigned length) {
    return copy_text("13." + std::string(driver::kDriverVersion), version, length);
}
NVML_API nvmlSystemGetCudaDriverVersion(int* version) {
    return cuda_version(version);
}
NVML_API nvmlSystemGetCudaDriverVersion_v2(int* version) {
    return cuda_version(version);
}

NVML_API nvmlDeviceGetCount(unsigned* count) {
    return count_devices(count);
}
NVML_API nvmlDeviceGetCount_v2(unsigned* count) {
    return count_devices(count);
}
NVML_API nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* device) {
    return by_index(index, device);
}
NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
    return by_index(index, device);
}
NVML_API nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
    return find_device(device, uuid, [&](int ordinal) { return uuid == uuid_text(ordinal); });
}
NVML_API nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
    return by_pci(id, device);
}
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
    return by_pci(id, device);
}

NVML_API nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned length) {
    return query(handle, uuid,
                 [&](const Device& device) { return copy_text(uuid_text(device.ordinal), uuid, length); });
}

}  // namespace simcuda::nvml
