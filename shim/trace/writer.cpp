#include "shim/trace/writer.h"

#include <errno.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "shim/trace/block_writer.h"
#include "shim/util/clock.h"
#include "shim/util/log.h"
#include "shim/util/output_file.h"
#include "shim/util/settings.h"

namespace lms::trace {

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

std::atomic<Writer*> current = nullptr;
std::atomic<bool> opened = false;  // writer() has opened what LMS_TRACE names, or could not

// Never destroyed; null out of memory.
BlockWriter* block_writer() noexcept {
    static BlockWriter* const made = new (std::nothrow) BlockWriter;
    return made;
}

// Writes from now on, until the program ends.
void begin(Writer* writer) {
    current = writer;
    static const bool ends = std::atexit([] { stop(); }) == 0;
    if (!ends) log::warn("LMS_TRACE: no exit handler is left; the end of the trace will be missing");
}

void open_as_set() noexcept {
    const std::string& path = settings().trace_path;
    if (path.empty()) return;
    BlockWriter* const made = block_writer();
    const int problem = made ? made->open(path, settings().trace_file_bytes) : ENOMEM;
    if (problem != 0) {
        log::warn("LMS_TRACE={}: cannot write: {}; no trace", path, util::OutputFile::reason(problem));
        return;
    }
    if (path.ends_with(".json"))
        log::warn("LMS_TRACE={}: this is no JSON yet; `lms export {} -o FILE` makes that of it", path, path);
    begin(made);
}

}  // namespace

Writer* writer() noexcept {
    [[maybe_unused]] static const bool once = (open_as_set(), opened = true);
    return begun();
}

Writer* begun() noexcept {
    return current.load(std::memory_order_acquire);
}

bool expected() noexcept {
    return begun() || (!opened && !settings().trace_path.empty());
}

int start(const std::string& path, std::optional<std::uint64_t> most_bytes) noexcept {
    if (writer()) return EBUSY;
    BlockWriter* const made = block_writer();
    const int problem = made ? made->open(path, most_bytes, true) : ENOMEM;
    if (problem == 0) begin(made);
    return problem;
}

int stop() noexcept {
    Writer* const stopped = current.exchange(nullptr);
    if (!stopped) return ENOENT;
    stopped->end();
    return 0;
}

}  // namespace lms::trace
