// The window of device addresses: which parts are given out, and what the process may touch.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "tools/simcuda/address.h"

namespace simcuda::driver {

// Makes [address, address + bytes) of this process fault on every access, whatever was mapped there.
void make_inaccessible(std::uint64_t address, std::uint64_t bytes);

// Thread-safe.
class AddressSpace {
  public:
    // Reserves the window on the device side and on the side kernels use, both inaccessible. Throws Failure
    // with CUDA_ERROR_OUT_OF_MEMORY if the system refuses.
    AddressSpace();

    // Next fit: an address is reused as late as can be, so that a stale pointer faults. A free `hint` is
    // honoured. 0 if the window has no such gap. `alignment` is a power of two.
    DeviceAddress reserve(std::uint64_t bytes, std::uint64_t alignment, DeviceAddress hint = 0);
    void release(DeviceAddress address, std::uint64_t bytes);

  private:
    DeviceAddress search(DeviceAddress from, DeviceAddress to, std::uint64_t bytes,
                         std::uint64_t alignment) const;

    std::mutex mutex_;                             // guards what follows
    std::map<DeviceAddress, std::uint64_t> gaps_;  // free: address -> bytes
    DeviceAddress next_ = kDeviceWindowBegin;
};

AddressSpace& address_space();

}  // namespace simcuda::driver
