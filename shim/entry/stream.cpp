// The life of streams and captures, which the engine must know of.
#include "shim/app/capture.h"
#include "shim/app/streams.h"
#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/session/sessions.h"
#include "shim/session/submit.h"

namespace lms::entry {
namespace {

using device::driver;

template <typename Create>
CUresult create(CUstream* stream, Create&& call) {
    return guarded_taking([&] {
        const CUresult status = engine::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS) {
            CUcontext context = nullptr;
            driver().cuStreamGetCtx(*stream, &context);
            engine::stream_created(*stream, context);
        }
        return status;
    });
}

template <typename Destroy>
CUresult destroy(CUstream stream, Destroy&& call) {
    return guarded([&] {
        // Its handle is gone after the call, its work need not be.
        engine::StreamEnd end(stream);
        if (end && !engine::sessions().empty()) {
            const bool captured = engine::capturing(stream);
            for (engine::Session* session : engine::sessions()) session->stream_ends(stream, captured);
            end.forget();
            for (engine::Session* session : engine::sessions()) session->stream_ended(stream);
        }
        engine::CaptureEnd capture_end(stream);
        const CUresult status = call();
        if (status != CUDA_SUCCESS) {
            capture_end.refused();
            end.keep();
        }
        return status;
    });
}

// While `stream` is captured what it was given before cannot be asked for, nor, if it is a blocking one, what
// legacy streams were given. (What the driver will refuse is left alone.)
void fence_before_capture(CUstream stream) {
    if (stream == CU_STREAM_LEGACY || engine::capturing(stream)) return;
    unsigned flags = 0;
    const bool blocking =
        driver().cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING);
    bool fenced = true;
    for (engine::Session* session : engine::sessions()) fenced &= session->capture_nears(stream, blocking);
    engine::capture_may_reach(stream, fenced);
}

template <typename Begin>
CUresult begin_capture(CUstream handle, bool per_thread, Begin&& call) {
    return guarded([&] {
        const CUstream stream = engine::resolve_stream(handle, per_thread);
        // Counted before, so that no launch into the capturing stream is missed.
        engine::capture_nears();
        fence_before_capture(stream);
        const engine::CaptureBegin begin(stream);
        const CUresult status = call();
        if (status != CUDA_SUCCESS) engine::capture_ended(stream);
        return status;
    });
}

template <typename End>
CUresult end_capture(CUstream handle, bool per_thread, End&& call) {
    const CUresult status = call();
    const CUstream stream = engine::resolve_stream(handle, per_thread);
    // These mean that nothing was capturing, or that nobody may ask.
    const bool none = status == CUDA_ERROR_ILLEGAL_STATE || status == CUDA_ERROR_INVALID_VALUE ||
                      status == CUDA_ERROR_INVALID_HANDLE || status == CUDA_ERROR_NOT_PERMITTED;
    // What else fails may have ended it or not: it is another stream's or thread's, or the call did nothing.
    if (!none && (status == CUDA_SUCCESS || !engine::capturing(stream))) engine::capture_ended(stream);
    return status;
}

// The event may be of a capture, which then reaches the stream. To ask the event would end the capture.
template <typename Wait>
CUresult wait_for_event(CUstream handle, bool per_thread, Wait&& call) {
    if (!engine::capturing_anywhere()) return call();
    return guarded([&] {
        fence_before_capture(engine::resolve_stream(handle, per_thread));
        return call();
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
    return create(phStream, [&] { return driver().cuStreamCreate(phStream, Flags); });
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
    return create(phStream, [&] { return driver().cuStreamCreateWithPriority(phStream, flags, priority); });
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
    return create(phStream,
                  [&] { return driver().cuGreenCtxStreamCreate(phStream, greenCtx, flags, priority); });
}

CUresult cuStreamDestroy(CUstream hStream) {
    return destroy(hStream, [&] { return driver().cuStreamDestroy(hStream); });
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
    return destroy(hStream, [&] { return driver().cuStreamDestroy_v2(hStream); });
}

CUresult cuStreamBeginCapture(CUstream hStream) {
    return begin_capture(hStream, false, [&] { return driver().cuStreamBeginCapture(hStream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
    return begin_capture(hStream, true, [&] { return driver().cuStreamBeginCapture_ptsz(hStream); });
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
    return begin_capture(hStream, false, [&] { return driver().cuStreamBeginCapture_v2(hStream, mode); });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
    return begin_capture(hStream, true, [&] { return driver().cuStreamBeginCapture_v2_ptsz(hStream, mode); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
    return begin_capture(hStream, false, [&] {
        return driver().cuStreamBeginCaptureToGraph(hStream, hGraph, dependencies, dependencyData,
                                                    numDependencies, mode);
    });
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                          CUstreamCaptureMode mode) {
    return begin_capture(hStream, true, [&] {
        return driver().cuStreamBeginCaptureToGraph_ptsz(hStream, hGraph, dependencies, dependencyData,
                                                         numDependencies, mode);
    });
}

CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                       CUgraphRecaptureCallback callbackFunc, void* userData) {
    return begin_capture(hStream, false, [&] {
        return driver().cuStreamBeginRecaptureToGraph(hStream, mode, hGraph, callbackFunc, userData);
    });
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                            CUgraphRecaptureCallback callbackFunc, void* userData) {
    return begin_capture(hStream, true, [&] {
        return driver().cuStreamBeginRecaptureToGraph_ptsz(hStream, mode, hGraph, callbackFunc, userData);
    });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
    return end_capture(hStream, false, [&] { return driver().cuStreamEndCapture(hStream, phGraph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph* phGraph) {
    return end_capture(hStream, true, [&] { return driver().cuStreamEndCapture_ptsz(hStream, phGraph); });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    return wait_for_event(hStream, false, [&] { return driver().cuStreamWaitEvent(hStream, hEvent, Flags); });
}

CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags) {
    return wait_for_event(hStream, true,
                          [&] { return driver().cuStreamWaitEvent_ptsz(hStream, hEvent, Flags); });
}
