// What the rest of the driver asks of stream capture.
#pragma once

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class Context;
class Stream;
struct Event;

// One capture in progress; may span several streams.
class Capture {
  public:
    virtual ~Capture() = default;

    // Records instead of running. Throw Failure if the operation is not allowed in a capture (which
    // invalidates it).
    virtual void record(Stream& stream, Op op) = 0;
    virtual void record_event(Stream& stream, Event& event) = 0;
};

// cuStreamWaitEvent for an event recorded in a capture (Event::captured is set), or by a capturing stream.
// Returns false if capture has nothing to do with it: the wait is an ordinary one. Throws Failure.
bool capture_wait_event(Stream& stream, Event& event);

// A potentially unsafe call is about to be made by this thread: CUDA_SUCCESS, or (having invalidated the
// captures concerned) CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. Cheap while nothing captures.
CUresult capture_check_unsafe_call();

// Work is about to be given to the context's legacy stream: CUDA_SUCCESS, or
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT when a blocking stream of the context is capturing (that capture is
// invalidated).
CUresult capture_check_legacy_stream(Context& context);

// The same question without the use: whether one is. Nothing is invalidated.
bool legacy_stream_is_barred(const Context& context);

// The stream, or all of the context's, are gone: captures begun in them end, and nothing is left of them.
void capture_forget(const Stream& stream);
void capture_forget(const Context& context);

// The call waits for or asks about this stream or event: CUDA_SUCCESS, or
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED / CUDA_ERROR_CAPTURED_EVENT when it is part of a capture (that
// capture is invalidated).
CUresult capture_check_query(Stream& stream);
CUresult capture_check_query(Event& event);
// The same of all that the context's GPU does, whatever the mode and the thread: CUDA_SUCCESS, or
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
// https://github.com/ROCm/rocm-systems/pull/4508, where two GPUs were asked; CUDA's programming guide,
// "Prohibited and Unhandled Operations".
CUresult capture_check_wait(const Context& context);

}  // namespace simcuda::driver
