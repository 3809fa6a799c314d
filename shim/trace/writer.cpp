#include "shim/trace/writer.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <exception>

#include "shim/trace/chrome.h"
#include "shim/util/log.h"
#include "shim/util/mutex.h"
#include "shim/util/settings.h"

namespace lms::trace {
namespace {

constexpr std::string_view kStart = "[";
constexpr std::string_view kEnd = "\n]\n";

}  // namespace

std::uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

int Writer::open(const std::string& path) noexcept try {
    const util::Lock lock(mutex_);
    if (const int problem = file_.open(util::expand_path(path).c_str(), util::OutputFile::Mode::Truncate)) {
        return problem;
    }
    if (const int problem = file_.write_at(0, std::string(kStart) + std::string(kEnd))) return problem;
    process_ = getpid();
    end_ = kStart.size();
    return 0;
} catch (const std::exception&) {
    return ENOMEM;
}

void Writer::write(const Event& event) noexcept {
    // A child of fork shares the file, but not this writer's idea of its end; and the lock may have been held
    // by a thread that the child does not have.
    if (getpid() != process_) return;
    try {
        const util::Lock lock(mutex_);
        if (file_.is_open()) put(encode(event, tracks_));
    } catch (const std::exception&) {
        // Out of memory: this event is missing, the file is whole.
    }
}

void Writer::put(const std::string& objects) {
    // One call replaces the end of the file by the event and a new end.
    std::string bytes = empty_ ? "\n" : ",\n";
    bytes += objects;
    const std::size_t size = bytes.size();
    bytes += kEnd;
    if (const int problem = file_.write_at(end_, bytes)) {
        // What was written of it goes again; the old end takes no room that it did not have.
        file_.write_at(end_, kEnd);
        file_.truncate(end_ + kEnd.size());
        file_.close();
        log::warn("LMS_TRACE: cannot write: {}; the trace ends here", util::OutputFile::reason(problem));
        return;
    }
    end_ += size;
    empty_ = false;
}

Writer* writer() noexcept {
    static Writer* const of_process = []() noexcept -> Writer* {
        const std::string& path = settings().trace_path;
        if (path.empty()) return nullptr;
        Writer* const made = new (std::nothrow) Writer;
        const int problem = made == nullptr ? ENOMEM : made->open(path);
        if (problem == 0) return made;
        log::warn("LMS_TRACE={}: cannot write: {}; no trace", path, util::OutputFile::reason(problem));
        delete made;
        return nullptr;
    }();
    return of_process;
}

}  // namespace lms::trace
