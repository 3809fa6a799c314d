// The trace file (LMS_TRACE): a JSON array of Chrome trace events that is whole after every event, so that
// nothing has to be done at exit and a killed program leaves a trace that opens.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "shim/trace/events.h"
#include "shim/trace/tracks.h"
#include "shim/util/mutex.h"
#include "shim/util/output_file.h"

namespace lms::trace {

class Writer {
  public:
    Writer() = default;

    // Starts the file at `path` ("%p": the process). Returns 0 or an errno, EWOULDBLOCK if another process is
    // writing it. Once, before any write.
    int open(const std::string& path) noexcept;

    // Puts the event into the file before it returns. Any thread; the writer's lock is a leaf: nothing is
    // locked under it. Children of fork write nothing. A failure to write is told once at warn and ends the
    // trace.
    void write(const Event& event) noexcept;

  private:
    void put(const std::string& objects) LMS_REQUIRES(mutex_);

    util::Mutex mutex_{util::LockOrder::Leaf};
    util::OutputFile file_ LMS_GUARDED_BY(mutex_);
    pid_t process_ = 0;
    Tracks tracks_ LMS_GUARDED_BY(mutex_);
    std::uint64_t end_ LMS_GUARDED_BY(mutex_) = 0;  // offset of the closing bracket's line break
    bool empty_ LMS_GUARDED_BY(mutex_) = true;
};

// The trace of this process, null if LMS_TRACE is unset or cannot be written (which is told at warn). The
// first call opens it; any thread. Never destroyed.
Writer* writer() noexcept;

}  // namespace lms::trace
