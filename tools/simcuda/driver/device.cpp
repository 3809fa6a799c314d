#include "tools/simcuda/driver/device.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "tools/simcuda/driver/address_space.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/scheduler.h"
#include "tools/simcuda/driver/shared/order.h"
#include "tools/simcuda/driver/shared/page.h"
#include "tools/simcuda/exec/tally.h"
#include "tools/simcuda/ptx/count.h"
#include "tools/simcuda/ptx/lost_writes.h"

namespace simcuda::driver {
namespace {

// Never destroyed: worker threads use them until the process is gone.
std::atomic<Device*> first_device{nullptr};
std::atomic<std::size_t> device_count{0};
std::atomic<bool> ready{false};

// Worker threads run this library's code for as long as the process lives, so it must not be unloaded.
void stay_loaded() {
    Dl_info self{};
    if (::dladdr(reinterpret_cast<void*>(&stay_loaded), &self) != 0) {
        ::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

// A forked child has the addresses but none of the threads: like CUDA's, the driver does not work there.
std::atomic<bool> forked{false};
void in_child() {
    forked = true;
    ready = false;
    shared::leave();
}

// Where host memory lies that kernels reach, by the addresses at which their code does.
exec::HostRanges host_located() {
    exec::HostRanges ranges;
    for (const RegionPtr& region : memory_map().overlapping(0, UINT64_MAX)) {
        if (!region->on_host()) continue;
        const std::uint64_t begin = other_side(region->address);
        ranges.push_back({begin, begin + region->bytes, region->kind == Region::Kind::Mapping});
    }
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return ranges;
}

}  // namespace

Device::Device(int number, std::uint64_t capacity)
    : ordinal(number),
      memory(PhysicalPool::Kind::Device, capacity, static_cast<std::size_t>(number)),
      scheduler(*new Scheduler(static_cast<unsigned>(number))) {}

void initialise() {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    if (ready) return;
    require(!forked, CUDA_ERROR_NOT_INITIALIZED);
    require(knobs().devices != 0, CUDA_ERROR_NO_DEVICE);
    stay_loaded();
    ::pthread_atfork(nullptr, nullptr, in_child);
    address_space();
    shared::join();
    host_pool();
    const bool loses = is(Perverse::HostWritesLost) || is(Perverse::HostAtomicsLost);
    if (simulated_time() || loses) exec::set_host_ranges(host_located);
    if (simulated_time()) ptx::count_work();
    if (loses) {
        exec::lose_host_writes(is(Perverse::HostWritesLost), is(Perverse::HostAtomicsLost));
        ptx::lose_writes();
    }
    auto* storage = static_cast<Device*>(
        ::operator new (sizeof(Device) * knobs().devices, std::align_val_t{alignof(Device)}));
    for (std::size_t i = 0; i < knobs().devices; ++i) {
        new (storage + i) Device(static_cast<int>(i), knobs().memory);
    }
    first_device = storage;
    device_count = knobs().devices;
    if (shared::in_order()) {
        begin_clock(shared::begin_order());
        keep_order();
    }
    ready = true;
}

bool initialised() {
    return ready.load(std::memory_order_acquire);
}

std::span<Device> devices() {
    return {first_device.load(), device_count.load()};
}

Device& checked_device(CUdevice ordinal) {
    require(ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices().size(), CUDA_ERROR_INVALID_DEVICE);
    return devices()[static_cast<std::size_t>(ordinal)];
}

Device& device_at(const CUmemLocation& location, CUresult no_such_device) {
    const bool host = location.type == CU_MEM_LOCATION_TYPE_HOST ||
                      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    require(!host, CUDA_ERROR_NOT_SUPPORTED);
    require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
    require(location.id >= 0 && static_cast<std::size_t>(location.id) < devices().size(), no_such_device);
    return devices()[static_cast<std::size_t>(location.id)];
}

PhysicalPool& host_pool() {
    static PhysicalPool& pool =
        *new PhysicalPool(PhysicalPool::Kind::Host, knobs().host_memory, shared::kHost);
    return pool;
}

}  // namespace simcuda::driver

// For the management library, which must not initialise the driver to ask.
extern "C" __attribute__((visibility("default"))) std::uint64_t simcuda_device_memory_used(int ordinal) {
    const auto all = simcuda::driver::devices();
    return ordinal >= 0 && static_cast<std::size_t>(ordinal) < all.size()
               ? all[static_cast<std::size_t>(ordinal)].memory.used()
               : 0;
}
