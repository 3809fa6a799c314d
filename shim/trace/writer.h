// Who writes the events of this process into a file (LMS_TRACE).
#pragma once

#include "shim/trace/events.h"

namespace lms::trace {

// Any thread; its lock is a leaf: nothing is locked under it. Children of fork write nothing. Nothing throws.
class Writer {
  public:
    virtual ~Writer() = default;

    virtual void write(const Event& event) noexcept = 0;
    // Puts what it holds into the file, if that has not been done for long.
    virtual void refresh() noexcept = 0;
    // The program ends by itself: all of it.
    virtual void end() noexcept = 0;
};

// The trace of this process, null if LMS_TRACE is unset or cannot be written (which is told at warn). The
// first call opens it; any thread. Never destroyed.
Writer* writer() noexcept;

}  // namespace lms::trace
