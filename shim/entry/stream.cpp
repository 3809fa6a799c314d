// The life of streams and captures, which the engine must know of.
#include "shim/device/driver_table.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/program/capture.h"
#include "shim/program/streams.h"
#include "shim/session/sessions.h"
#include "shim/session/submit.h"

namespace lms::entry {
namespace {

using device::driver;

CUresult create(CUstream* stream, session::Call call) {
    return guarded_taking([&] {
        const CUresult status = session::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS) {
            CUcontext context = nullptr;
            driver().cuStreamGetCtx(*stream, &context);
            program::stream_created(*stream, context);
        }
        return status;
    });
}

CUresult destroy(CUstream stream, session::Call call) {
    return guarded([&] {
        // Its handle is gone after the call, its work need not be.
        program::StreamEnd end(stream);
        if (end && !session::sessions().empty()) {
            const bool captured = program::capturing(stream);
            if (program::capturing_anywhere() || device::leaves_open(driver().cuStreamQuery(stream)))
                program::streams_unlisted.store(true);
            for (session::Session* session : session::sessions()) session->stream_ends(stream, captured);
            end.forget();
            for (session::Session* session : session::sessions()) session->stream_ended(stream);
        }
        program::CaptureEnd capture_end(stream);
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
    if (stream == CU_STREAM_LEGACY || program::capturing(stream)) return;
    unsigned flags = 0;
    const bool blocking =
        driver().cuStreamGetFlags(stream, &flags) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING);
    bool fenced = true;
    for (session::Session* session : session::sessions()) fenced &= session->capture_nears(stream, blocking);
    program::capture_may_reach(stream, fenced);
}

CUresult begin_capture(CUstream stream, session::Call call) {
    return guarded([&] {
        const session::Submitting submitting(stream);
        // Counted before, so that no launch into the capturing stream is missed.
        program::capture_nears();
        fence_before_capture(stream);
        const program::CaptureBegin begin(stream);
        const CUresult status = call();
        if (status != CUDA_SUCCESS) program::capture_ended(stream);
        return status;
    });
}

CUresult end_capture(CUstream stream, session::Call call) {
    const CUresult status = call();
    // These mean that nothing was capturing, or that nobody may ask.
    const bool none = status == CUDA_ERROR_ILLEGAL_STATE || status == CUDA_ERROR_INVALID_VALUE ||
                      status == CUDA_ERROR_INVALID_HANDLE || status == CUDA_ERROR_NOT_PERMITTED;
    // What else fails may have ended it or not: it is another stream's or thread's, or the call did nothing.
    if (!none && (status == CUDA_SUCCESS || !program::capturing(stream))) program::capture_ended(stream);
    return status;
}

// The event may be of a capture, which then reaches the stream. To ask the event would end the capture.
[[gnu::noinline, gnu::cold]] CUresult wait_beside_capture(CUstream stream, session::Call call) {
    return guarded([&] {
        const session::Submitting submitting(stream);
        fence_before_capture(stream);
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

LMS_FORMS(cuStreamBeginCapture, _ptsz, (CUstream hStream),
          return begin_capture(Form::stream(hStream), [&] { return Form::real(hStream); });)

LMS_FORMS(cuStreamBeginCapture_v2, _ptsz, (CUstream hStream, CUstreamCaptureMode mode),
          return begin_capture(Form::stream(hStream), [&] { return Form::real(hStream, mode); });)

LMS_FORMS(cuStreamBeginCaptureToGraph, _ptsz,
          (CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
           const CUgraphEdgeData* dependencyData, size_t numDependencies, CUstreamCaptureMode mode),
          return begin_capture(Form::stream(hStream), [&] {
              return Form::real(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
          });)

LMS_FORMS(cuStreamBeginRecaptureToGraph, _ptsz,
          (CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph, CUgraphRecaptureCallback callback,
           void* userData),
          return begin_capture(Form::stream(hStream),
                               [&] { return Form::real(hStream, mode, hGraph, callback, userData); });)

LMS_FORMS(cuStreamEndCapture, _ptsz, (CUstream hStream, CUgraph* phGraph),
          return end_capture(Form::stream(hStream), [&] { return Form::real(hStream, phGraph); });)

LMS_FORMS(cuStreamWaitEvent, _ptsz, (CUstream hStream, CUevent hEvent, unsigned int Flags),
          if (!lms::program::capturing_anywhere()) [[likely]] return Form::real(hStream, hEvent, Flags);
          return wait_beside_capture(Form::stream(hStream),
                                     [=] { return Form::real(hStream, hEvent, Flags); });)
