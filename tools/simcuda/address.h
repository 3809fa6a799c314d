// Device and host address spaces of the simulated GPU.
//
// Both live in this process, a constant apart: what kernels call address `a` is the host byte at
// `a - kDeviceToHost`. Device addresses themselves are reserved and inaccessible, so the CPU faults on a
// device pointer; a kernel faults on a host pointer, because nothing is mapped at `pointer - kDeviceToHost`
// unless the memory was pinned or registered (then it is mapped a second time there). Neither check costs an
// instruction.
#pragma once

#include <cstdint>

namespace simcuda {

using DeviceAddress = std::uint64_t;  // what the program calls a CUdeviceptr

// 64 TiB. User-space addresses of PIE programs, their heaps and mmaps are above this, so `a - kDeviceToHost`
// is valid for each of them and falls where Linux maps nothing by itself.
inline constexpr std::uint64_t kDeviceToHost = 0x4000'0000'0000;

// The window device addresses are given out from (11 TiB), clear of where Linux places programs and
// mmaps, and AddressSanitizer its heap (a little over 4 TiB from 0x6000'0000'0000).
inline constexpr DeviceAddress kDeviceWindowBegin = 0x6500'0000'0000;
inline constexpr DeviceAddress kDeviceWindowEnd = 0x7000'0000'0000;

inline void* to_host(DeviceAddress address) {
    return reinterpret_cast<void*>(address - kDeviceToHost);
}
inline DeviceAddress to_device(const void* host) {
    return reinterpret_cast<std::uint64_t>(host) + kDeviceToHost;
}

}  // namespace simcuda
