// Stream capture: work submitted to a capturing stream is recorded, not run.
//
// A driver call on a stream that is being captured, or on the legacy stream while a blocking one is, breaks
// the capture. The shim's own calls on streams of other threads are therefore made while no capture is under
// way, and none can begin meanwhile.
#pragma once

#include "shim/device/driver_table.h"

namespace lms::engine {

// Before the driver is asked to begin a capture; capture_ended() follows if it refuses. Waits for those who
// hold a NoCapture, at most a second: their driver call might wait for work of this thread's.
void capture_begins(CUstream stream);
// When the capture that was begun on `stream` has ended, or gone with the stream.
void capture_ended(CUstream stream);
// The stream is gone, and a capture that was begun on it with it.
void capture_gone(CUstream stream);

// Whether any stream is capturing, or about to.
bool capturing_anywhere();

// Whether `stream` is capturing. One load while nothing is.
inline bool capturing(CUstream stream) {
    if (!capturing_anywhere()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = device::driver().cuStreamIsCapturing(stream, &status);
    // The legacy stream cannot tell while another stream's capture forbids it.
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// While it lives no capture is under way, and none begins; false if one is.
class NoCapture {
  public:
    NoCapture();
    ~NoCapture();
    NoCapture(const NoCapture&) = delete;
    NoCapture& operator=(const NoCapture&) = delete;
    explicit operator bool() const { return none_; }

  private:
    bool none_;
};

}  // namespace lms::engine
