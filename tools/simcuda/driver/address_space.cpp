#include "tools/simcuda/driver/address_space.h"

#include <sys/mman.h>

#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/message.h"

namespace simcuda::driver {
namespace {

constexpr std::uint64_t kWindow = kDeviceWindowEnd - kDeviceWindowBegin;

void claim(std::uint64_t address) {
    void* wanted = reinterpret_cast<void*>(address);
    void* got = ::mmap(wanted, kWindow, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) return;
    if (got != MAP_FAILED) ::munmap(got, kWindow);
    message("cannot reserve %llu TiB of addresses at %p (address-space limit, or something else lies there)",
            static_cast<unsigned long long>(kWindow >> 40), wanted);
    throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
}

}  // namespace

void make_inaccessible(std::uint64_t address, std::uint64_t bytes) {
    void* at = reinterpret_cast<void*>(address);
    void* mapped =
        ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    // Out of mappings: at least no access.
    if (mapped == MAP_FAILED) ::mprotect(at, bytes, PROT_NONE);
}

AddressSpace::AddressSpace() {
    claim(kDeviceWindowBegin);
    claim(other_side(kDeviceWindowBegin));
    gaps_.emplace(kDeviceWindowBegin, kWindow);
}

DeviceAddress AddressSpace::search(DeviceAddress from, DeviceAddress to, std::uint64_t bytes,
                                   std::uint64_t alignment) const {
    auto gap = gaps_.upper_bound(from);
    if (gap != gaps_.begin()) --gap;
    for (; gap != gaps_.end() && gap->first < to; ++gap) {
        const DeviceAddress start = (std::max(gap->first, from) + alignment - 1) & ~(alignment - 1);
        const DeviceAddress end = gap->first + gap->second;
        if (start < end && end - start >= bytes) return start;
    }
    return 0;
}

DeviceAddress AddressSpace::reserve(std::uint64_t bytes, std::uint64_t alignment, DeviceAddress hint) {
    if (bytes == 0 || bytes > kWindow || alignment > kWindow) return 0;
    std::lock_guard lock(mutex_);
    DeviceAddress address = 0;
    if (hint >= kDeviceWindowBegin && hint < kDeviceWindowEnd && hint % alignment == 0) {
        address = search(hint, hint + 1, bytes, alignment);
    }
    if (address == 0) address = search(next_, kDeviceWindowEnd, bytes, alignment);
    if (address == 0) address = search(kDeviceWindowBegin, next_, bytes, alignment);
    if (address == 0) return 0;

    auto gap = std::prev(gaps_.upper_bound(address));
    const DeviceAddress begin = gap->first, end = gap->first + gap->second;
    gaps_.erase(gap);
    if (address != begin) gaps_.emplace(begin, address - begin);
    if (address + bytes != end) gaps_.emplace(address + bytes, end - address - bytes);
    next_ = address + bytes;
    return address;
}

void AddressSpace::release(DeviceAddress address, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    auto next = gaps_.lower_bound(address);
    if (next != gaps_.end() && address + bytes == next->first) {
        bytes += next->second;
        next = gaps_.erase(next);
    }
    if (next != gaps_.begin()) {
        auto previous = std::prev(next);
        if (previous->first + previous->second == address) {
            previous->second += bytes;
            return;
        }
    }
    gaps_.emplace(address, bytes);
}

AddressSpace& address_space() {
    static AddressSpace& space = *new AddressSpace;
    return space;
}

}  // namespace simcuda::driver
