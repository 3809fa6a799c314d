// The writer of the events of this process into a file (LMS_TRACE).
#pragma once

#include <optional>
#include <string>

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

// The trace of this process, null where none is written. The first call opens LMS_TRACE; a failure is
// reported at warn. Any thread. Never destroyed: after stop() it takes events and writes none.
Writer* writer() noexcept;

// The same for what uses no GPU, which opens nothing: a process may leave GPUs to its children of fork.
Writer* begun() noexcept;
// Whether a trace has begun, or LMS_TRACE is still to be opened.
bool expected() noexcept;

// While the program runs; one thread at a time. A trace at `path` in files of `most_bytes` begins: 0 or an
// errno, EBUSY where one is written already. The caller reports what exists by now.
int start(const std::string& path, std::optional<std::uint64_t> most_bytes) noexcept;
// The trace that is written is complete: 0, or ENOENT where there is none.
int stop() noexcept;

}  // namespace lms::trace
