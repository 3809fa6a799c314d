// The state of the calling thread around the shim's own driver calls.
#pragma once

#include "shim/device/driver_table.h"

namespace lms::device {

// What the scopes below that live have made of the calling thread: one within another asks the driver
// nothing.
struct Within {
    bool relaxed = false;
    CUcontext current = nullptr;  // null: not asked yet
};
inline constinit thread_local Within within{};

// While it lives, driver calls of this thread count as RELAXED for stream capture: they neither join nor
// invalidate a capture of the program's, on this or another thread.
class RelaxedCapture {
  public:
    RelaxedCapture() : relaxed_(!within.relaxed && exchange()) { within.relaxed |= relaxed_; }
    ~RelaxedCapture() {
        if (!relaxed_) return;
        within.relaxed = false;
        if (!exchange()) exchange();
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    bool exchange() { return driver().cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS; }

    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed_;
};

// The calling thread's; null: none, or the driver does not say.
inline CUcontext current_context() {
    CUcontext context = within.current;
    return context || driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// The same, with `context` current; with the thread's own where it is null.
class InContext {
  public:
    explicit InContext(CUcontext context) {
        if (!context) {
            status_ = CUDA_ERROR_INVALID_CONTEXT;
        } else if (current_context() != context) {
            status_ = driver().cuCtxPushCurrent_v2(context);
            pushed_ = status_ == CUDA_SUCCESS;
        }
        if (status_ == CUDA_SUCCESS) within.current = context;
    }
    ~InContext() {
        within.current = before_;
        CUcontext popped;
        if (pushed_ && driver().cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
            driver().cuCtxPopCurrent_v2(&popped);
    }
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;
    CUresult status() const { return status_; }

  private:
    RelaxedCapture relaxed_;
    CUcontext before_ = within.current;
    CUresult status_ = CUDA_SUCCESS;
    bool pushed_ = false;
};

// No other context becomes current while it lives, so the driver is asked once.
class SameContext {
  public:
    SameContext() { within.current = current_context(); }
    ~SameContext() { within.current = before_; }
    SameContext(const SameContext&) = delete;
    SameContext& operator=(const SameContext&) = delete;

  private:
    CUcontext before_ = within.current;
};

// For several calls of the shim's own, none of the program's among them: they share the questions.
class Together {
  private:
    SameContext same_;
    RelaxedCapture relaxed_;
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
