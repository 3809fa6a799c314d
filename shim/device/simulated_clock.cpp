#include "shim/device/simulated_clock.h"

#include "shim/device/driver_table.h"
#include "shim/device/loader.h"

namespace lms::device {

util::GpuClock gpu_clock() {
    void* const driver = driver_handle();
    if (driver == nullptr) return {};
    using Now = std::uint64_t();
    using Spend = void(std::uint64_t);
    auto* const now = reinterpret_cast<Now*>(real_dlsym()(driver, "simcuda_in_order_ns"));
    auto* const spend = reinterpret_cast<Spend*>(real_dlsym()(driver, "simcuda_spend_ns"));
    return now && spend && now() != 0 ? util::GpuClock{now, spend} : util::GpuClock{};
}

}  // namespace lms::device
