// The state of the calling thread around the shim's own driver calls.
#pragma once

#include "shim/device/driver_table.h"

namespace lms::device {

// What the scopes below that live have made of the calling thread: one within another asks the driver
// nothing.
struct Within {
    bool relaxed = false;  // as RelaxedCapture has it; before, the thread's mode was `mode`
    bool keeps_relaxed = false;
    bool keeps_current = false;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext current = nullptr;  // null: not asked yet

    void relax() {
        mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        relaxed = exchange();
    }
    void restore() {
        relaxed = false;
        if (!exchange()) exchange();
    }

  private:
    bool exchange() { return driver().cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS; }
};
// The shim is there before the program's first thread, so its thread-local memory needs no call to be found.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local Within within{};

// While it lives, driver calls of this thread count as RELAXED for stream capture: they neither join nor
// invalidate a capture of the program's, on this or another thread.
class RelaxedCapture {
  public:
    RelaxedCapture() {
        if (within.relaxed) return;
        within.relax();
        ends_ = within.relaxed && !within.keeps_relaxed;
    }
    ~RelaxedCapture() {
        if (ends_) within.restore();
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    bool ends_ = false;
};

// The calling thread's; null: it has none.
inline CUresult current_context(CUcontext& context) {
    context = within.current;
    if (context) return CUDA_SUCCESS;
    const CUresult status = driver().cuCtxGetCurrent(&context);
    if (status == CUDA_SUCCESS && within.keeps_current) within.current = context;
    return status;
}

// The same; null too where the driver does not say.
inline CUcontext current_context() {
    CUcontext context = nullptr;
    return current_context(context) == CUDA_SUCCESS ? context : nullptr;
}

// As RelaxedCapture, with `context` current; with the thread's own where it is null.
class InContext {
  public:
    explicit InContext(CUcontext context) {
        if (!context) {
            status_ = CUDA_ERROR_INVALID_CONTEXT;
        } else if (current_context() != context) {
            status_ = driver().cuCtxPushCurrent_v2(context);
            pushed_ = status_ == CUDA_SUCCESS;
        }
        before_ = within.current;
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
    CUcontext before_ = nullptr;
    CUresult status_ = CUDA_SUCCESS;
    bool pushed_ = false;
};

// No other context becomes current while it lives, so the driver is asked once, at the first question.
class SameContext {
  public:
    SameContext() : before_(within.current), kept_(within.keeps_current) { within.keeps_current = true; }
    ~SameContext() {
        within.current = before_;
        within.keeps_current = kept_;
    }
    SameContext(const SameContext&) = delete;
    SameContext& operator=(const SameContext&) = delete;

  private:
    CUcontext before_;
    bool kept_;
};

// For several calls of the shim's own, none of the program's among them: they share the questions, and none
// is asked if they do not come to that.
class Together {
  public:
    Together() : relaxed_(within.relaxed), kept_(within.keeps_relaxed) { within.keeps_relaxed = true; }
    ~Together() {
        within.keeps_relaxed = kept_;
        if (within.relaxed && !relaxed_) within.restore();
    }
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

  private:
    SameContext same_;
    bool relaxed_;
    bool kept_;
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
        within.current = before_;
        CUcontext popped;
        if (pushed_) driver().cuCtxPopCurrent_v2(&popped);
    }
    ContextForNone(const ContextForNone&) = delete;
    ContextForNone& operator=(const ContextForNone&) = delete;

  private:
    CUcontext before_ = within.current;
    bool pushed_ = false;
};

}  // namespace lms::device
