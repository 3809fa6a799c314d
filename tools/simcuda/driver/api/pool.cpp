// Stream-ordered allocation and memory pools.
#include <bit>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/ipc.h"
#include "tools/simcuda/driver/pool.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

// Reads or writes the attribute's value through `access`, which is called with the field it lives in.
template <class Access>
void with_setting(MemoryPool& pool, CUmemPool_attribute attribute, Access access) {
    std::lock_guard lock(pool.mutex);
    switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
            return access(pool.reuse_follow_event);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
            return access(pool.reuse_opportunistic);
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            return access(pool.reuse_internal);
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            return access(pool.release_threshold);
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

CUresult get_attribute(MemoryPool& pool, CUmemPool_attribute attribute, void* out) {
    auto* bytes = static_cast<cuuint64_t*>(out);
    switch (attribute) {
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: {
            std::lock_guard lock(pool.mutex);
            *bytes = pool.used;
            return CUDA_SUCCESS;
        }
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
            std::lock_guard lock(pool.mutex);
            *bytes = pool.high;
            return CUDA_SUCCESS;
        }
        default:
            with_setting(pool, attribute, [&](const auto& field) {
                *static_cast<std::remove_cvref_t<decltype(field)>*>(out) = field;
            });
            return CUDA_SUCCESS;
    }
}

CUresult set_attribute(MemoryPool& pool, CUmemPool_attribute attribute, const void* value) {
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        require(*static_cast<const cuuint64_t*>(value) == 0, CUDA_ERROR_INVALID_VALUE);  // only a reset
        std::lock_guard lock(pool.mutex);
        pool.high = pool.used;
        return CUDA_SUCCESS;
    }
    with_setting(pool, attribute, [&](auto& field) {
        field = *static_cast<const std::remove_cvref_t<decltype(field)>*>(value);
    });
    return CUDA_SUCCESS;
}

Device& device_of(const CUmemLocation* location) {
    require(location != nullptr, CUDA_ERROR_INVALID_VALUE);
    return device_at(*location);
}

template <class Find>
CUresult give_pool(CUmemoryPool* out, Find find) {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = find()->handle();
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_STREAM_API(cuMemAllocAsync, _ptsz, (CUdeviceptr * address, std::size_t bytes, CUstream handle),
                   (address, bytes, handle)) {
    return call(site.entry, [&] {
        require(address != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve_anywhere(handle, site.per_thread);
        *address = allocate_async(*stream, current_pool(stream->context.device()), bytes);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuMemAllocFromPoolAsync, _ptsz,
                   (CUdeviceptr * address, std::size_t bytes, CUmemoryPool pool, CUstream handle),
                   (address, bytes, pool, handle)) {
    return call(site.entry, [&] {
        require(address != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve_anywhere(handle, site.per_thread);
        *address = allocate_async(*stream, checked_pool(pool), bytes);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream handle), (address, handle)) {
    return call(site.entry, [&] {
        const auto stream = resolve_anywhere(handle, site.per_thread);
        if (address != 0) free_async(*stream, address);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    return call(Entry::cuMemPoolCreate, [&] {
        require(pool != nullptr && properties != nullptr, CUDA_ERROR_INVALID_VALUE);
        require(properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
        const bool shareable = properties->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        require(shareable || properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
        const auto created = create_pool(device_of(&properties->location));
        created->shareable = shareable;
        created->limit = properties->maxSize;
        *pool = created->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolDestroy(CUmemoryPool pool) {
    return call(Entry::cuMemPoolDestroy, [&] {
        destroy_pool(pool);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    return call(Entry::cuMemPoolGetAttribute, [&] {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        return get_attribute(*checked_pool(pool), attribute, value);
    });
}

SIMCUDA_API cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    return call(Entry::cuMemPoolSetAttribute, [&] {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        return set_attribute(*checked_pool(pool), attribute, value);
    });
}

SIMCUDA_API cuMemPoolTrimTo(CUmemoryPool pool, std::size_t) {
    return call(Entry::cuMemPoolTrimTo, [&] {
        checked_pool(pool);  // a pool keeps nothing that could be trimmed
        return CUDA_SUCCESS;
    });
}

// Kept and answered; every device reaches all memory of this simulation.
SIMCUDA_API cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* descriptions, std::size_t count) {
    return call(Entry::cuMemPoolSetAccess, [&] {
        require(descriptions != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto found = checked_pool(pool);
        for (std::size_t i = 0; i < count; ++i) {
            const Device& device = device_at(descriptions[i].location, CUDA_ERROR_INVALID_DEVICE);
            const CUmemAccess_flags flags = descriptions[i].flags;
            require(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                    CUDA_ERROR_INVALID_VALUE);
            // The owner's own access cannot be taken away.
            require(&device != &found->device || flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                    CUDA_ERROR_INVALID_DEVICE);
        }
        std::lock_guard lock(found->mutex);
        for (std::size_t i = 0; i < count; ++i)
            found->peer_access[descriptions[i].location.id] = descriptions[i].flags;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
    return call(Entry::cuMemPoolGetAccess, [&] {
        require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto found = checked_pool(pool);
        const Device& device = device_of(location);
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (&device == &found->device) return CUDA_SUCCESS;
        std::lock_guard lock(found->mutex);
        const auto access = found->peer_access.find(device.ordinal);
        *flags = access == found->peer_access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : access->second;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolExportToShareableHandle(void* handle, CUmemoryPool pool, CUmemAllocationHandleType type,
                                             unsigned long long flags) {
    return call(Entry::cuMemPoolExportToShareableHandle, [&] {
        require(handle != nullptr && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                CUDA_ERROR_INVALID_VALUE);
        *static_cast<int*>(handle) = export_pool(*checked_pool(pool));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle,
                                               CUmemAllocationHandleType type, unsigned long long flags) {
    return call(Entry::cuMemPoolImportFromShareableHandle, [&] {
        require(pool != nullptr && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                CUDA_ERROR_INVALID_VALUE);
        *pool = import_pool(static_cast<int>(reinterpret_cast<std::intptr_t>(handle)))->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
    return call(Entry::cuMemPoolExportPointer, [&] {
        require(data != nullptr, CUDA_ERROR_INVALID_VALUE);
        const RegionPtr region = memory_map().find(address);
        require(region != nullptr && region->address == address && region->pool != nullptr &&
                    region->pool->shareable,
                CUDA_ERROR_INVALID_VALUE);
        *data = std::bit_cast<CUmemPoolPtrExportData>(describe(*region));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool, CUmemPoolPtrExportData* data) {
    return call(Entry::cuMemPoolImportPointer, [&](Context& context) {
        require(address != nullptr && data != nullptr, CUDA_ERROR_INVALID_VALUE);
        *address = import_allocation(context, checked_pool(pool), std::bit_cast<SharedMemory>(*data));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
    return call(Entry::cuDeviceGetDefaultMemPool,
                [&] { return give_pool(pool, [&] { return default_pool(checked_device(device)); }); });
}

SIMCUDA_API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
    return call(Entry::cuDeviceGetMemPool,
                [&] { return give_pool(pool, [&] { return current_pool(checked_device(device)); }); });
}

SIMCUDA_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    return call(Entry::cuDeviceSetMemPool, [&] {
        set_current_pool(checked_device(device), checked_pool(pool));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    return call(Entry::cuMemGetDefaultMemPool, [&] {
        require(type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
        return give_pool(pool, [&] { return default_pool(device_of(location)); });
    });
}

SIMCUDA_API cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
    return call(Entry::cuMemGetMemPool, [&] {
        require(type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
        return give_pool(pool, [&] { return current_pool(device_of(location)); });
    });
}

SIMCUDA_API cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
    return call(Entry::cuMemSetMemPool, [&] {
        require(type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
        set_current_pool(device_of(location), checked_pool(pool));
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
