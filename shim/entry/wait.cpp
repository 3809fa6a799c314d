// Calls that wait for work. The thread that makes them brings in meanwhile what is foretold.
#include <algorithm>
#include <chrono>
#include <thread>

#include "shim/app/capture.h"
#include "shim/app/contexts.h"
#include "shim/app/streams.h"
#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/entry/guard.h"
#include "shim/session/sessions.h"
#include "shim/session/submit.h"
#include "shim/session/tool_requests.h"
#include "shim/trace/stats.h"

namespace lms::entry {
namespace {

using device::driver;

// How long nothing is looked at between two steps.
constexpr auto kPause = std::chrono::microseconds(50);

bool bring_ahead() {
    bool more = false;
    for (engine::Session* session : engine::sessions()) more |= session->bring_ahead();
    return more;
}

// For as long as `busy()`, which may ask the driver but not wait, says that there is something to wait for.
template <typename Busy>
void meanwhile(Busy&& busy) {
    trace::refresh_counters();
    engine::take_up_requests();
    while (bring_ahead()) {
        {
            const engine::CapturesHeldOff held_off;
            if (!held_off || engine::capturing_anywhere() || !busy()) return;
        }
        std::this_thread::sleep_for(kPause);
    }
}

template <typename Query, typename Wait>
CUresult wait_for_stream(CUstream handle, bool per_thread, Query query, Wait wait) {
    // Whatever comes of it, the wait is made.
    guarded([&] {
        const CUstream stream = engine::resolve_stream(handle, per_thread);
        meanwhile([&] {
            if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
                return query(handle) == CUDA_ERROR_NOT_READY;
            const engine::StreamUse use(stream);
            return use && query(handle) == CUDA_ERROR_NOT_READY;
        });
        return CUDA_SUCCESS;
    });
    return wait(handle);
}

// The driver cannot be asked about a whole context. What its GPU was given is known, but not by which
// context.
bool busy(CUcontext context) {
    CUdevice device = 0;
    {
        const device::InContext in_context(context);
        if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return false;
    }
    engine::Session* const session = engine::session_of(device);
    const std::vector<CUcontext> contexts = engine::known_contexts();
    const bool alone = std::ranges::none_of(
        contexts, [&](CUcontext other) { return other != context && engine::may_reach(other, device); });
    return session && alone && session->busy();
}

template <typename Wait>
CUresult wait_for_context(CUcontext context, Wait&& wait) {
    // Whatever comes of it, the wait is made.
    guarded([&] {
        if (context) meanwhile([&] { return busy(context); });
        return CUDA_SUCCESS;
    });
    return wait();
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuCtxSynchronize() {
    CUcontext context = nullptr;
    driver().cuCtxGetCurrent(&context);
    return wait_for_context(context, driver().cuCtxSynchronize);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    return wait_for_context(ctx, [&] { return driver().cuCtxSynchronize_v2(ctx); });
}

CUresult cuStreamSynchronize(CUstream hStream) {
    return wait_for_stream(hStream, false, driver().cuStreamQuery, driver().cuStreamSynchronize);
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
    return wait_for_stream(hStream, true, driver().cuStreamQuery_ptsz, driver().cuStreamSynchronize_ptsz);
}
