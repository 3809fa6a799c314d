// How far a command has come, for who waits at a terminal.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace lms::tool {

// A line on stderr about one piece of work, which is gone when that is over. One at a time, in one thread.
class Progress {
  public:
    // Without this nothing is written, nor where stderr is no terminal.
    static void show() { shown_ = isatty(STDERR_FILENO) == 1; }

    // `doing`: "reading the trace"; `of`: so much there is to do.
    Progress(std::string doing, std::uint64_t of) : doing_(std::move(doing)), of_(of) { at(0); }
    ~Progress() {
        if (width_ > 0) std::fputs(fmt::format("\r{:{}}\r", "", width_).c_str(), stderr);
    }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // So much of it is done. Costs a comparison where the line would stay as it is.
    void at(std::uint64_t done) {
        if (!shown_ || done < next_) return;
        const std::uint64_t percent = of_ == 0 ? 100 : done * 100 / of_;
        next_ = ((percent + 1) * of_ + 99) / 100;
        const std::string line = fmt::format("{}: {} %", doing_, percent);
        width_ = line.size();
        std::fputs(("\r" + line).c_str(), stderr);
    }

  private:
    inline static bool shown_ = false;

    std::string doing_;
    std::uint64_t of_;
    std::uint64_t next_ = 0;  // when the line is another
    std::size_t width_ = 0;
};

}  // namespace lms::tool
