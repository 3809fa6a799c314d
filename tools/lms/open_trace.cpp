#include "tools/lms/open_trace.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shim/util/units.h"
#include "tools/lms/printable.h"
#include "tools/lms/symbols.h"
#include "tools/lms/to_stderr.h"

namespace lms::tool {

namespace {

bool is_midway(const Trace& trace) {
    const auto about = nlohmann::json::parse(trace.about, nullptr, false);
    return about.is_object() && about.contains("midway");
}

}  // namespace

std::unique_ptr<Trace> open_trace(const std::string& path, const char* command) {
    auto trace = std::make_unique<Trace>();
    std::string problem;
    read_trace_file(path, *trace, problem);
    if (!problem.empty()) {
        to_stderr("lms {}: {}\n", command, problem);
        return nullptr;
    }
    if (!trace->stopped.empty())
        to_stderr("lms {}: {}: {}; what follows is not read\n", command, path, trace->stopped);
    if (!trace->ended && trace->stopped.empty())
        to_stderr("lms {}: {}: the program still runs, was killed, or could not write: its end is missing\n",
                  command, path);
    if (is_midway(*trace))
        to_stderr(
            "lms {}: {}: the trace began in a running program: buffers allocated before have no call site\n",
            command, path);
    if (trace->dropped > 0)
        to_stderr("lms {}: {}: {} events are missing: they came faster than they could be written\n", command,
                  path, trace->dropped);
    resolve_call_sites(*trace);
    return trace;
}

bool is_the_trace(const std::string& output, const std::string& path) {
    std::error_code none;
    return std::filesystem::equivalent(output, path, none);
}

std::string setting_of(const Trace& trace, const std::string& variable) {
    const auto about = nlohmann::json::parse(trace.about, nullptr, false);
    if (!about.is_object() || !about.contains("settings") || !about["settings"].is_object()) return "";
    const auto found = about["settings"].find(variable);
    return found != about["settings"].end() && found->is_string() ? printable(found->get<std::string>()) : "";
}

ReplayWith replay_like(const Trace& trace) {
    ReplayWith with;
    with.policy = setting_of(trace, "LMS_POLICY");
    // A plugin is code, which whoever reads a trace has to ask for himself.
    if (with.policy.empty() || with.policy.find('/') != std::string::npos ||
        with.policy.find(".so") != std::string::npos)
        with.policy = "next-use";
    if (const std::string frac = setting_of(trace, "LMS_FRAC"); !frac.empty())
        with.frac = std::strtod(frac.c_str(), nullptr);
    with.threshold_bytes = util::parse_bytes(setting_of(trace, "LMS_THRESHOLD")).value_or(0);
    with.retains = setting_of(trace, "LMS_RETAIN") != "0" && setting_of(trace, "LMS_SAFETY") == "opaque";
    with.clears = setting_of(trace, "LMS_SAFETY") != "args";
    with.in_bytes_per_s = link_of(trace, trace::Direction::In).value_or(with.in_bytes_per_s);
    with.out_bytes_per_s = link_of(trace, trace::Direction::Out).value_or(with.out_bytes_per_s);
    with.remap_seconds = remap_of(trace).value_or(0);
    return with;
}

std::vector<Replayed> replay_all(const Trace& trace, const std::vector<std::string>& policies,
                                 ReplayWith with, std::optional<std::uint64_t> budget_bytes) {
    std::vector<Replayed> sums(policies.size());
    for (const int device : devices_of(trace)) {
        if (!budget_bytes && !budget_of(trace, device)) continue;
        const ReplayScript script = script_of(trace, device, budget_bytes);
        for (std::size_t i = 0; i < policies.size(); ++i) {
            with.policy = policies[i];
            const Replayed one = replay(script, with);
            Replayed& sum = sums[i];
            sum.bytes_in += one.bytes_in;
            sum.bytes_out += one.bytes_out;
            sum.fills += one.fills;
            sum.fills_ahead += one.fills_ahead;
            sum.evictions += one.evictions;
            sum.in_place += one.in_place;
            sum.seconds = std::max(sum.seconds, one.seconds);
            sum.fitting_seconds = std::max(sum.fitting_seconds, one.fitting_seconds);
        }
    }
    return sums;
}

}  // namespace lms::tool
