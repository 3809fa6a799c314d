// cuDevicePrimaryCtx*: the context of a device that all libraries share.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"

namespace simcuda::driver {
namespace {

CUresult retain(CUcontext* out, CUdevice ordinal) {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    Device& device = checked_device(ordinal);
    std::lock_guard lock(device.mutex);
    if (device.primary == nullptr) device.primary = create_context(device, device.primary_flags, true);
    ++device.primary_references;
    *out = device.primary->handle();
    return CUDA_SUCCESS;
}

// Takes the context out and destroys it. `all`: whoever still holds it.
CUresult release(CUdevice ordinal, bool all) {
    Device& device = checked_device(ordinal);
    std::shared_ptr<Context> last;
    {
        std::lock_guard lock(device.mutex);
        if (device.primary_references == 0) return all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
        if (!all) --device.primary_references;
        if (all) device.primary_references = 0;
        if (device.primary_references == 0) last.swap(device.primary);
    }
    if (last != nullptr) destroy_context(last);
    return CUDA_SUCCESS;
}

CUresult set_flags(CUdevice ordinal, unsigned flags) {
    require(are_context_flags(flags), CUDA_ERROR_INVALID_VALUE);
    Device& device = checked_device(ordinal);
    std::lock_guard lock(device.mutex);
    device.primary_flags = flags;
    if (device.primary != nullptr) device.primary->flags = flags;
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    return call(Entry::cuDevicePrimaryCtxRetain, [&] { return retain(context, device); });
}

SIMCUDA_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return call(Entry::cuDevicePrimaryCtxRelease_v2, [&] { return release(device, false); });
}

SIMCUDA_API cuDevicePrimaryCtxRelease(CUdevice device) {
    return call(Entry::cuDevicePrimaryCtxRelease, [&] { return release(device, false); });
}

SIMCUDA_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return call(Entry::cuDevicePrimaryCtxReset_v2, [&] { return release(device, true); });
}

SIMCUDA_API cuDevicePrimaryCtxReset(CUdevice device) {
    return call(Entry::cuDevicePrimaryCtxReset, [&] { return release(device, true); });
}

SIMCUDA_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    return call(Entry::cuDevicePrimaryCtxSetFlags_v2, [&] { return set_flags(device, flags); });
}

SIMCUDA_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    return call(Entry::cuDevicePrimaryCtxSetFlags, [&] { return set_flags(device, flags); });
}

SIMCUDA_API cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
    return call(Entry::cuDevicePrimaryCtxGetState, [&] {
        Device& device = checked_device(ordinal);
        std::lock_guard lock(device.mutex);
        if (flags != nullptr) *flags = device.primary_flags;
        if (active != nullptr) *active = device.primary != nullptr;
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
