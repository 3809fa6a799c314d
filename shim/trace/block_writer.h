// The trace file (LMS_TRACE): blocks of events, each packed and with a checksum, so that whatever ends the
// program the file is readable to its last whole block. docs/reference/trace-format.md has the format.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "shim/trace/records.h"
#include "shim/trace/standing.h"
#include "shim/trace/writer.h"
#include "shim/util/mutex.h"
#include "shim/util/output_file.h"

struct ZSTD_CCtx_s;

namespace lms::trace {

// There is no writing thread. A block is written by the thread whose event fills it, or whose event comes
// when the last block is old. After each write the next waits for a multiple of its time, so a slow disk
// costs a bounded share of the program's. Events that find no memory meanwhile are dropped and counted.
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
    // writing it. When a file has `most_bytes`, another is begun, of the same name with ".1", ".2" and so on
    // behind it. `midway`: there were events before. Again, for another trace, after end().
    int open(const std::string& path, std::optional<std::uint64_t> most_bytes = {},
             bool midway = false) noexcept;

    // A failure to write is reported once at warn. The block is tried again; the file stays whole.
    void write(const Event& event) noexcept override;
    void refresh() noexcept override;
    void end() noexcept override;

  private:
    bool is_due(std::uint64_t now_ns) const LMS_REQUIRES(mutex_);
    void flush() LMS_REQUIRES(mutex_);
    bool pack() LMS_REQUIRES(mutex_);
    bool write_packed() LMS_REQUIRES(mutex_);
    std::string head(unsigned part) const LMS_REQUIRES(mutex_);
    int begin_file(util::OutputFile& file, unsigned part) LMS_REQUIRES(mutex_);
    void begin_next_file() LMS_REQUIRES(mutex_);
    void repeat(const Event& event) LMS_REQUIRES(mutex_);

    util::Mutex mutex_{util::LockOrder::Leaf};
    std::string path_ LMS_GUARDED_BY(mutex_);  // of the first file
    std::optional<std::uint64_t> most_bytes_ LMS_GUARDED_BY(mutex_);
    std::uint64_t full_at_ LMS_GUARDED_BY(mutex_) = 0;  // bytes of this file
    unsigned part_ LMS_GUARDED_BY(mutex_) = 0;
    bool midway_ LMS_GUARDED_BY(mutex_) = false;
    std::uint64_t began_ns_ LMS_GUARDED_BY(mutex_) = 0;  // the first file
    Standing standing_ LMS_GUARDED_BY(mutex_);           // where there is to be more than one
    util::OutputFile file_ LMS_GUARDED_BY(mutex_);
    std::atomic<pid_t> process_ = 0;  // asked without the lock, which a child of fork may find held
    Records records_ LMS_GUARDED_BY(mutex_);
    std::string packed_ LMS_GUARDED_BY(mutex_);  // a block that is not in the file yet
    std::unique_ptr<ZSTD_CCtx_s, std::size_t (*)(ZSTD_CCtx_s*)> packer_ LMS_GUARDED_BY(mutex_);
    std::uint64_t end_ LMS_GUARDED_BY(mutex_) = 0;
    std::uint64_t written_ns_ LMS_GUARDED_BY(mutex_) = 0;  // of the last try
    std::uint64_t next_ns_ LMS_GUARDED_BY(mutex_) = 0;     // not before then
    std::uint64_t dropped_ LMS_GUARDED_BY(mutex_) = 0;
    bool failed_ LMS_GUARDED_BY(mutex_) = false;
};

}  // namespace lms::trace
