// The trace file (LMS_TRACE): blocks of events, each packed and with a checksum, so that whatever ends the
// program the file is readable to its last whole block. docs/trace.md has the format.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "shim/trace/records.h"
#include "shim/trace/writer.h"
#include "shim/util/mutex.h"
#include "shim/util/output_file.h"

struct ZSTD_CCtx_s;

namespace lms::trace {

// The shim keeps no thread to write behind the program's back: the thread whose event fills a block, or comes
// when the last one is old, writes it. So that a slow disk costs a bounded share of the program's time, after
// each write the next waits for a multiple of what that took; what comes when memory for events is full
// meanwhile is dropped and counted.
class BlockWriter final : public Writer {
  public:
    static constexpr std::size_t kBlockBytes = 64 << 10;
    static constexpr std::size_t kMostBytes = 1 << 20;  // of events that are not in the file yet
    static constexpr std::uint64_t kOldNs = 500'000'000;
    static constexpr std::uint64_t kPause = 32;  // times what a write took
    static_assert(kMostBytes + (kMostBytes >> 1) < BlockHead::kMostPlainBytes);

    BlockWriter();
    ~BlockWriter() override;

    // Starts the file at `path` ("%p": the process). Returns 0 or an errno, EWOULDBLOCK if another process is
    // writing it. Once, before any write.
    int open(const std::string& path) noexcept;

    // A failure to write is told once at warn; the block is tried again, and the file is whole in any case.
    void write(const Event& event) noexcept override;
    void refresh() noexcept override;
    void end() noexcept override;

  private:
    bool is_due(std::uint64_t now_ns) const LMS_REQUIRES(mutex_);
    void flush() LMS_REQUIRES(mutex_);
    bool pack() LMS_REQUIRES(mutex_);

    util::Mutex mutex_{util::LockOrder::Leaf};
    util::OutputFile file_ LMS_GUARDED_BY(mutex_);
    pid_t process_ = 0;
    Records records_ LMS_GUARDED_BY(mutex_);
    std::string packed_ LMS_GUARDED_BY(mutex_);  // a block that is not in the file yet
    std::unique_ptr<ZSTD_CCtx_s, std::size_t (*)(ZSTD_CCtx_s*)> packer_;
    std::uint64_t end_ LMS_GUARDED_BY(mutex_) = 0;
    std::uint64_t written_ns_ LMS_GUARDED_BY(mutex_) = 0;  // of the last try
    std::uint64_t next_ns_ LMS_GUARDED_BY(mutex_) = 0;     // not before then
    std::uint64_t dropped_ LMS_GUARDED_BY(mutex_) = 0;
    bool failed_ LMS_GUARDED_BY(mutex_) = false;
};

}  // namespace lms::trace
