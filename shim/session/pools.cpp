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

struct Pool {
    std::optional<CUdevice> managed;  // of the program's own: whose memory is managed
    std::uint64_t number = 0;         // of these; 0: it is none
    PoolUse use;
};

// Never destroyed: other libraries' exit handlers free memory too.
struct PoolRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    std::unordered_map<CUmemoryPool, Pool> pools LMS_GUARDED_BY(mutex);
    std::unordered_map<engine::Address, Taken> taken LMS_GUARDED_BY(mutex);
    std::uint64_t last_number LMS_GUARDED_BY(mutex) = 0;

    // As it is known so far.
    Pool find(CUmemoryPool pool) LMS_REQUIRES(mutex) {
        const auto it = pools.find(pool);
        return it == pools.end() ? Pool{} : it->second;
    }
    void forget(CUmemoryPool pool) LMS_REQUIRES(mutex) {
        pools.erase(pool);
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
    Pool& made = pool_registry().pools[pool];
    made.number = ++pool_registry().last_number;
    if (properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE || properties.maxSize != 0 ||
        properties.usage != 0) {
        return;
    }
    made.managed = properties.location.id;
}

std::uint64_t number_of_pool(CUmemoryPool pool) {
    const util::Lock lock(pool_registry().mutex);
    return pool_registry().find(pool).number;
}

void forget_pool(CUmemoryPool pool, std::uint64_t number) {
    const util::Lock lock(pool_registry().mutex);
    if (number != 0 && pool_registry().find(pool).number == number) pool_registry().forget(pool);
}

bool pool_is_managed(CUmemoryPool pool, CUdevice device) {
    CUmemoryPool standard = nullptr;
    if (device::driver().cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS && pool == standard)
        return true;
    const util::Lock lock(pool_registry().mutex);
    return pool_registry().find(pool).managed == device;
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
    PoolUse& use = pool_registry().pools[pool].use;
    use.bytes += bytes;
    use.used_high = std::max(use.used_high, use.bytes);
    use.reserved_high = std::max(use.reserved_high, use.bytes);
}

void note_given_back(engine::Address address) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().taken.find(address);
    if (it == pool_registry().taken.end()) return;
    pool_registry().pools[it->second.pool].use.bytes -= it->second.bytes;
    pool_registry().taken.erase(it);
}

CUmemoryPool pool_of(engine::Address address) {
    const util::Lock lock(pool_registry().mutex);
    const auto it = pool_registry().taken.find(address);
    return it == pool_registry().taken.end() ? nullptr : it->second.pool;
}

PoolUse pool_use(CUmemoryPool pool) {
    const util::Lock lock(pool_registry().mutex);
    return pool_registry().find(pool).use;
}

void reset_high(CUmemoryPool pool, std::uint64_t PoolUse::*high) {
    const util::Lock lock(pool_registry().mutex);
    PoolUse& use = pool_registry().pools[pool].use;
    use.*high = use.bytes;
}

}  // namespace lms::session
