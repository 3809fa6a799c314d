// What the functions of the simulated management library share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tools/simcuda/driver/shared/page.h"
#include "tools/simcuda/nvml/nvml_api.h"

namespace simcuda::nvml {

bool running();  // between nvmlInit and the nvmlShutdown that answers it

// Handles are addresses of these; null for what is none.
struct Device {
    int ordinal;
};
nvmlDevice_t handle_of(int ordinal);
const Device* device_of(nvmlDevice_t handle);

// The processes that have memory of the device: this one once it has the driver initialised, and those that
// it shares the device with.
std::vector<driver::shared::User> users(const Device& device);
std::uint64_t memory_used(const Device& device);  // bytes, by all of them

nvmlReturn_t copy_text(std::string_view text, char* out, unsigned length);

// What a query of a device begins with: runs `answer` on it.
template <typename Answer>
nvmlReturn_t query(nvmlDevice_t handle, const void* out, Answer&& answer) {
    if (!running()) return NVML_ERROR_UNINITIALIZED;
    const Device* const device = device_of(handle);
    if (device == nullptr || out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return answer(*device);
}

}  // namespace simcuda::nvml
