#include "shim/trace/writer.h"

#include <errno.h>
#include <time.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "shim/trace/block_writer.h"
#include "shim/trace/chrome_writer.h"
#include "shim/util/log.h"
#include "shim/util/output_file.h"
#include "shim/util/settings.h"

namespace lms::trace {

std::uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t begin_of(const Event& event) {
    return std::visit(
        [](const auto& one) -> std::uint64_t {
            if constexpr (requires { one.begin_ns; }) {
                return one.begin_ns;
            } else if constexpr (requires { one.at_ns; }) {
                return one.at_ns;
            } else {
                return 0;
            }
        },
        event);
}

namespace {

template <typename Kind>
Writer* open(const std::string& path) {
    auto made = std::unique_ptr<Kind>(new (std::nothrow) Kind);
    const int problem = made ? made->open(path) : ENOMEM;
    if (problem == 0) return made.release();
    log::warn("LMS_TRACE={}: cannot write: {}; no trace", path, util::OutputFile::reason(problem));
    return nullptr;
}

}  // namespace

Writer* writer() noexcept {
    static Writer* const of_process = []() noexcept -> Writer* {
        const std::string& path = settings().trace_path;
        if (path.empty()) return nullptr;
        Writer* const made = path.ends_with(".json") ? open<ChromeWriter>(path) : open<BlockWriter>(path);
        if (made != nullptr && std::atexit([] { writer()->end(); }) != 0)
            log::warn("LMS_TRACE: no exit handler is left; the end of the trace will be missing");
        return made;
    }();
    return of_process;
}

}  // namespace lms::trace
