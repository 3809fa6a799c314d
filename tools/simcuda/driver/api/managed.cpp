// Hints about managed memory, and what is asked of them. It is coherent by itself here, so they are checked,
// kept and otherwise change nothing.
#include <algorithm>
#include <vector>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/managed_hints.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

void check_managed(CUdeviceptr address, std::size_t bytes) {
    const bool managed = bytes != 0 && memory_map().covers(address, bytes, [](const Region& region) {
        return region.kind == Region::Kind::Managed;
    });
    require(managed, CUDA_ERROR_INVALID_VALUE);
}

CUmemLocation location_of(CUdevice device) {
    if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, 0};
    return {CU_MEM_LOCATION_TYPE_DEVICE, checked_device(device).ordinal};
}

void check_location(const CUmemLocation& location) {
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE:
            checked_device(location.id);
            return;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
            return;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

int ordinal_of(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

// Whether the location of an advice is looked at.
bool has_location(CUmem_advise advice) {
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
           advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUresult advise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, const CUmemLocation& location) {
    check_managed(address, bytes);
    if (has_location(advice)) check_location(location);
    require(advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY,
            CUDA_ERROR_INVALID_VALUE);
    change_hints(address, bytes, [&](ManagedHint& hint) {
        switch (advice) {
            case CU_MEM_ADVISE_SET_READ_MOSTLY:
            case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
                hint.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
                break;
            case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
                hint.preferred = location;
                break;
            case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
                hint.preferred.reset();
                break;
            case CU_MEM_ADVISE_SET_ACCESSED_BY:
                hint.accessed_by.insert(ordinal_of(location));
                break;
            case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
                hint.accessed_by.erase(ordinal_of(location));
                break;
        }
    });
    return CUDA_SUCCESS;
}

void note_prefetch(CUdeviceptr address, std::size_t bytes, const CUmemLocation& location) {
    change_hints(address, bytes, [&](ManagedHint& hint) { hint.prefetched = location; });
}

CUresult prefetch(Site site, CUdeviceptr address, std::size_t bytes, const CUmemLocation& location,
                  CUstream handle, Context& context) {
    check_managed(address, bytes);
    check_location(location);
    const auto stream = resolve(context, handle, site.per_thread);
    note_prefetch(address, bytes, location);
    submit(*stream, MarkerOp{});
    return CUDA_SUCCESS;
}

// Batches: location `i` is for the ranges from starts[i] to the next one's start.
struct Batch {
    CUdeviceptr* addresses;
    std::size_t* bytes;
    std::size_t count;
    CUmemLocation* locations;
    std::size_t* starts;
    std::size_t location_count;
};

void check_ranges(const Batch& batch) {
    require(batch.addresses != nullptr && batch.bytes != nullptr && batch.count != 0,
            CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < batch.count; ++i) check_managed(batch.addresses[i], batch.bytes[i]);
}

// What is discarded may hold anything until it is written or prefetched.
void discard(Stream& stream, const Batch& batch) {
    constexpr std::uint32_t kGarbage = 0xDB;
    for (std::size_t i = 0; i < batch.count; ++i)
        submit(stream, MemsetOp{batch.addresses[i], 0, batch.bytes[i], 1, kGarbage, 1});
}

CUresult prefetch_batch(Site site, const Batch& batch, unsigned long long flags, CUstream handle,
                        bool discards) {
    return call(site.entry, [&](Context& context) {
        check_ranges(batch);
        require(flags == 0 && batch.locations != nullptr && batch.starts != nullptr &&
                    batch.location_count != 0 && batch.location_count <= batch.count && batch.starts[0] == 0,
                CUDA_ERROR_INVALID_VALUE);
        for (std::size_t i = 0; i < batch.location_count; ++i) {
            check_location(batch.locations[i]);
            require(i == 0 || (batch.starts[i] > batch.starts[i - 1] && batch.starts[i] < batch.count),
                    CUDA_ERROR_INVALID_VALUE);
        }
        const auto stream = resolve(context, handle, site.per_thread);
        require(stream->kind != Stream::Kind::Legacy, CUDA_ERROR_INVALID_HANDLE);
        if (discards) discard(*stream, batch);
        std::size_t location = 0;
        for (std::size_t i = 0; i < batch.count; ++i) {
            while (location + 1 < batch.location_count && batch.starts[location + 1] <= i) ++location;
            note_prefetch(batch.addresses[i], batch.bytes[i], batch.locations[location]);
        }
        submit(*stream, MarkerOp{});
        return CUDA_SUCCESS;
    });
}

// The one location all pages have; of type CU_MEM_LOCATION_TYPE_INVALID if there is none.
CUmemLocation common(const std::vector<ManagedHint>& hints,
                     std::optional<CUmemLocation> ManagedHint::*which) {
    constexpr CUmemLocation kNone{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
    const auto& first = hints.front().*which;
    const bool same = first && std::all_of(hints.begin(), hints.end(), [&](const ManagedHint& hint) {
                          const auto& location = hint.*which;
                          return location && location->type == first->type &&
                                 (location->type == CU_MEM_LOCATION_TYPE_HOST || location->id == first->id);
                      });
    return same ? *first : kNone;
}

int as_device(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : ordinal_of(location);
}

void answer_accessed_by(const std::vector<ManagedHint>& hints, int* out, std::size_t bytes) {
    require(bytes != 0 && bytes % sizeof(int) == 0, CUDA_ERROR_INVALID_VALUE);
    std::vector<int> all;
    for (int device : hints.front().accessed_by) {
        const bool everywhere = std::all_of(hints.begin(), hints.end(), [&](const ManagedHint& hint) {
            return hint.accessed_by.contains(device);
        });
        if (everywhere) all.push_back(device);
    }
    all.resize(bytes / sizeof(int), CU_DEVICE_INVALID);
    std::copy(all.begin(), all.end(), out);
}

void answer(const std::vector<ManagedHint>& hints, CUmem_range_attribute attribute, void* out,
            std::size_t bytes) {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    const auto give = [&](int value) {
        require(bytes == sizeof value, CUDA_ERROR_INVALID_VALUE);
        *static_cast<int*>(out) = value;
    };
    switch (attribute) {
        case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
            return give(
                std::all_of(hints.begin(), hints.end(), [](const ManagedHint& h) { return h.read_mostly; }));
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
            return give(as_device(common(hints, &ManagedHint::preferred)));
        case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
            return answer_accessed_by(hints, static_cast<int*>(out), bytes);
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
            return give(as_device(common(hints, &ManagedHint::prefetched)));
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
            return give(common(hints, &ManagedHint::preferred).type);
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
            return give(common(hints, &ManagedHint::preferred).id);
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
            return give(common(hints, &ManagedHint::prefetched).type);
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
            return give(common(hints, &ManagedHint::prefetched).id);
    }
    throw Failure{CUDA_ERROR_INVALID_VALUE};
}

}  // namespace

SIMCUDA_API cuMemAdvise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, CUdevice device) {
    return call(Entry::cuMemAdvise, [&](Context&) {
        return advise(address, bytes, advice, has_location(advice) ? location_of(device) : CUmemLocation{});
    });
}

SIMCUDA_API cuMemAdvise_v2(CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                           CUmemLocation location) {
    return call(Entry::cuMemAdvise_v2, [&](Context&) { return advise(address, bytes, advice, location); });
}

SIMCUDA_STREAM_API(cuMemPrefetchAsync, _ptsz,
                   (CUdeviceptr address, std::size_t bytes, CUdevice device, CUstream handle),
                   (address, bytes, device, handle)) {
    return call(site.entry, [&](Context& context) {
        return prefetch(site, address, bytes, location_of(device), handle, context);
    });
}

SIMCUDA_STREAM_API(cuMemPrefetchAsync_v2, _ptsz,
                   (CUdeviceptr address, std::size_t bytes, CUmemLocation location, unsigned flags,
                    CUstream handle),
                   (address, bytes, location, flags, handle)) {
    return call(site.entry, [&](Context& context) {
        require(flags == 0, CUDA_ERROR_INVALID_VALUE);
        return prefetch(site, address, bytes, location, handle, context);
    });
}

SIMCUDA_STREAM_API(cuMemPrefetchBatchAsync, _ptsz,
                   (CUdeviceptr * addresses, std::size_t* bytes, std::size_t count, CUmemLocation* locations,
                    std::size_t* starts, std::size_t location_count, unsigned long long flags,
                    CUstream stream),
                   (addresses, bytes, count, locations, starts, location_count, flags, stream)) {
    return prefetch_batch(site, {addresses, bytes, count, locations, starts, location_count}, flags, stream,
                          false);
}

SIMCUDA_STREAM_API(cuMemDiscardBatchAsync, _ptsz,
                   (CUdeviceptr * addresses, std::size_t* bytes, std::size_t count, unsigned long long flags,
                    CUstream handle),
                   (addresses, bytes, count, flags, handle)) {
    return call(site.entry, [&](Context& context) {
        const Batch batch{addresses, bytes, count, nullptr, nullptr, 0};
        check_ranges(batch);
        require(flags == 0, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve(context, handle, site.per_thread);
        require(stream->kind != Stream::Kind::Legacy, CUDA_ERROR_INVALID_HANDLE);
        discard(*stream, batch);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuMemDiscardAndPrefetchBatchAsync, _ptsz,
                   (CUdeviceptr * addresses, std::size_t* bytes, std::size_t count, CUmemLocation* locations,
                    std::size_t* starts, std::size_t location_count, unsigned long long flags,
                    CUstream stream),
                   (addresses, bytes, count, locations, starts, location_count, flags, stream)) {
    return prefetch_batch(site, {addresses, bytes, count, locations, starts, location_count}, flags, stream,
                          true);
}

SIMCUDA_API cuMemRangeGetAttribute(void* data, std::size_t bytes, CUmem_range_attribute attribute,
                                   CUdeviceptr address, std::size_t count) {
    return call(Entry::cuMemRangeGetAttribute, [&](Context&) {
        check_managed(address, count);
        answer(hints_of(address, count), attribute, data, bytes);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuMemRangeGetAttributes(void** data, std::size_t* bytes, CUmem_range_attribute* attributes,
                                    std::size_t attribute_count, CUdeviceptr address, std::size_t count) {
    return call(Entry::cuMemRangeGetAttributes, [&](Context&) {
        require(data != nullptr && bytes != nullptr && attributes != nullptr && attribute_count != 0,
                CUDA_ERROR_INVALID_VALUE);
        check_managed(address, count);
        const std::vector<ManagedHint> hints = hints_of(address, count);
        for (std::size_t i = 0; i < attribute_count; ++i) answer(hints, attributes[i], data[i], bytes[i]);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
