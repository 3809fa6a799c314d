// The window of device addresses: which parts are given out, and what the process may touch.
#pragma once

#include <cstdint>
#include <mutex>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/gaps.h"

namespace simcuda::driver {

// Makes [address, address + bytes) of this process fault on every access, whatever was mapped there.
void make_inaccessible(std::uint64_t address, std::uint64_t bytes);

// Thread-safe.
class AddressSpace {
  public:
    // Reserves the window on the device side and on the side kernels use, both inaccessible. Throws Failure
    // with CUDA_ERROR_OUT_OF_MEMORY if the system refuses.
    AddressSpace();

    // As Gaps::take().
    DeviceAddress reserve(std::uint64_t bytes, std::uint64_t alignment, DeviceAddress hint = 0);
    void release(DeviceAddress address, std::uint64_t bytes);

  private:
    std::mutex mutex_;
    Gaps gaps_;  // guarded by mutex_
};

AddressSpace& address_space();

}  // namespace simcuda::driver
