// Memory pools: created, destroyed and asked.
#include "shim/session/pools.h"

#include <span>

#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/session/sessions.h"
#include "shim/session/submit.h"

using namespace lms;
using device::driver;

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
    return entry::guarded_taking([&]() -> CUresult {
        const CUresult status =
            session::call_with_oom_retry([&] { return driver().cuMemPoolCreate(pool, poolProps); });
        if (status == CUDA_SUCCESS) session::note_pool(*pool, *poolProps);
        return status;
    });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    return entry::guarded([&]() -> CUresult {
        const std::uint64_t number = session::number_of_pool(pool);
        const CUresult status = driver().cuMemPoolDestroy(pool);
        if (status == CUDA_SUCCESS) session::forget_pool(pool, number);
        return status;
    });
}

// Managed memory has no pool in the driver: other GPUs are given access to all of the pool's GPU.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
    return entry::guarded([&]() -> CUresult {
        const CUresult status = driver().cuMemPoolSetAccess(pool, map, count);
        if (status != CUDA_SUCCESS) return status;
        const auto owner = session::device_of_pool(pool);
        for (const CUmemAccessDesc& access : std::span(map, owner ? count : 0)) {
            if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || access.location.id == *owner ||
                access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
                continue;
            }
            const CUresult admitted = session::admit_peer(*owner, access.location.id);
            if (admitted != CUDA_SUCCESS) return admitted;
        }
        return status;
    });
}

// What the driver's pool holds, and what is managed. Managed memory counts as reserved wherever it is.
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
    return entry::guarded([&]() -> CUresult {
        const CUresult status = driver().cuMemPoolGetAttribute(pool, attr, value);
        if (status != CUDA_SUCCESS) return status;
        switch (attr) {
            case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
            case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
                *static_cast<cuuint64_t*>(value) += session::pool_use(pool).bytes;
                return status;
            case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                *static_cast<cuuint64_t*>(value) += session::pool_use(pool).used_high;
                return status;
            case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
                *static_cast<cuuint64_t*>(value) += session::pool_use(pool).reserved_high;
                return status;
            default:
                return status;
        }
    });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
    return entry::guarded([&]() -> CUresult {
        const CUresult status = driver().cuMemPoolSetAttribute(pool, attr, value);
        if (status != CUDA_SUCCESS) return status;
        // The only value it takes for these is 0.
        if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) session::reset_high(pool, &session::PoolUse::used_high);
        if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
            session::reset_high(pool, &session::PoolUse::reserved_high);
        return status;
    });
}
