// The state of the calling thread around the shim's own driver calls.
#pragma once

#include "shim/device/driver_table.h"

namespace lms::device {

// While it lives, driver calls of this thread count as RELAXED for stream capture: they neither join nor
// invalidate a capture of the app's, on this or another thread.
class RelaxedCapture {
  public:
    RelaxedCapture() : relaxed_(exchange()) {}
    ~RelaxedCapture() {
        if (relaxed_ && !exchange()) exchange();
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    bool exchange() { return driver().cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS; }

    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed_;
};

// The same, with `context` current; with the thread's own where it is null.
class InContext {
  public:
    explicit InContext(CUcontext context) {
        CUcontext current = nullptr;
        if (!context) {
            status_ = CUDA_ERROR_INVALID_CONTEXT;
        } else if (driver().cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) {
            status_ = driver().cuCtxPushCurrent_v2(context);
            pushed_ = status_ == CUDA_SUCCESS;
        }
    }
    ~InContext() {
        CUcontext popped;
        if (pushed_ && driver().cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
            driver().cuCtxPopCurrent_v2(&popped);
    }
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;
    CUresult status() const { return status_; }

  private:
    RelaxedCapture relaxed_;
    CUresult status_ = CUDA_SUCCESS;
    bool pushed_ = false;
};

// For a call that the driver answers without a current context: a thread that has none has `context`, if
// there is that, while this lives. Captures see the thread's calls as its own.
class ContextForNone {
  public:
    explicit ContextForNone(CUcontext context) {
        CUcontext current = nullptr;
        pushed_ = context && driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && !current &&
                  driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    }
    ~ContextForNone() {
        CUcontext popped;
        if (pushed_) driver().cuCtxPopCurrent_v2(&popped);
    }
    ContextForNone(const ContextForNone&) = delete;
    ContextForNone& operator=(const ContextForNone&) = delete;

  private:
    bool pushed_ = false;
};

}  // namespace lms::device
