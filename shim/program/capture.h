// Stream capture: work submitted to a capturing stream is recorded, not run.
//
// A driver call on a stream that is being captured, or on the legacy stream while a blocking one is, breaks
// the capture. Before the shim calls the driver about streams of other threads it asks whether they are
// captured, and no capture begins between the two.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "shim/device/driver_table.h"
#include "shim/program/handles.h"

namespace lms::program {

// A capture is about to begin, and what cannot be asked for then is about to be fenced: whoever submits work
// behind those fences sees capturing_anywhere(). A CaptureBegin follows.
void capture_nears();
// Before a capture begins on `stream` or may reach it: whether all that it was given has been fenced.
void capture_may_reach(CUstream stream, bool fenced);
// When the capture that was begun on `stream` has ended, or gone with the stream.
void capture_ended(CUstream stream);

struct Captured {
    int begun = 0;  // captures there; more than one only for the per-thread stream's handle
    // Of captures_since_none() when one last began there or may have reached it, if all that it was given had
    // been fenced then; else 0.
    std::uint64_t fenced_at = 0;
};

// A stream is about to go, and a capture that was begun on it with it. Its handle may be another's before the
// driver's call is over, and what begins there then is not forgotten.
class CaptureEnd {
  public:
    explicit CaptureEnd(CUstream stream);
    ~CaptureEnd();
    CaptureEnd(const CaptureEnd&) = delete;
    CaptureEnd& operator=(const CaptureEnd&) = delete;
    // The driver did not destroy it.
    void refused();

  private:
    CUstream stream_;
    Captured captured_;
};

// Captures that have begun, or are about to, and have not ended.
inline constinit std::atomic<int> captures{0};
// Whether there are any.
inline bool capturing_anywhere() {
    return captures.load(std::memory_order_relaxed) > 0;
}
// Of a stream that is capturing: whether all that it was given before is fenced.
bool fenced_before_capture(CUstream stream);
// How often a capture began while there was no other.
std::uint64_t captures_since_none();

// Whether `stream` is capturing. One load while nothing is.
inline bool capturing(CUstream stream) {
    if (!capturing_anywhere()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = device::driver().cuStreamIsCapturing(stream, &status);
    // The legacy stream cannot tell while another stream's capture forbids it. What fails otherwise is asked
    // again: a capture that is taken for none is spoilt.
    const bool cannot_tell = (!stream || stream == CU_STREAM_LEGACY) && device::about_capture(result);
    if (result != CUDA_SUCCESS && !cannot_tell)
        result = device::driver().cuStreamIsCapturing(stream, &status);
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Whether `stream` is the legacy one, and a capture elsewhere forbids its use.
inline bool capture_forbids(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return stream == CU_STREAM_LEGACY && capturing_anywhere() &&
           device::about_capture(device::driver().cuStreamIsCapturing(stream, &status));
}

// All beginnings of captures are as one handle: they are held off by its use, and one that is about to be
// retires it meanwhile.
using Beginnings = Handles<int, bool>;

// While it lives no capture begins; false if one is about to.
struct CapturesHeldOff : Beginnings::Use {
    CapturesHeldOff();
};

// Waits for the current context, unless something is captured or is about to be, which that would end.
inline std::optional<CUresult> wait_beside_no_capture() {
    const CapturesHeldOff held_off;
    if (!held_off || capturing_anywhere()) return std::nullopt;
    return device::driver().cuCtxSynchronize();
}

// Around the call that has the driver begin a capture; capture_ended() follows if it refused. Waits for those
// who hold beginnings off (Beginnings::Retire).
struct CaptureBegin : Beginnings::Retire {
    explicit CaptureBegin(CUstream stream);
    ~CaptureBegin() { keep(); }
};

}  // namespace lms::program
