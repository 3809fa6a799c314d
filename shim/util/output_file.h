// A file that the shim writes inside the program: the log, the trace, the statistics.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace lms::util {

// `path` with every "%p" replaced by the number of this process and "%%" by "%"; absolute (start_folder.h).
std::string expand_path(std::string_view path);

// Owns one descriptor, closed on exec. Programs that turn into daemons close every descriptor and get the
// same numbers for their own files; so each write first checks that the number still means this file, and
// fails if not. Writes from several threads do not tear as long as each is one call. Never throws.
class OutputFile {
  public:
    enum class Mode {
        Append,    // shared with others that append
        Truncate,  // emptied, and ours alone: open gives EWOULDBLOCK while another process has it open so
    };

    OutputFile() = default;
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    OutputFile& operator=(OutputFile&& other) noexcept {
        close();
        descriptor_ = std::exchange(other.descriptor_, -1);
        device_ = other.device_;
        inode_ = other.inode_;
        return *this;
    }
    ~OutputFile() { close(); }

    // The words for the user of an errno that one of these returned.
    static const char* reason(int problem) noexcept;

    // Opens or creates `path` as it stands (see expand_path). Returns 0 or an errno: EMLINK for a link in a
    // world-writable folder, which is not followed.
    int open(const char* path, Mode mode) noexcept;
    bool is_open() const noexcept { return descriptor_ >= 0; }
    void close() noexcept;

    // All of `bytes` at the end of the file, or at `offset`; a file of `bytes` length. Each returns 0 or an
    // errno and leaves the global errno alone.
    int append(std::string_view bytes) noexcept;
    int write_at(std::uint64_t offset, std::string_view bytes) noexcept;
    int truncate(std::uint64_t bytes) noexcept;

  private:
    template <typename Write>
    int write_all(std::string_view bytes, Write write) noexcept;
    bool still_ours() const noexcept;

    int descriptor_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace lms::util
