// A trace that ui.perfetto.dev opens (LMS_TRACE=*.json): a JSON object that is whole after every write.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "shim/trace/tracks.h"
#include "shim/trace/writer.h"
#include "shim/util/mutex.h"
#include "shim/util/output_file.h"

namespace lms::trace {

class ChromeWriter final : public Writer {
  public:
    // Starts the file at `path` ("%p": the process). Returns 0 or an errno, EWOULDBLOCK if another process is
    // writing it. Once, before any write.
    int open(const std::string& path) noexcept;

    // Events are reported when they are over. They wait for events that began earlier: so many nanoseconds,
    // and so many of them. A failure to write is reported once at warn and ends the trace.
    static constexpr std::uint64_t kHeldNs = 1'000'000'000;
    static constexpr std::size_t kHeld = 512;
    void write(const Event& event) noexcept override;
    void refresh() noexcept override;
    void end() noexcept override;

  private:
    void put_before(std::uint64_t until_ns, std::size_t most_held) LMS_REQUIRES(mutex_);

    util::Mutex mutex_{util::LockOrder::Leaf};
    util::OutputFile file_ LMS_GUARDED_BY(mutex_);
    pid_t process_ = 0;
    Tracks tracks_ LMS_GUARDED_BY(mutex_);
    std::multimap<std::uint64_t, std::string> held_ LMS_GUARDED_BY(mutex_);  // by when they began
    std::uint64_t end_ LMS_GUARDED_BY(mutex_) = 0;  // offset of the closing bracket's line break
    bool empty_ LMS_GUARDED_BY(mutex_) = true;
};

}  // namespace lms::trace
