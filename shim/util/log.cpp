#include "shim/util/log.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "shim/util/keep_errno.h"
#include "shim/util/output_file.h"
#include "shim/util/write_signals.h"

namespace lms::log {
namespace {

struct File {
    util::OutputFile output;
    std::string path;   // as it was set
    pid_t process = 0;  // that it is of alone; 0: of its children, too
};

// Never destroyed: threads may log while the process exits. Null means stderr.
std::atomic<File*> file = nullptr;

void open(const std::string& path) noexcept try {
    const std::string name = util::expand_path(path);
    auto made = std::make_unique<File>();
    made->path = path;
    if (path.find("%p") != path.npos) made->process = getpid();
    const int problem = made->output.open(name.c_str(), util::OutputFile::Mode::Append);
    file.store(problem == 0 ? made.release() : nullptr, std::memory_order_release);
    if (problem != 0)
        warn("LMS_LOG: cannot write {}: {}; logging to stderr", name, util::OutputFile::reason(problem));
} catch (...) {
    file.store(nullptr, std::memory_order_release);  // out of memory: stderr needs none
}

void write_line(std::string_view line) noexcept {
    const File* const before = file.load(std::memory_order_acquire);
    if (before && before->process != 0 && before->process != getpid()) open(before->path);
    if (File* const to = file.load(std::memory_order_acquire)) {
        to->output.append(line);
        return;
    }
    // One call, so that lines of several threads do not mix. What a closed or full stderr loses is lost.
    const util::NoWriteSignals quiet;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

std::optional<Level> parse_level(std::string_view name) {
    const auto found = std::find(std::begin(kLevelNames), std::end(kLevelNames), name);
    if (found == std::end(kLevelNames)) return std::nullopt;
    return static_cast<Level>(found - std::begin(kLevelNames));
}

void configure(Level level, const std::string& path) noexcept {
    detail::threshold.store(level, std::memory_order_relaxed);
    if (level == Level::Off || path.empty()) {
        file.store(nullptr, std::memory_order_release);
    } else {
        open(path);
    }
}

void set_level(Level level) noexcept {
    detail::threshold.store(level, std::memory_order_relaxed);
}

namespace detail {

std::atomic<Level> threshold = Level::Warn;

void write(fmt::string_view format, fmt::format_args arguments) noexcept {
    const util::KeepErrno keep;
    try {
        fmt::memory_buffer line;
        line.append(std::string_view("lms: "));
        fmt::vformat_to(std::back_inserter(line), format, arguments);
        // Values that came from outside may hold anything; a message stays one line.
        std::replace_if(
            line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
        line.push_back('\n');
        write_line({line.data(), line.size()});
    } catch (...) {
        write_line("lms: a message is lost for want of memory\n");
    }
}

}  // namespace detail
}  // namespace lms::log
