#include "shim/device/simulated_gpu.h"

#include "shim/device/driver_table.h"
#include "shim/device/loader.h"

namespace lms::device {

util::GpuClock gpu_clock() {
    void* const driver = driver_handle();
    if (driver == nullptr) return {};
    using Now = std::uint64_t();
    using Spend = void(std::uint64_t);
    using SetHelper = void(util::GpuClock::Help*, void*);
    auto* const now = reinterpret_cast<Now*>(real_dlsym()(driver, "simcuda_in_order_ns"));
    auto* const spend = reinterpret_cast<Spend*>(real_dlsym()(driver, "simcuda_wait_ns"));
    auto* const set_helper = reinterpret_cast<SetHelper*>(real_dlsym()(driver, "simcuda_help"));
    const bool simulated = now && spend && set_helper && now() != 0;
    return simulated ? util::GpuClock{now, spend, set_helper} : util::GpuClock{};
}

bool others_use_gpus() {
    void* const driver = driver_handle();
    if (driver == nullptr) return true;
    auto* const shared = reinterpret_cast<int (*)()>(real_dlsym()(driver, "simcuda_is_shared"));
    return !shared || shared() != 0;
}

}  // namespace lms::device
