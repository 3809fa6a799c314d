// The life of contexts: what is in one goes with it.
#include "shim/access/code_registry.h"
#include "shim/access/graphs.h"
#include "shim/access/pointer_tables.h"
#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/entry/guard.h"
#include "shim/program/contexts.h"
#include "shim/program/green_contexts.h"
#include "shim/session/pools.h"
#include "shim/session/submit.h"

namespace lms::entry {
namespace {

using device::driver;

CUdevice device_of(CUcontext context) {
    CUdevice device = CU_DEVICE_INVALID;
    const device::InContext in_context(context);
    driver().cuCtxGetDevice(&device);
    return device;
}

enum class Kind { Own, Primary };

template <typename Call>
CUresult make(CUcontext* context, CUdevice device, Call&& call, Kind kind = Kind::Own) {
    return guarded_taking([&] {
        const CUresult status = session::call_with_oom_retry(call);
        if (status != CUDA_SUCCESS) return status;
        program::new_context_seen(*context, device);
        if (kind == Kind::Primary) program::primary_seen(*context, device);
        session::context_made(*context, device);
        return status;
    });
}

// What the rooms know of the context and of its buffers goes with it.
void gone(CUcontext context) {
    access::context_code_gone(context);
    access::steps_end_with(context);
    for (const session::Buffer& buffer : session::buffers_of(context)) {
        access::note_freed(buffer.address, buffer.bytes);
        session::note_given_back(buffer.address);
    }
    session::context_gone(context);
}

// `call` may destroy `context`; `is_gone()` says whether it did.
template <typename Call, typename Gone>
CUresult end(CUcontext context, Call&& call, Gone&& is_gone) {
    return guarded([&] {
        program::ContextEnd ends(context, device_of(context));
        session::context_ending(context, ends);
        ends.close();
        const CUresult status = call();
        if (is_gone(status)) {
            ends.is_gone();
            gone(context);
        } else {
            session::context_stays(context);
        }
        return status;
    });
}

template <typename Call>
CUresult destroy(CUcontext context, Call&& call) {
    if (!context) return call();
    return end(context, call, [](CUresult status) { return status == CUDA_SUCCESS; });
}

bool is_alive(CUcontext context) {
    unsigned version = 0;
    return driver().cuCtxGetApiVersion(context, &version) == CUDA_SUCCESS;
}

// Null: it is not active, or cannot be asked for.
CUcontext primary_of(CUdevice device) {
    if (const CUcontext known = program::primary_of(device)) return known;
    unsigned flags = 0;
    int active = 0;
    CUcontext context = nullptr;
    if (driver().cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        driver().cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return nullptr;
    driver().cuDevicePrimaryCtxRelease_v2(device);
    return context;
}

// One of all contexts that there have ever been, from CUDA 12.0 on; 0: not known.
unsigned long long id_of(CUcontext context) {
    unsigned long long id = 0;
    if (!device::driver_has(device::Entry::cuCtxGetId) || driver().cuCtxGetId(context, &id) != CUDA_SUCCESS)
        return 0;
    return id;
}

// Whether the primary context is still the one that had `handle` and `id`, not one that another thread has
// had made anew.
bool is_active(CUdevice device, CUcontext handle, unsigned long long id) {
    unsigned flags = 0;
    int active = 0;
    const CUresult status = driver().cuDevicePrimaryCtxGetState(device, &flags, &active);
    if (status == CUDA_SUCCESS && !active) return false;
    const unsigned long long now = id_of(handle);
    return id != 0 && now != 0 ? now == id : is_alive(handle);
}

// `call` may destroy the primary context of `device`.
template <typename Call>
CUresult let_go_of_primary(CUdevice device, Call&& call) {
    return guarded([&] {
        const CUcontext context = primary_of(device);
        if (!context) return call();
        const unsigned long long id = id_of(context);
        return end(context, call, [&](CUresult) { return !is_active(device, context, id); });
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
    return make(pctx, dev, [&] { return driver().cuCtxCreate(pctx, flags, dev); });
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
    return make(pctx, dev, [&] { return driver().cuCtxCreate_v2(pctx, flags, dev); });
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) {
    return make(pctx, dev, [&] { return driver().cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev); });
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
    return make(pctx, dev, [&] { return driver().cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev); });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
    return make(
        pctx, dev, [&] { return driver().cuDevicePrimaryCtxRetain(pctx, dev); }, Kind::Primary);
}

CUresult cuCtxDestroy(CUcontext ctx) {
    return destroy(ctx, [&] { return driver().cuCtxDestroy(ctx); });
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    return destroy(ctx, [&] { return driver().cuCtxDestroy_v2(ctx); });
}

CUresult cuCtxDetach(CUcontext ctx) {
    // It may have been attached to more than once.
    return end(
        ctx, [&] { return driver().cuCtxDetach(ctx); },
        [&](CUresult status) { return status == CUDA_SUCCESS && !is_alive(ctx); });
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    return guarded([&]() -> CUresult {
        const CUresult status = driver().cuCtxEnablePeerAccess(peerContext, Flags);
        if (status != CUDA_SUCCESS) return status;
        CUdevice device = 0;
        driver().cuCtxGetDevice(&device);
        const CUresult admitted = lms::session::admit_peer(device_of(peerContext), device);
        if (admitted == CUDA_SUCCESS) return status;
        lms::log::warn("GPU {} gets no access to managed memory of another GPU ({}): peer access stays off",
                       device, lms::device::error_name(admitted));
        driver().cuCtxDisablePeerAccess(peerContext);
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    });
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
    return guarded_taking([&]() -> CUresult {
        const CUresult status = lms::session::call_with_oom_retry(
            [&] { return driver().cuGreenCtxCreate(phCtx, desc, dev, flags); });
        if (status != CUDA_SUCCESS) return status;
        if (const CUcontext primary = primary_of(dev)) lms::program::primary_seen(primary, dev);
        lms::program::green_made(*phCtx, dev);
        lms::session::look_at_all_work();
        return status;
    });
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
    return guarded([&]() -> CUresult {
        const CUresult status = driver().cuCtxFromGreenCtx(pContext, hCtx);
        if (status == CUDA_SUCCESS) lms::program::green_converted(hCtx, *pContext);
        return status;
    });
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
    const auto call = [&] { return driver().cuGreenCtxDestroy(hCtx); };
    const auto green = lms::program::find_green(hCtx);
    if (!green) return call();
    const auto destroy_green = [&] {
        const CUresult status = green->context ? destroy(green->context, call) : call();
        if (status == CUDA_SUCCESS) lms::program::forget_green(hCtx);
        return status;
    };
    // It may have been the last to hold the primary context.
    return let_go_of_primary(green->device, destroy_green);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return let_go_of_primary(dev, [&] { return driver().cuDevicePrimaryCtxRelease(dev); });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    return let_go_of_primary(dev, [&] { return driver().cuDevicePrimaryCtxRelease_v2(dev); });
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return let_go_of_primary(dev, [&] { return driver().cuDevicePrimaryCtxReset(dev); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    return let_go_of_primary(dev, [&] { return driver().cuDevicePrimaryCtxReset_v2(dev); });
}
