// Hints about managed memory (prefetch, advise, discard) and what can be asked about them. The driver has
// them for its own managed memory only; on ours a prefetch to the GPU brings in what is free to come, and the
// rest is accepted and changes nothing. No hint fails for want of room.
#include "shim/device/driver_table.h"
#include "shim/entry/batch.h"
#include "shim/entry/refusal.h"
#include "shim/entry/transfer.h"

namespace lms::entry {
namespace {

using device::driver;
using engine::Range;
using engine::spelt_out;

bool in_one_buffer(const Range& range) {
    engine::Session* session = engine::session_at(range.address);
    const auto buffer = session ? session->buffer_at(range.address) : std::nullopt;
    return buffer && range.bytes > 0 && range.bytes <= buffer->address + buffer->bytes - range.address;
}

CUresult bring_in(const Range& range, CUstream stream) {
    engine::Session* session = engine::session_at(range.address);
    const Range part{range.address, std::min(range.bytes, session->piece_bytes())};
    // What it says does not matter: what is not there when it is needed is brought in then.
    engine::submit(
        stream,
        [&] {
            engine::Reach reach;
            reach.stream = stream;
            reach.ranges = {part};
            return reach;
        },
        [] { return CUDA_SUCCESS; });
    return CUDA_SUCCESS;
}

// One prefetch; `real` is the driver's.
template <typename Real>
CUresult prefetch(const Range& range, bool to_device, CUstream stream, Real&& real) {
    return guarded([&]() -> CUresult {
        if (!is_managed(range.address)) return engine::call_with_room(real);
        if (!in_one_buffer(range)) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult error = refusal(); error != CUDA_SUCCESS) return error;
        return to_device ? bring_in(range, stream) : CUDA_SUCCESS;
    });
}

template <typename Real>
CUresult advise(const Range& range, Real&& real) {
    return guarded([&]() -> CUresult {
        if (!is_managed(range.address)) return real();
        return in_one_buffer(range) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

// The ranges of a batch, and where each is to go where that is given.
struct Ranges {
    CUdeviceptr* addresses;
    std::size_t* bytes;
    std::size_t count;
    Runs<CUmemLocation> locations;
};

// A batch of hints. Those about managed memory are taken here; the others go on by `real(ranges)`.
template <typename Real>
CUresult hint_batch(const Ranges& all, bool has_locations, CUstream stream, Real&& real) {
    return guarded([&]() -> CUresult {
        if (engine::sessions().empty() || !all.addresses || !all.bytes ||
            (has_locations && !all.locations.valid())) {
            return real(all);
        }
        std::vector<CUdeviceptr> addresses;
        std::vector<std::size_t> bytes;
        SomeRuns<CUmemLocation> locations;
        std::vector<Range> wanted;
        for (std::size_t i = 0; i < all.count; ++i) {
            const Range range{all.addresses[i], all.bytes[i]};
            if (!is_managed(range.address)) {
                addresses.push_back(range.address);
                bytes.push_back(range.bytes);
                if (has_locations) locations.add(all.locations, i);
                continue;
            }
            if (!in_one_buffer(range)) return CUDA_ERROR_INVALID_VALUE;
            const bool to_device = has_locations && all.locations.attributes[all.locations.of(i)].type ==
                                                        CU_MEM_LOCATION_TYPE_DEVICE;
            if (to_device) wanted.push_back(range);
        }
        if (!addresses.empty()) {
            const CUresult status = real({addresses.data(), bytes.data(), addresses.size(), locations.get()});
            if (status != CUDA_SUCCESS) return status;
        }
        for (const Range& range : wanted) bring_in(range, stream);
        return CUDA_SUCCESS;
    });
}

// An attribute of a range that nobody has advised about, which is what our ranges are.
CUresult range_attribute(void* data, std::size_t bytes, CUmem_range_attribute which) {
    const auto all = [&](int value) -> CUresult {
        if (!data || bytes == 0 || bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
        std::fill_n(static_cast<int*>(data), bytes / sizeof(int), value);
        return CUDA_SUCCESS;
    };
    switch (which) {
        case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
            return all(0);
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
            return all(CU_MEM_LOCATION_TYPE_INVALID);
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
            return all(CU_DEVICE_INVALID);
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

#define LMS_PREFETCH(symbol, per_thread)                                                             \
    CUresult symbol(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {        \
        return prefetch({devPtr, count}, dstDevice != CU_DEVICE_CPU, spelt_out(hStream, per_thread), \
                        [&] { return driver().symbol(devPtr, count, dstDevice, hStream); });         \
    }
LMS_PREFETCH(cuMemPrefetchAsync, false)
LMS_PREFETCH(cuMemPrefetchAsync_ptsz, true)

#define LMS_PREFETCH_V2(symbol, per_thread)                                                        \
    CUresult symbol(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,  \
                    CUstream hStream) {                                                            \
        return prefetch({devPtr, count}, location.type == CU_MEM_LOCATION_TYPE_DEVICE,             \
                        spelt_out(hStream, per_thread),                                            \
                        [&] { return driver().symbol(devPtr, count, location, flags, hStream); }); \
    }
LMS_PREFETCH_V2(cuMemPrefetchAsync_v2, false)
LMS_PREFETCH_V2(cuMemPrefetchAsync_v2_ptsz, true)

// Prefetches, and discards that prefetch what they discard: its old contents are as good as any.
#define LMS_PREFETCH_BATCH(symbol, per_thread)                                                           \
    CUresult symbol(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,        \
                    size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,           \
                    CUstream hStream) {                                                                  \
        return hint_batch({dptrs, sizes, count, {prefetchLocs, prefetchLocIdxs, numPrefetchLocs}}, true, \
                          spelt_out(hStream, per_thread), [&](const Ranges& left) {                      \
                              return driver().symbol(left.addresses, left.bytes, left.count,             \
                                                     left.locations.attributes, left.locations.starts,   \
                                                     left.locations.count, flags, hStream);              \
                          });                                                                            \
    }
LMS_PREFETCH_BATCH(cuMemPrefetchBatchAsync, false)
LMS_PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz, true)
LMS_PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync, false)
LMS_PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, true)

#define LMS_DISCARD_BATCH(symbol, per_thread)                                                           \
    CUresult symbol(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags,          \
                    CUstream hStream) {                                                                 \
        return hint_batch(                                                                              \
            {dptrs, sizes, count, {}}, false, spelt_out(hStream, per_thread), [&](const Ranges& left) { \
                return driver().symbol(left.addresses, left.bytes, left.count, flags, hStream);         \
            });                                                                                         \
    }
LMS_DISCARD_BATCH(cuMemDiscardBatchAsync, false)
LMS_DISCARD_BATCH(cuMemDiscardBatchAsync_ptsz, true)

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return advise({devPtr, count}, [&] { return driver().cuMemAdvise(devPtr, count, advice, device); });
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
    return advise({devPtr, count}, [&] { return driver().cuMemAdvise_v2(devPtr, count, advice, location); });
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
    return guarded([&]() -> CUresult {
        if (!is_managed(devPtr))
            return driver().cuMemRangeGetAttribute(data, dataSize, attribute, devPtr, count);
        if (!in_one_buffer({devPtr, count})) return CUDA_ERROR_INVALID_VALUE;
        return range_attribute(data, dataSize, attribute);
    });
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
    return guarded([&]() -> CUresult {
        if (!is_managed(devPtr)) {
            return driver().cuMemRangeGetAttributes(data, dataSizes, attributes, numAttributes, devPtr,
                                                    count);
        }
        if (!data || !dataSizes || !attributes || numAttributes == 0 || !in_one_buffer({devPtr, count}))
            return CUDA_ERROR_INVALID_VALUE;
        for (std::size_t i = 0; i < numAttributes; ++i) {
            const CUresult status = range_attribute(data[i], dataSizes[i], attributes[i]);
            if (status != CUDA_SUCCESS) return status;
        }
        return CUDA_SUCCESS;
    });
}
