// cuCtx*: the current context, its settings and its end.
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/graph/capture.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
    require(out != nullptr && are_context_flags(flags), CUDA_ERROR_INVALID_VALUE);
    auto context = create_context(checked_device(device), flags, false);
    *out = context->handle();
    push_context(std::move(context));
    return CUDA_SUCCESS;
}

CUresult pop(CUcontext* out) {
    const auto context = pop_context();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    if (out != nullptr) *out = context->handle();
    return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
    const auto context = checked_context(handle);
    require(!context->primary(), CUDA_ERROR_INVALID_CONTEXT);
    if (current_context() == context.get()) pop_context();
    destroy_context(context);
    return CUDA_SUCCESS;
}

// The given context, or for null the current one.
std::shared_ptr<Context> given_or_current(CUcontext handle) {
    if (handle != nullptr) return checked_context(handle);
    Context* current = current_context();
    require(current != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    return checked_context(current->handle());
}

CUresult wait_for_all(Context& context) {
    const CUresult allowed = capture_check_wait(context);
    return allowed == CUDA_SUCCESS ? synchronize(context) : allowed;
}

}  // namespace

SIMCUDA_API cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
    return call(Entry::cuCtxCreate_v2, [&] { return create(context, flags, device); });
}

SIMCUDA_API cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int parameters, unsigned flags,
                           CUdevice device) {
    return call(Entry::cuCtxCreate_v3, [&] {
        require(parameters == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        return create(context, flags, device);
    });
}

SIMCUDA_API cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags,
                           CUdevice device) {
    return call(Entry::cuCtxCreate_v4, [&] {
        require(parameters == nullptr || parameters->numExecAffinityParams == 0,
                CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        require(parameters == nullptr || parameters->cigParams == nullptr, CUDA_ERROR_NOT_SUPPORTED);
        return create(context, flags, device);
    });
}

SIMCUDA_API cuCtxDestroy_v2(CUcontext context) {
    return call(Entry::cuCtxDestroy_v2, [&] { return destroy(context); });
}

SIMCUDA_API cuCtxAttach(CUcontext* context, unsigned flags) {
    return call(Entry::cuCtxAttach, [&](Context& current) {
        require(context != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        ++current.usages;
        *context = current.handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxDetach(CUcontext handle) {
    return call(Entry::cuCtxDetach, [&] {
        const auto context = checked_context(handle);
        require(current_context() == context.get() && context->usages != 0, CUDA_ERROR_INVALID_CONTEXT);
        if (--context->usages != 0 || context->primary()) return CUDA_SUCCESS;
        return destroy(handle);
    });
}

SIMCUDA_API cuCtxPushCurrent_v2(CUcontext context) {
    return call(Entry::cuCtxPushCurrent_v2, [&] {
        push_context(checked_context(context));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxPopCurrent_v2(CUcontext* context) {
    return call(Entry::cuCtxPopCurrent_v2, [&] { return pop(context); });
}

SIMCUDA_API cuCtxSetCurrent(CUcontext context) {
    return call(Entry::cuCtxSetCurrent, [&] {
        set_context(context == nullptr ? nullptr : checked_context(context));
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetCurrent(CUcontext* context) {
    return call(Entry::cuCtxGetCurrent, [&] {
        require(context != nullptr, CUDA_ERROR_INVALID_VALUE);
        Context* current = current_context();
        *context = current == nullptr ? nullptr : current->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetDevice(CUdevice* device) {
    return call(Entry::cuCtxGetDevice, kAfterFailure, [&](Context& context) {
        require(device != nullptr, CUDA_ERROR_INVALID_VALUE);
        *device = context.device().ordinal;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
    return call(Entry::cuCtxGetDevice_v2, [&] {
        require(device != nullptr, CUDA_ERROR_INVALID_VALUE);
        *device = given_or_current(context)->device().ordinal;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxRecordEvent(CUcontext context, CUevent event) {
    return call(Entry::cuCtxRecordEvent, [&] {
        const auto owner = given_or_current(context);
        const CUresult allowed = capture_check_wait(*owner);
        if (allowed == CUDA_SUCCESS) record_event(*owner, *checked_event(event));
        return allowed;
    });
}

SIMCUDA_API cuCtxGetFlags(unsigned* flags) {
    return call(Entry::cuCtxGetFlags, kAfterFailure, [&](Context& context) {
        require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
        *flags = context.flags;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxSetFlags(unsigned flags) {
    return call(Entry::cuCtxSetFlags, [&](Context& context) {
        require(are_context_flags(flags), CUDA_ERROR_INVALID_VALUE);
        context.flags = flags;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetId(CUcontext context, unsigned long long* id) {
    return call(Entry::cuCtxGetId, [&] {
        require(id != nullptr, CUDA_ERROR_INVALID_VALUE);
        *id = given_or_current(context)->id();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetApiVersion(CUcontext context, unsigned* version) {
    return call(Entry::cuCtxGetApiVersion, [&] {
        require(version != nullptr, CUDA_ERROR_INVALID_VALUE);
        given_or_current(context);
        *version = 3020;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxSynchronize() {
    return call(Entry::cuCtxSynchronize, [](Context& context) { return wait_for_all(context); });
}

SIMCUDA_API cuCtxSynchronize_v2(CUcontext context) {
    return call(Entry::cuCtxSynchronize_v2, [&] { return wait_for_all(*given_or_current(context)); });
}

SIMCUDA_API cuCtxGetLimit(std::size_t* value, CUlimit limit) {
    return call(Entry::cuCtxGetLimit, [&](Context& context) {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        require(limit >= 0 && limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
        *value = context.limits[limit];
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxSetLimit(CUlimit limit, std::size_t value) {
    return call(Entry::cuCtxSetLimit, [&](Context& context) {
        require(limit >= 0 && limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
        const bool fixed = (limit == CU_LIMIT_PRINTF_FIFO_SIZE && context.has_printed) ||
                           (limit == CU_LIMIT_MALLOC_HEAP_SIZE && context.has_used_heap);
        require(!fixed, CUDA_ERROR_INVALID_VALUE);
        context.limits[limit] = value;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetCacheConfig(CUfunc_cache* config) {
    return call(Entry::cuCtxGetCacheConfig, [&](Context& context) {
        require(config != nullptr, CUDA_ERROR_INVALID_VALUE);
        *config = context.cache_config;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxSetCacheConfig(CUfunc_cache config) {
    return call(Entry::cuCtxSetCacheConfig, [&](Context& context) {
        require(is_cache_config(config), CUDA_ERROR_INVALID_VALUE);
        context.cache_config = config;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    return call(Entry::cuCtxGetSharedMemConfig, [&](Context& context) {
        require(config != nullptr, CUDA_ERROR_INVALID_VALUE);
        *config = context.shared_config;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return call(Entry::cuCtxSetSharedMemConfig, [&](Context& context) {
        require(is_shared_config(config), CUDA_ERROR_INVALID_VALUE);
        context.shared_config = config;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return call(Entry::cuCtxGetStreamPriorityRange, [&](Context&) {
        if (least != nullptr) *least = kLeastPriority;
        if (greatest != nullptr) *greatest = kGreatestPriority;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuCtxResetPersistingL2Cache() {
    return call(Entry::cuCtxResetPersistingL2Cache, [](Context&) { return CUDA_SUCCESS; });
}

// All devices share one address space here, so peer access needs no act; the rules are kept.
SIMCUDA_API cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    return call(Entry::cuCtxEnablePeerAccess, [&](Context& context) {
        require(flags == 0, CUDA_ERROR_INVALID_VALUE);
        const auto other = checked_context(peer);
        require(&other->device() != &context.device(), CUDA_ERROR_INVALID_DEVICE);
        return context.enable_peer(*other) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
}

SIMCUDA_API cuCtxDisablePeerAccess(CUcontext peer) {
    return call(Entry::cuCtxDisablePeerAccess, [&](Context& context) {
        return context.disable_peer(*checked_context(peer)) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    });
}

}  // namespace simcuda::driver
