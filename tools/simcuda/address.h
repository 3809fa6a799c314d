// Device and host address spaces of the simulated GPU.
//
// Both live in this process, one bit apart: what kernels call address `a` is the host byte at `a ^ kSideBit`.
// Device addresses themselves are reserved and inaccessible, so the CPU faults on a device pointer; a kernel
// faults on a host pointer, because nothing is mapped at `pointer ^ kSideBit` unless the memory was pinned or
// registered (then it is mapped a second time there). Neither check costs an instruction; a bit rather than a
// distance, because every address of a process has another side then, those below 4 GiB too.
#pragma once

#include <cstdint>

namespace simcuda {

using DeviceAddress = std::uint64_t;  // what the program calls a CUdeviceptr

// 64 TiB, half of what a process can address. Programs, their heaps and mmaps lie in the upper half (position
// independent ones) or in the first GiB; Linux maps nothing by itself on the other side of either.
inline constexpr std::uint64_t kSideBit = 0x4000'0000'0000;

// The window device addresses are given out from (11 TiB), clear of where Linux places programs and
// mmaps, and AddressSanitizer its heap (a little over 4 TiB from 0x6000'0000'0000).
inline constexpr DeviceAddress kDeviceWindowBegin = 0x6500'0000'0000;
inline constexpr DeviceAddress kDeviceWindowEnd = 0x7000'0000'0000;

inline constexpr bool in_device_window(std::uint64_t address) {
    return address >= kDeviceWindowBegin && address < kDeviceWindowEnd;
}

// From device addresses to the host's and back.
inline constexpr std::uint64_t other_side(std::uint64_t address) {
    return address ^ kSideBit;
}
inline void* to_host(DeviceAddress address) {
    return reinterpret_cast<void*>(other_side(address));
}
inline DeviceAddress to_device(const void* host) {
    return other_side(reinterpret_cast<std::uint64_t>(host));
}

}  // namespace simcuda
