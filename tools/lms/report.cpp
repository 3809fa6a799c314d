#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <utility>

#include "shim/util/units.h"
#include "tools/lms/analysis.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/findings.h"
#include "tools/lms/html_file.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/pages.h"
#include "tools/lms/progress.h"
#include "tools/lms/report_html.h"
#include "tools/lms/to_stderr.h"
#include "tools/lms/trace_commands.h"
#include "tools/lms/trace_names.h"

namespace lms::tool {
namespace {

using trace::CopyWay;
using util::format_bytes;
using Json = nlohmann::ordered_json;

constexpr std::string_view kNoData = "no data";
constexpr std::size_t kRows = 20;

std::string rate_text(const LinkUse& link) {
    const auto speed = link.bytes_per_s();
    return speed ? fmt::format("{:.2f} GB/s", *speed / 1e9) : std::string(kNoData);
}

std::string seconds_text(double seconds) {
    return fmt::format("{:.2f} s", seconds);
}

// What moved, and how long threads waited for it: of that, only what the GPU felt is a cost.
std::string moved_and_waited(const Analysis& all, const Cost& cost) {
    const std::string moved = fmt::format("{} were moved to the GPU and {} to the host",
                                          format_bytes(all.in.bytes), format_bytes(all.out.bytes));
    if (all.stall_ns == 0) return moved + ", and no thread waited for that.";
    const double waited = static_cast<double>(all.stall_ns) / 1e9;
    const auto longest = std::ranges::max_element(all.stall_ns_by_cause) - all.stall_ns_by_cause.begin();
    const std::string had_work =
        cost.slowdown && cost.seconds < waited
            ? fmt::format(" For {} of that the GPU had work.", seconds_text(waited - cost.seconds))
            : "";
    return fmt::format("{}. Threads waited {}, mostly for: {}.{}", moved, seconds_text(waited),
                       name_of(static_cast<trace::StallCause>(longest)), had_work);
}

// The slowdown comes first.
std::vector<std::string> limiting(const Analysis& all, const Cost& cost) {
    if (all.end_ns == 0) return {"No data: nothing that happened is in the trace."};
    if (all.moved() == 0 && all.in_place_launches == 0)
        return {
            fmt::format("Nothing limited this run of {}: nothing was moved.", seconds_text(all.seconds()))};
    if (!cost.slowdown) return {moved_and_waited(all, cost)};
    return {
        fmt::format(
            "The run took {:.2f} times as long as with room for all, as replayed: moves cost {} of its {}.",
            *cost.slowdown, seconds_text(cost.seconds), seconds_text(all.seconds())),
        moved_and_waited(all, cost)};
}

std::string lacking(const Analysis& all) {
    std::string text;
    for (const auto& [device, gpu] : all.gpus) {
        if (!text.empty()) text += ' ';
        if (gpu.budget_bytes == 0) {
            text += fmt::format("GPU {}: how much memory it had is not known.", device);
        } else if (gpu.most_beyond_bytes == 0) {
            text +=
                fmt::format("GPU {}: all fitted: up to {} were allocated at once, and {} may be filled.",
                            device, format_bytes(gpu.peak_allocated_bytes), format_bytes(gpu.budget_bytes));
        } else {
            text += fmt::format(
                "GPU {}: up to {} were allocated at once, and {} may be filled; with {} more nothing would "
                "have moved.",
                device, format_bytes(gpu.peak_allocated_bytes),
                filled(gpu.budget_bytes, gpu.peak_allocated_bytes, gpu.most_beyond_bytes),
                format_bytes(gpu.most_beyond_bytes));
        }
    }
    return text.empty() ? "The trace names no GPU." : text;
}

std::string advice(const Analysis& all, const std::vector<Finding>& findings) {
    if (all.end_ns == 0) return "Trace the program for longer than half a second, or let it end by itself.";
    if (findings.empty()) return "There is nothing to do.";
    return findings.front().evidence + " " + findings.front().action;
}

void add_link(Json& json, const LinkUse& link) {
    json = {{"copies", link.copies}, {"bytes", link.bytes}};
    json["bytes_per_s"] = link.bytes_per_s() ? Json(*link.bytes_per_s()) : Json();
    json["busy_ns"] = link.timed_ns > 0 ? Json(link.timed_ns) : Json();
}

Json json_of(const Analysis& all, const std::vector<std::string>& sentences,
             const std::vector<Finding>& findings, const Cost& cost) {
    Json json;
    json["sentences"] = sentences;
    json["findings"] = Json::array();
    for (const Finding& finding : findings)
        json["findings"].push_back({{"evidence", finding.evidence}, {"action", finding.action}});
    json["seconds"] = all.seconds();
    json["launches"] = all.launches;
    json["in_place_launches"] = all.in_place_launches;
    json["modelled_slowdown"] = cost.slowdown ? Json(*cost.slowdown) : Json();
    json["cost_seconds"] = cost.slowdown ? Json(cost.seconds) : Json();
    add_link(json["to_gpu"], all.in);
    add_link(json["to_host"], all.out);
    for (const auto& [name, way] :
         {std::pair{"to_gpu", CopyWay::ToGpu}, {"to_host", CopyWay::ToHost}, {"on_gpu", CopyWay::OnGpu}})
        add_link(json["own_copies"][name], all.own_copies[static_cast<std::size_t>(way)]);
    json["stalls"] = {{"count", all.stalls}, {"ns", all.stall_ns}};
    for (std::size_t i = 0; i < trace::kStallCauses; ++i) {
        json["stalls"]["by_cause"][std::string(name_of(static_cast<trace::StallCause>(i)))] =
            all.stall_ns_by_cause[i];
    }
    for (const auto& [kernel, ns] : all.stall_ns_by_kernel) json["stalls"]["by_kernel"][kernel] = ns;
    json["gpus"] = Json::array();
    for (const auto& [device, gpu] : all.gpus) {
        Json one{{"gpu", device}, {"name", gpu.name}};
        one["budget_bytes"] = gpu.budget_bytes > 0 ? Json(gpu.budget_bytes) : Json();
        one["peak_allocated_bytes"] = gpu.peak_allocated_bytes;
        one["most_beyond_bytes"] = gpu.budget_bytes > 0 ? Json(gpu.most_beyond_bytes) : Json();
        json["gpus"].push_back(one);
    }
    json["kernels"] = Json::array();
    for (const auto& [name, use] : kernels_by_time(all)) {
        Json one{{"name", name}, {"launches", use.launches}, {"samples", use.samples}};
        one["mean_ns"] = use.samples > 0 ? Json(use.mean_ns()) : Json();
        json["kernels"].push_back(one);
    }
    json["kernels_busy_share"] = busy_share(all) ? Json(*busy_share(all)) : Json();
    json["regions"] = Json::array();
    for (const auto& [name, use] : all.regions) {
        json["regions"].push_back({{"name", name},
                                   {"times", use.times},
                                   {"ns", use.ns},
                                   {"stall_ns", use.stall_ns},
                                   {"bytes_in", use.bytes_in},
                                   {"bytes_out", use.bytes_out}});
    }
    json["buffers"] = Json::array();
    for (const BufferGroup& group : all.groups) {
        json["buffers"].push_back({{"gpu", group.device},
                                   {"call_site", group.call_site.empty() ? Json() : Json(group.call_site)},
                                   {"frames", std::vector(group.frames.begin(), group.frames.end())},
                                   {"bytes", group.bytes},
                                   {"buffers", group.buffers},
                                   {"bytes_in", group.bytes_in},
                                   {"bytes_out", group.bytes_out},
                                   {"round_trips", group.round_trips()},
                                   {"stall_ns", group.stall_ns}});
    }
    return json;
}

std::string more_than(std::size_t rows) {
    return rows > kRows ? fmt::format("and {} more (--json)\n", rows - kRows) : "";
}

std::string kernels(const Analysis& all) {
    const auto busy = busy_share(all);
    if (!busy) return {};
    std::string text = fmt::format(
        "\nkernels: on the GPU for {:.0f} % of the time, by a sample of their launches\n", 100 * *busy);
    text += fmt::format("\n{:>9} {:>8} {:>10} {:>11} {:>6}  {}\n", "launches", "samples", "mean us", "all ms",
                        "share", "kernel");
    const auto named = kernels_by_time(all);
    for (const auto& [name, use] : std::span(named).first(std::min(named.size(), kRows))) {
        if (use.samples == 0) break;
        text += fmt::format("{:>9} {:>8} {:>10.1f} {:>11.1f} {:>5.0f}%  {}\n", use.launches, use.samples,
                            use.mean_ns() / 1e3, use.ns() / 1e6, 100 * use.ns() / 1e9 / all.seconds(), name);
    }
    return text;
}

std::string regions(const Analysis& all) {
    if (all.regions.empty()) return {};
    std::string text = fmt::format("\n{:>9} {:>11} {:>9} {:>10} {:>10}  {}\n", "times", "ms", "stall ms",
                                   "to GPU", "to host", "region");
    // A program may name each of its steps.
    const auto named = regions_by_time(all);
    for (const auto& [name, use] : std::span(named).first(std::min(named.size(), kRows))) {
        text += fmt::format("{:>9} {:>11.1f} {:>9.1f} {:>10} {:>10}  {}\n", use.times,
                            static_cast<double>(use.ns) / 1e6, static_cast<double>(use.stall_ns) / 1e6,
                            format_bytes(use.bytes_in), format_bytes(use.bytes_out), name);
    }
    return text + more_than(named.size());
}

std::string own_copies(const Analysis& all) {
    std::string text;
    for (const CopyWay way : {CopyWay::ToGpu, CopyWay::ToHost, CopyWay::OnGpu}) {
        const LinkUse& use = all.own_copies[static_cast<std::size_t>(way)];
        if (use.copies == 0) continue;
        text += fmt::format("{}{} {} in {} at {}", text.empty() ? "the program's own copies: " : ", ",
                            name_of(way), format_bytes(use.bytes), use.copies, rate_text(use));
    }
    return text.empty() ? text : text + "\n";
}

std::string table(const Analysis& all) {
    std::string text = fmt::format("\nlinks: to the GPU {} in {} copies at {}, to the host {} in {} at {}\n",
                                   format_bytes(all.in.bytes), all.in.copies, rate_text(all.in),
                                   format_bytes(all.out.bytes), all.out.copies, rate_text(all.out));
    text += own_copies(all);
    text += fmt::format("\n{:>9} {:>8} {:>10} {:>10} {:>6} {:>9}  {}\n", "size", "buffers", "to GPU",
                        "to host", "trips", "stall ms", "allocated at");
    for (const BufferGroup& group :
         std::span(all.places).first(std::min<std::size_t>(all.places.size(), kRows))) {
        text += fmt::format("{:>9} {:>8} {:>10} {:>10} {:>6.1f} {:>9.1f}  {}\n", format_bytes(group.bytes),
                            group.buffers, format_bytes(group.bytes_in), format_bytes(group.bytes_out),
                            group.round_trips(), static_cast<double>(group.stall_ns) / 1e6,
                            group.call_site.empty() ? kUnknownPlace : group.call_site);
    }
    return text + more_than(all.places.size());
}

}  // namespace

int report(const ReportOptions& options) {
    if (is_the_trace(options.html, options.path)) {
        to_stderr("lms report: --html {}: that is the trace\n", options.html);
        return kUsage;
    }
    if (!options.as_json) Progress::show();
    const auto trace = open_trace(options.path, "report");
    if (!trace) return kUsage;
    const Analysis all = analyse(*trace);
    const Cost cost = cost_of(*trace, all);
    const std::vector<Finding> findings = findings_of(*trace, all, cost);
    std::vector<std::string> sentences = limiting(all, cost);
    sentences.push_back(lacking(all));
    sentences.push_back(advice(all, findings));
    if (!options.html.empty() &&
        !write_html("report", options.html, html_report(*trace, all, sentences, findings)))
        return kCannotSetUp;
    if (options.as_json) {
        fmt::print("{}", text_of(json_of(all, sentences, findings, cost)));
    } else {
        for (const std::string& sentence : sentences) fmt::print("{}\n", sentence);
        fmt::print("{}{}{}", table(all), kernels(all), regions(all));
    }
    return 0;
}

}  // namespace lms::tool
