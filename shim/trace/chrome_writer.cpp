#include "shim/trace/chrome_writer.h"

#include <errno.h>
#include <unistd.h>

#include <exception>

#include "shim/trace/chrome.h"
#include "shim/util/log.h"

namespace lms::trace {

int ChromeWriter::open(const std::string& path) noexcept try {
    const util::Lock lock(mutex_);
    if (const int problem = file_.open(util::expand_path(path).c_str(), util::OutputFile::Mode::Truncate)) {
        return problem;
    }
    if (const int problem = file_.write_at(0, std::string(kChromeStart) + std::string(kChromeEnd)))
        return problem;
    process_ = getpid();
    end_ = kChromeStart.size();
    return 0;
} catch (const std::exception&) {
    return ENOMEM;
}

void ChromeWriter::write(const Event& event) noexcept {
    // A child of fork shares the file, but not this writer's idea of its end; and the lock may have been held
    // by a thread that the child does not have.
    if (getpid() != process_) return;
    try {
        const util::Lock lock(mutex_);
        if (!file_.is_open()) return;
        const std::uint64_t begin = begin_of(event);
        std::string objects = encode(event, tracks_);
        if (objects.empty()) return;
        held_.emplace(begin, std::move(objects));
        put_before(held_.rbegin()->first - std::min(held_.rbegin()->first, kHeldNs), kHeld);
    } catch (const std::exception&) {
        // Out of memory: this event is missing, the file is whole.
    }
}

void ChromeWriter::refresh() noexcept {
    if (getpid() != process_) return;
    const std::uint64_t now = now_ns();
    const util::Lock lock(mutex_);
    put_before(now - std::min(now, kHeldNs), kHeld);
}

void ChromeWriter::end() noexcept {
    if (getpid() != process_) return;
    const util::Lock lock(mutex_);
    put_before(UINT64_MAX, 0);
}

void ChromeWriter::put_before(std::uint64_t until_ns, std::size_t most_held) try {
    std::string bytes;
    while (!held_.empty() && (held_.size() > most_held || held_.begin()->first < until_ns)) {
        bytes += empty_ && bytes.empty() ? "\n" : ",\n";
        bytes += held_.begin()->second;
        held_.erase(held_.begin());
    }
    if (bytes.empty() || !file_.is_open()) return;
    // One call replaces the end of the file by the events and a new end.
    const std::size_t size = bytes.size();
    bytes += kChromeEnd;
    if (const int problem = file_.write_at(end_, bytes)) {
        // What was written of it goes again; the old end takes no room that it did not have.
        file_.write_at(end_, kChromeEnd);
        file_.truncate(end_ + kChromeEnd.size());
        file_.close();
        log::warn("LMS_TRACE: cannot write: {}; the trace ends here", util::OutputFile::reason(problem));
        return;
    }
    end_ += size;
    empty_ = false;
} catch (const std::exception&) {
    // As above.
}

}  // namespace lms::trace
