#include "shim/session/pools.h"

#include <algorithm>
#include <unordered_map>

#include "shim/device/driver_table.h"
#include "shim/util/mutex.h"

namespace lms::session {

namespace {

struct Taken {
    CUmemoryPool pool;
    std::uint64_t bytes;
};

// Never destroyed: other libraries' exit handlers free memory too.
struct PoolRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    std::unordered_map<CUmemoryPool, CUdevice> managed LMS_GUARDED_BY(mutex);  // pools of the program's own
    std::unordered_map<CUmemoryPool, PoolUse> uses LMS_GUARDED_BY(mutex);
    std::unordered_map<engine::Address, Taken> taken LMS_GUARDED_BY(mutex);
    std::unordered_map<CUmemoryPool, std::uint64_t> numbers LMS_GUARDED_BY(mutex);  // of the program's own
    std::uint64_t last_number LMS_GUARDED_BY(mutex) = 0;

    void forget(CUmemoryPool pool) LMS_REQUIRES(mutex) {
        managed.erase(pool);
        uses.erase(pool);
        numbers.erase(pool);
        std::erase_if(taken, [&](const auto& entry) { return entry.second.pool == pool; });
    }
};

PoolRegistry& pool_registry() {
    static PoolRegistry& instance = *new PoolRegistry;
    return instance;
}

}  // namespace

void note_pool(CUmemoryPool pool, const CUmemPoolProps& properties) {
    const util::Lock lock(pool_registry().mutex);
    pool_registry().forget(pool);
    pool_registry().numbers[pool] = ++pool_registry().last_number;
    if (properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE || properties.maxSize != 0 ||
        properties.usage != 0) {
        return;
    }
    pool_registry().managed[pool] = properties.location.id;
}

std::uint64_t number_of_pool(CUmemoryPool pool) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().numbers.find(pool);
    return it == pool_registry().numbers.end() ? 0 : it->second;
}

void forget_pool(CUmemoryPool pool, std::uint64_t number) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().numbers.find(pool);
    if (it != pool_registry().numbers.end() && it->second == number) pool_registry().forget(pool);
}

bool pool_is_managed(CUmemoryPool pool, CUdevice device) {
    CUmemoryPool standard = nullptr;
    if (device::driver().cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS && pool == standard)
        return true;
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().managed.find(pool);
    return it != pool_registry().managed.end() && it->second == device;
}

std::optional<CUdevice> device_of_pool(CUmemoryPool pool) {
    int count = 0;
    if (device::driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return std::nullopt;
    for (CUdevice device = 0; device < count; ++device) {
        if (pool_is_managed(pool, device)) return device;
    }
    return std::nullopt;
}

void note_taken(CUmemoryPool pool, engine::Address address, std::uint64_t bytes) {
    note_given_back(address);  // by the end of its context, which nobody told
    const util::Lock lock(pool_registry().mutex);
    pool_registry().taken[address] = {pool, bytes};
    PoolUse& use = pool_registry().uses[pool];
    use.bytes += bytes;
    use.used_high = std::max(use.used_high, use.bytes);
    use.reserved_high = std::max(use.reserved_high, use.bytes);
}

void note_given_back(engine::Address address) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().taken.find(address);
    if (it == pool_registry().taken.end()) return;
    pool_registry().uses[it->second.pool].bytes -= it->second.bytes;
    pool_registry().taken.erase(it);
}

CUmemoryPool pool_of(engine::Address address) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().taken.find(address);
    return it == pool_registry().taken.end() ? nullptr : it->second.pool;
}

PoolUse pool_use(CUmemoryPool pool) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().uses.find(pool);
    return it == pool_registry().uses.end() ? PoolUse{} : it->second;
}

void reset_high(CUmemoryPool pool, std::uint64_t PoolUse::*high) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().uses.find(pool);
    if (it != pool_registry().uses.end()) it->second.*high = it->second.bytes;
}

}  // namespace lms::session
