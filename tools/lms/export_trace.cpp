#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "shim/trace/demangle.h"
#include "shim/trace/python_frames.h"
#include "tools/lms/child.h"
#include "tools/lms/chrome.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/progress.h"
#include "tools/lms/to_stderr.h"
#include "tools/lms/trace_commands.h"
#include "tools/lms/trace_names.h"

namespace lms::tool {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

void perfetto(const std::vector<trace::Event>& events, std::FILE* out) {
    Tracks tracks;
    fmt::print(out, "{}", kChromeStart);
    const char* before = "\n";
    Progress progress("writing", events.size());
    std::uint64_t done = 0;
    for (const trace::Event& event : events) {
        progress.at(done++);
        const std::string objects = encode(event, tracks);
        if (objects.empty()) continue;
        fmt::print(out, "{}{}", std::exchange(before, ",\n"), objects);
    }
    fmt::print(out, "{}", kChromeEnd);
}

std::string quoted(std::string_view text) {
    std::string safe = "\"";
    for (const char c : text) safe += c == '"' ? std::string("\"\"") : std::string(1, c);
    return safe + '"';
}

// A writer of Parquet is all of Arrow: Python's makes it, of what --csv tells. Given to it are this program,
// the trace and the file, which is empty for stdout.
constexpr const char* kParquetScript = R"(
import io, subprocess, sys
try:
    from pyarrow import ArrowException, csv, parquet
except ImportError:
    sys.exit(3)
lms, trace, output = sys.argv[1:]
events = subprocess.run([lms, "export", trace, "--csv"], stdout=subprocess.PIPE)
if events.returncode != 0:
    sys.exit(2)
numbers = ["gpu", "begin_ns", "end_ns", "allocation", "chunk", "bytes"]
types = {**dict.fromkeys(numbers, "int64"), "event": "string", "what": "string"}
try:
    table = csv.read_csv(io.BytesIO(events.stdout), parse_options=csv.ParseOptions(newlines_in_values=True),
                         convert_options=csv.ConvertOptions(column_types=types))
    parquet.write_table(table, output or sys.stdout.buffer)
except (ArrowException, OSError) as error:
    sys.exit(f"lms export: {error}")
)";

int export_parquet(const ExportOptions& options) {
    constexpr int kNoPyarrow = 3;
    const char* const chosen = std::getenv("LMSSHIM_PYTHON");
    const std::string python = chosen ? chosen : "python3";
    const Ended ended =
        run_and_wait({python, "-c", kParquetScript, std::filesystem::read_symlink("/proc/self/exe"),
                      options.path, options.output});
    const int status = WIFEXITED(ended.status) ? WEXITSTATUS(ended.status) : kCannotSetUp;
    if (ended.problem == 0 && status != kNoPyarrow) return status == 1 ? kCannotSetUp : status;
    to_stderr(
        "lms export: Parquet is written by pyarrow, which {} has not: python3 -m pip install pyarrow, "
        "or take --csv\n",
        python);
    return kCannotSetUp;
}

// One line an event; what it has no word for is left empty.
struct CsvLine {
    std::string operator()(const trace::Allocation& e) const {
        return row("allocate", e.device, e.at_ns, e.at_ns, std::to_string(e.allocation), "",
                   std::to_string(e.bytes),
                   e.call_site.empty() ? "" : e.call_site[trace::first_telling(e.call_site)]);
    }
    std::string operator()(const trace::Free& e) const {
        return row("free", e.device, e.at_ns, e.at_ns, std::to_string(e.allocation), "", "", "");
    }
    std::string operator()(const trace::StreamFree& e) const {
        return row("stream free", e.device, e.at_ns, e.at_ns, std::to_string(e.allocation), "", "", "");
    }
    std::string operator()(const trace::Launch& e) const {
        if (e.kernel.empty())
            return row("transfer", e.device, e.begin_ns, e.end_ns, "", "",
                       e.copied.way == trace::CopyWay::Unknown ? "" : std::to_string(e.copied.bytes),
                       name_of(e.copied.way));
        return row("launch", e.device, e.begin_ns, e.end_ns, "", "", "",
                   trace::demangled(std::string(e.kernel)));
    }
    std::string operator()(const trace::Move& e) const {
        return row(fmt::format("move {}", name_of(e.direction)), e.device, e.begin_ns, e.end_ns,
                   std::to_string(e.allocation), std::to_string(e.chunk), std::to_string(e.bytes),
                   name_of(e.reason));
    }
    std::string operator()(const trace::Stall& e) const {
        return row("stall", e.device, e.begin_ns, e.end_ns, "", "", std::to_string(e.bytes),
                   name_of(e.cause));
    }
    std::string operator()(const trace::Residency& e) const {
        return row("resident", e.device, e.at_ns, e.at_ns, "", "", std::to_string(e.resident_bytes), "");
    }
    std::string operator()(const trace::Unmanaged& e) const {
        return row("unmanaged", e.device, e.at_ns, e.at_ns, "", "", std::to_string(e.bytes), "");
    }
    std::string operator()(const trace::Gpu& e) const {
        return row("gpu", e.device, e.at_ns, e.at_ns, "", "", std::to_string(e.total_bytes), e.name);
    }
    std::string operator()(const trace::WorkOver& e) const {
        return row("work over", e.device, e.launched_ns, e.at_ns, "", "", "", "");
    }
    std::string operator()(const trace::ProgramWait& e) const {
        return fmt::format("wait,,{},{},,,,\n", e.begin_ns, e.end_ns);
    }
    std::string operator()(const trace::KernelTime& e) const {
        return row("kernel", e.device, e.begin_ns, e.end_ns, "", "", "",
                   trace::demangled(std::string(e.kernel)));
    }
    std::string operator()(const trace::CopyTime& e) const {
        return row("copy", e.device, e.begin_ns, e.end_ns, "", "", std::to_string(e.copied.bytes),
                   name_of(e.copied.way));
    }
    // Bytes a second.
    std::string operator()(const trace::LinkSpeeds& e) const {
        std::string rows;
        for (const auto& [name, speed] :
             {std::pair{"link in", e.in_bytes_per_s}, std::pair{"link out", e.out_bytes_per_s}}) {
            if (speed > 0) rows += row(name, e.device, e.at_ns, e.at_ns, "", "", std::to_string(speed), "");
        }
        return rows;
    }
    std::string operator()(const trace::Dropped& e) const {
        return fmt::format("dropped,,,,,,{},\n", e.events);
    }

    std::string operator()(const trace::Region& e) const {
        return fmt::format("region,,{},{},,,,{}\n", e.begin_ns, e.end_ns, quoted(e.name));
    }

    static std::string row(std::string_view kind, int device, std::uint64_t begin, std::uint64_t end,
                           const std::string& allocation, const std::string& chunk, const std::string& bytes,
                           std::string_view what) {
        return fmt::format("{},{},{},{},{},{},{},{}\n", kind, device, begin, end, allocation, chunk, bytes,
                           what.empty() ? "" : quoted(what));
    }
};

}  // namespace

int export_trace(const ExportOptions& options) {
    if (is_the_trace(options.output, options.path)) {
        to_stderr("lms export: -o {}: that is the trace\n", options.output);
        return kUsage;
    }
    if (options.parquet) return export_parquet(options);
    // Not between the lines of what goes to the same terminal.
    if (!options.output.empty() || isatty(STDOUT_FILENO) != 1) Progress::show();
    const auto trace = open_trace(options.path, "export");
    if (!trace) return kUsage;
    std::ranges::stable_sort(trace->events, {}, trace::begin_of);
    const bool named = !options.output.empty();
    const File file(named ? std::fopen(options.output.c_str(), "w") : stdout,
                    named ? std::fclose : std::fflush);
    if (!file) {
        to_stderr("lms export: cannot write {}\n", options.output);
        return kCannotSetUp;
    }
    if (options.csv) {
        fmt::print(file.get(), "event,gpu,begin_ns,end_ns,allocation,chunk,bytes,what\n");
        Progress progress("writing", trace->events.size());
        std::uint64_t done = 0;
        for (const trace::Event& event : trace->events) {
            progress.at(done++);
            fmt::print(file.get(), "{}", std::visit(CsvLine(), event));
        }
    } else {
        perfetto(trace->events, file.get());
    }
    if (std::fflush(file.get()) == 0 && std::ferror(file.get()) == 0) return 0;
    to_stderr("lms export: cannot write {}\n", named ? options.output : "to stdout");
    return kCannotSetUp;
}

}  // namespace lms::tool
