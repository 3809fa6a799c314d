// cuEvent*.
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/ipc.h"
#include "tools/simcuda/driver/scheduler.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

CUresult record(Site site, CUevent handle, CUstream stream_handle, unsigned flags) {
    return call(site.entry, [&](Context& context) {
        require((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) == 0, CUDA_ERROR_INVALID_VALUE);
        const auto event = checked_event(handle);
        record_event(*resolve(context, stream_handle, site.per_thread), *event);
        return CUDA_SUCCESS;
    });
}

// When the record was reached. Throws Failure with CUDA_ERROR_NOT_READY if it was not yet.
std::uint64_t reached_ns(Event& event) {
    require((event.flags & CU_EVENT_DISABLE_TIMING) == 0, CUDA_ERROR_INVALID_HANDLE);
    const WorkPtr work = latest_record(event);
    require(work != nullptr, CUDA_ERROR_INVALID_HANDLE);
    std::unique_lock lock(work_mutex());
    require(have_ended(lock, {work}), CUDA_ERROR_NOT_READY);
    return work->done_ns;
}

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
    require(milliseconds != nullptr, CUDA_ERROR_INVALID_VALUE);
    const std::uint64_t from = reached_ns(*checked_event(start)), to = reached_ns(*checked_event(end));
    *milliseconds = static_cast<float>(static_cast<double>(static_cast<std::int64_t>(to - from)) / 1e6);
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_API cuEventCreate(CUevent* event, unsigned flags) {
    return call(Entry::cuEventCreate, [&](Context& context) {
        constexpr unsigned kFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        require(event != nullptr && (flags & ~kFlags) == 0, CUDA_ERROR_INVALID_VALUE);
        const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
        require(!shared || (flags & CU_EVENT_DISABLE_TIMING) != 0, CUDA_ERROR_INVALID_VALUE);
        *event = create_event(context.shared_from_this(), flags, shared ? SharedEvent::create() : nullptr)
                     ->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuEventDestroy_v2(CUevent event) {
    return call(Entry::cuEventDestroy_v2, kNotAfterFailure, [&] {
        destroy_event(event);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream)) {
    return record(site, event, stream, CU_EVENT_RECORD_DEFAULT);
}

SIMCUDA_STREAM_API(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags),
                   (event, stream, flags)) {
    return record(site, event, stream, flags);
}

SIMCUDA_API cuEventQuery(CUevent event) {
    return call(Entry::cuEventQuery, [&](Context&) {
        return is_reached(*checked_event(event)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

SIMCUDA_API cuEventSynchronize(CUevent event) {
    return call(Entry::cuEventSynchronize,
                [&](Context& context) { return synchronize(context, *checked_event(event)); });
}

SIMCUDA_API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return call(Entry::cuEventElapsedTime, [&](Context&) { return elapsed(milliseconds, start, end); });
}

SIMCUDA_API cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return call(Entry::cuEventElapsedTime_v2, [&](Context&) { return elapsed(milliseconds, start, end); });
}

}  // namespace simcuda::driver
