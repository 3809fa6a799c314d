#include "tools/simcuda/driver/address_space.h"

#include <sys/mman.h>

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

AddressSpace::AddressSpace() : gaps_(kDeviceWindowBegin, kWindow) {
    claim(kDeviceWindowBegin);
    claim(other_side(kDeviceWindowBegin));
}

DeviceAddress AddressSpace::reserve(std::uint64_t bytes, std::uint64_t alignment, DeviceAddress hint) {
    std::lock_guard lock(mutex_);
    return gaps_.take(bytes, alignment, hint);
}

void AddressSpace::release(DeviceAddress address, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    gaps_.give_back(address, bytes);
}

AddressSpace& address_space() {
    static AddressSpace& space = *new AddressSpace;
    return space;
}

}  // namespace simcuda::driver
