#include <errno.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "shim/util/output_file.h"
#include "shim/util/units.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/set.h"
#include "tools/lms/to_stderr.h"
#include "tools/lms/trace_commands.h"

namespace lms::tool {
namespace {

// The program has a folder of its own.
std::string path_of(const RecordOptions& options) {
    if (!options.starts) return "";
    const std::string name =
        options.path.empty() ? fmt::format("lmsshim-{}.trace", options.process) : options.path;
    return std::filesystem::absolute(name);
}

std::uint64_t size_of(const RecordOptions& options) {
    return options.size.empty() ? 0 : util::parse_bytes(options.size, 1).value_or(0);
}

// What an errno says of a start or a stop.
std::string reason(int problem, const RecordOptions& options) {
    if (problem == EBUSY) return "writes a trace already; `lms trace PID stop` ends it";
    if (problem == ENOENT && !options.starts) return "writes no trace";
    return fmt::format("cannot write {}: {}", path_of(options), util::OutputFile::reason(problem));
}

}  // namespace

std::string refuse(const RecordOptions& options) {
    if (!options.starts && !(options.path.empty() && options.size.empty()))
        return "stop takes no file and no size";
    if (!options.size.empty() && size_of(options) == 0)
        return fmt::format("--size {}: expected a size in bytes above 0, or with suffix K, M, G or T",
                           options.size);
    if (options.path.ends_with(".json"))
        return options.path +
               ": of a running program a trace is not written as JSON; `lms export` makes that of one";
    if (path_of(options).size() >= sizeof trace::LiveRequest::trace_path) return options.path + ": too long";
    return {};
}

int record(const RecordOptions& options) {
    int problem = 0;
    const Told told = tell_process(
        options.process, "trace",
        [&](trace::LiveRequest& request) {
            std::memset(request.trace_path, 0, sizeof request.trace_path);
            path_of(options).copy(request.trace_path, sizeof request.trace_path - 1);
            request.trace_bytes = size_of(options);
            request.trace = request.number + 1;
        },
        [&](const trace::LiveRequest& request) { problem = static_cast<int>(request.trace_answer.load()); });
    if (told == Told::Never) return kNotWell;
    if (problem == 0) return 0;
    to_stderr("lms trace: process {} {}\n", options.process, reason(problem, options));
    return kNotWell;
}

}  // namespace lms::tool
