#include "tools/lms/plan_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "shim/util/units.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/first_steps.h"
#include "tools/lms/html_file.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/pages.h"
#include "tools/lms/plan.h"
#include "tools/lms/plan_html.h"
#include "tools/lms/progress.h"
#include "tools/lms/recorded_step.h"
#include "tools/lms/to_stderr.h"

namespace lms::tool {
namespace {

using util::format_bytes;
using Json = nlohmann::ordered_json;

// By whose kernels those of a GPU are taken that the table does not have.
constexpr std::string_view kUsual = "a100";

int fail_plan(int status, const std::string& why) {
    to_stderr("lms plan: {}\n", why);
    return status;
}

std::optional<Workload> read_workload(const PlanOptions& options, int& status) {
    if (options.path.empty())
        return run_first_steps(
            {options.command, options.memory, options.kernel_ms.has_value(), options.seconds}, status);
    std::string problem;
    std::optional<Workload> load;
    if (const std::string unit = size_of_step(options.path); !unit.empty()) {
        if (!options.size) {
            status = fail_plan(kUsage,
                               fmt::format("{}: a step of any size; give --size N, {}", options.path, unit));
            return {};
        }
        load = read_step(options.path, *options.size, problem);
    } else if (options.size) {
        problem = fmt::format("{}: no recorded step, and --size is for one", options.path);
    } else {
        auto trace = open_trace(options.path, "plan");
        if (trace) load = workload_of(std::move(trace), problem);
        if (load) problem = problem.empty() ? "" : fmt::format("{}: {}", options.path, problem);
    }
    if (load && problem.empty()) return load;
    status = kUsage;
    if (!problem.empty()) fail_plan(kUsage, problem);
    return {};
}

// Whose kernels are taken where the table does not have the GPU: those of the simulated one that the program
// ran on, if its clock was asked for.
std::optional<KernelSpeed> usual_speed() {
    const char* const simulated = std::getenv("SIMCUDA_GPU");
    if (simulated && find_gpu(simulated)) return find_gpu(simulated)->speed;
    if (std::getenv("SIMCUDA_KERNEL_US")) return {};
    return find_gpu(kUsual)->speed;
}

std::string link_text(const TargetGpu& gpu) {
    const double in = gpu.in_bytes_per_s / 1e9, out = gpu.out_bytes_per_s / 1e9;
    return in == out ? fmt::format("{:.4g}", in) : fmt::format("{:.4g}/{:.4g}", in, out);
}

std::string time_text(double seconds) {
    return seconds < 1 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

void print_plan(const Workload& load, const std::vector<Planned>& rows) {
    std::uint64_t most = 0;
    for (const Planned& row : rows) most = std::max(most, row.buffer_bytes);
    fmt::print("The program has up to {} of buffers at once. Kernels' times: {}.\n", format_bytes(most),
               load.times->source());
    fmt::print("Time and bytes are of {}, once the shim knows what repeats.\n\n",
               load.step_ends.size() > 1 ? "a step" : "the second half of the run");
    fmt::print("{:<14} {:>7} {:>9}  {:<5} {:>9} {:>10} {:>10} {:>10} {:>10}\n", "GPU", "memory", "GB/s",
               "fits", "slowdown", "time", "to GPU", "to host", "host mem.");
    for (const Planned& row : rows) {
        if (!row.has_room) {
            fmt::print("{:<14} {:>7} {:>9}  no room beside the context and what is not managed\n",
                       row.gpu.title, format_bytes(row.gpu.memory_bytes), link_text(row.gpu));
            continue;
        }
        fmt::print("{:<14} {:>7} {:>9}  {:<5} {:>9} {:>10} {:>10} {:>10} {:>10}\n", row.gpu.title,
                   format_bytes(row.gpu.memory_bytes), link_text(row.gpu), row.fits ? "yes" : "no",
                   fmt::format("{:.2f}x", row.slowdown()), time_text(row.seconds), format_bytes(row.bytes_in),
                   format_bytes(row.bytes_out), format_bytes(row.host_bytes));
    }
    const Planned* const best = smallest(rows);
    if (best)
        fmt::print("\nSmallest with less than 10 % loss: {}, {}.\n", best->gpu.title,
                   format_bytes(best->gpu.memory_bytes));
    else
        fmt::print("\nNone of them loses less than 10 %.\n");
}

Json json_of(const Planned& row) {
    Json json{{"gpu", row.gpu.title},
              {"memory_bytes", row.gpu.memory_bytes},
              {"in_bytes_per_s", row.gpu.in_bytes_per_s},
              {"out_bytes_per_s", row.gpu.out_bytes_per_s},
              {"kernels_as_on", row.gpu.speed ? Json(row.gpu.speed->id) : Json()},
              {"has_room", row.has_room}};
    if (!row.has_room) return json;
    json["fits"] = row.fits;
    json["slowdown"] = row.slowdown();
    json["seconds"] = row.seconds;
    json["fitting_seconds"] = row.fitting_seconds;
    json["bytes_in"] = row.bytes_in;
    json["bytes_out"] = row.bytes_out;
    json["host_bytes"] = row.host_bytes;
    json["buffer_bytes"] = row.buffer_bytes;
    json["works_without_room"] = row.in_place;
    return json;
}

}  // namespace

std::string refuse(const PlanOptions& options) {
    std::string problem;
    for (const std::string& gpu : options.gpus) {
        if (!parse_gpu(gpu, problem)) return problem;
    }
    const auto refuse_size = [&](const char* option, const std::string& value, std::uint64_t least) {
        const auto bytes = util::parse_bytes(value);
        if (value.empty() || (bytes && *bytes >= least)) return;
        problem = fmt::format("--{}={}: expected a size in bytes{}, or with suffix K, M, G or T", option,
                              value, least > 0 ? " above 0" : "");
    };
    refuse_size("context", options.context, 0);
    refuse_size("sim-memory", options.memory, 1);
    if (!problem.empty()) return problem;
    if (options.path.empty() == options.command.empty())
        return options.path.empty() ? "nothing to plan; expected a trace, a recorded step, or -- PROGRAM"
                                    : fmt::format("{} and a program; expected one of the two", options.path);
    const auto is_for = [&](bool given, const char* option, const char* what) {
        if (given && problem.empty()) problem = fmt::format("--{} is for {}", option, what);
    };
    if (options.path.empty()) {
        is_for(options.size.has_value(), "size", "a recorded step");
    } else {
        is_for(options.seconds > 0, "seconds", "a program");
        is_for(!options.memory.empty(), "sim-memory", "a program");
    }
    if (!problem.empty()) return problem;
    if (is_the_trace(options.html, options.path))
        return fmt::format("--html {}: that is what is planned", options.html);
    return {};
}

int plan(const PlanOptions& options) {
    if (!options.as_json) Progress::show();
    int status = 0;
    std::optional<Workload> load = read_workload(options, status);
    if (!load) return status;
    if (options.kernel_ms) load->times = given_times(*options.kernel_ms);
    std::vector<TargetGpu> gpus;
    std::string none;
    for (const std::string& gpu : options.gpus) gpus.push_back(*parse_gpu(gpu, none));
    if (gpus.empty()) gpus.assign(known_gpus().begin(), known_gpus().end());
    const PlanWith with{util::parse_bytes(options.context), usual_speed()};
    std::vector<Planned> rows;
    for (const TargetGpu& gpu : gpus) rows.push_back(plan_on(*load, gpu, with));
    if (!options.html.empty() && !write_html("plan", options.html, html_plan(*load, rows, with)))
        return kCannotSetUp;
    if (options.as_json) {
        Json all{{"kernel_times", load->times->source()},
                 {"steps", load->step_ends.size()},
                 {"gpus", Json::array()}};
        for (const Planned& row : rows) all["gpus"].push_back(json_of(row));
        const Planned* const best = smallest(rows);
        all["smallest"] = best ? Json(best->gpu.title) : Json();
        fmt::print("{}", text_of(all));
    } else {
        print_plan(*load, rows);
    }
    return 0;
}

}  // namespace lms::tool
