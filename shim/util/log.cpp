#include "shim/util/log.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "shim/util/keep_errno.h"
#include "shim/util/output_file.h"
#include "shim/util/write_signals.h"

namespace lms::log {
namespace {

// Never destroyed: threads may log while the process exits. Null means stderr.
std::atomic<util::OutputFile*> file = nullptr;

void write_line(std::string_view line) noexcept {
    if (util::OutputFile* const output = file.load(std::memory_order_acquire)) {
        output->append(line);
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
    util::OutputFile* output = nullptr;
    if (level != Level::Off && !path.empty()) try {
            const std::string name = util::expand_path(path);
            output = new util::OutputFile;
            if (const int problem = output->open(name.c_str(), util::OutputFile::Mode::Append)) {
                delete std::exchange(output, nullptr);
                file.store(nullptr, std::memory_order_release);
                warn("LMS_LOG: cannot write {}: {}; logging to stderr", name,
                     util::OutputFile::reason(problem));
            }
        } catch (...) {
            output = nullptr;  // out of memory: stderr needs none
        }
    file.store(output, std::memory_order_release);
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
