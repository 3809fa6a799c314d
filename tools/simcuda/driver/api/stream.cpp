// cuStream*: streams, waiting, callbacks and settings.
#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

CUresult create(Context& context, CUstream* out, unsigned flags, int priority) {
    require(out != nullptr && (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) == 0, CUDA_ERROR_INVALID_VALUE);
    priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
    *out = create_stream(context, flags, priority)->handle();
    return CUDA_SUCCESS;
}

void check_query(Stream& stream) {
    const CUresult allowed = capture_check_query(stream);
    require(allowed == CUDA_SUCCESS, allowed);
}

// To wait is unsafe while something captures, for whatever stream.
void check_wait(Stream& stream) {
    check_query(stream);
    const CUresult allowed = capture_check_unsafe_call();
    require(allowed == CUDA_SUCCESS, allowed);
}

// A question about one stream: gives its answer to `out`.
template <class Value, class Question>
CUresult ask(Site site, CUstream handle, Value* out, Question question) {
    return call(site.entry, [&](Context& context) {
        require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
        *out = question(*resolve(context, handle, site.per_thread));
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_API cuStreamCreate(CUstream* stream, unsigned flags) {
    return call(Entry::cuStreamCreate, [&](Context& context) { return create(context, stream, flags, 0); });
}

SIMCUDA_API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
    return call(Entry::cuStreamCreateWithPriority,
                [&](Context& context) { return create(context, stream, flags, priority); });
}

SIMCUDA_API cuStreamDestroy_v2(CUstream stream) {
    return call(Entry::cuStreamDestroy_v2, kNotAfterFailure, [&] {
        destroy_stream(stream);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuStreamSynchronize, _ptsz, (CUstream handle), (handle)) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, handle, site.per_thread);
        check_wait(*stream);
        return synchronize(*stream);
    });
}

SIMCUDA_STREAM_API(cuStreamQuery, _ptsz, (CUstream handle), (handle)) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, handle, site.per_thread);
        check_query(*stream);
        return is_idle(*stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

SIMCUDA_STREAM_API(cuStreamWaitEvent, _ptsz, (CUstream handle, CUevent event, unsigned flags),
                   (handle, event, flags)) {
    return call(site.entry, [&](Context& context) {
        require((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) == 0, CUDA_ERROR_INVALID_VALUE);
        const auto waited = checked_event(event);
        wait_event(*resolve(context, handle, site.per_thread), *waited);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuStreamAddCallback, _ptsz,
                   (CUstream handle, CUstreamCallback callback, void* data, unsigned flags),
                   (handle, callback, data, flags)) {
    return call(site.entry, [&](Context& context) {
        require(callback != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        const auto stream = resolve(context, handle, site.per_thread);
        require(stream->capture == nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        submit(*stream, HostOp{[=](CUresult error) { callback(handle, error, data); }, true});
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuLaunchHostFunc, _ptsz, (CUstream handle, CUhostFn function, void* data),
                   (handle, function, data)) {
    return call(site.entry, [&](Context& context) {
        require(function != nullptr, CUDA_ERROR_INVALID_VALUE);
        submit(*resolve(context, handle, site.per_thread),
               HostOp{[=](CUresult) { function(data); }, false, function, data});
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuStreamGetFlags, _ptsz, (CUstream handle, unsigned* flags), (handle, flags)) {
    return ask(site, handle, flags, [](Stream& stream) { return stream.flags; });
}

SIMCUDA_STREAM_API(cuStreamGetPriority, _ptsz, (CUstream handle, int* priority), (handle, priority)) {
    return ask(site, handle, priority, [](Stream& stream) { return stream.priority; });
}

SIMCUDA_STREAM_API(cuStreamGetId, _ptsz, (CUstream handle, unsigned long long* id), (handle, id)) {
    return ask(site, handle, id, [](Stream& stream) { return stream.id; });
}

SIMCUDA_STREAM_API(cuStreamGetDevice, _ptsz, (CUstream handle, CUdevice* device), (handle, device)) {
    return ask(site, handle, device, [](Stream& stream) { return stream.context.device().ordinal; });
}

SIMCUDA_STREAM_API(cuStreamGetCtx, _ptsz, (CUstream handle, CUcontext* context), (handle, context)) {
    return ask(site, handle, context, [](Stream& stream) { return stream.context.handle(); });
}

SIMCUDA_STREAM_API(cuStreamGetCtx_v2, _ptsz, (CUstream handle, CUcontext* context, CUgreenCtx* green),
                   (handle, context, green)) {
    if (green != nullptr) *green = nullptr;
    return ask(site, handle, context, [](Stream& stream) { return stream.context.handle(); });
}

SIMCUDA_STREAM_API(cuStreamGetAttribute, _ptsz,
                   (CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value), (handle, id, value)) {
    return ask(site, handle, value, [&](Stream& stream) { return stream.attribute(id); });
}

SIMCUDA_STREAM_API(cuStreamSetAttribute, _ptsz,
                   (CUstream handle, CUstreamAttrID id, const CUstreamAttrValue* value),
                   (handle, id, value)) {
    return call(site.entry, [&](Context& context) {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        resolve(context, handle, site.per_thread)->set_attribute(id, *value);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuStreamCopyAttributes, _ptsz, (CUstream to, CUstream from), (to, from)) {
    return call(site.entry, [&](Context& context) {
        const auto source = resolve(context, from, site.per_thread),
                   target = resolve(context, to, site.per_thread);
        target->copy_attributes(*source);
        return CUDA_SUCCESS;
    });
}

// Managed memory is always coherent here, so attaching it changes nothing.
SIMCUDA_STREAM_API(cuStreamAttachMemAsync, _ptsz,
                   (CUstream handle, CUdeviceptr address, std::size_t bytes, unsigned flags),
                   (handle, address, bytes, flags)) {
    return call(site.entry, [&](Context& context) {
        const RegionPtr region = memory_map().find(address);
        require(region != nullptr && region->kind == Region::Kind::Managed, CUDA_ERROR_INVALID_VALUE);
        require(bytes == 0 || address + bytes <= region->end(), CUDA_ERROR_INVALID_VALUE);
        require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE,
                CUDA_ERROR_INVALID_VALUE);
        submit(*resolve(context, handle, site.per_thread), MarkerOp{});
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
