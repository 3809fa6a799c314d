#include "tools/lms/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "shim/trace/names.h"
#include "shim/util/units.h"
#include "tools/lms/open_trace.h"

namespace lms::tool {
namespace {

using util::format_bytes;

constexpr int kWidth = 860, kHeight = 220, kLeft = 70, kBottom = 24;
constexpr std::size_t kColumns = 400;  // points in time
constexpr std::size_t kSizes = 7;      // of GPUs, in the replay

constexpr std::string_view kHead = R"(<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>lms report</title><style>
:root{color-scheme:light dark;--a:#2a78b8;--b:#e08a2c;--c:#3a9a5c;--d:#b8407a}
body{font:15px/1.5 system-ui,sans-serif;max-width:920px;margin:2em auto;padding:0 1em}
svg{width:100%;height:auto}svg text{fill:currentColor;font-size:11px}svg .g{stroke:currentColor;opacity:.2}
table{border-collapse:collapse;width:100%;font-size:13px}td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #8885}
td:last-child,th:last-child{text-align:left;word-break:break-all}
p>.k:first-child{margin-left:0}.k{display:inline-block;width:.8em;height:.8em;margin:0 .4em 0 1em}</style></head><body><h1>lms report</h1>
)";

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        if (c == '<') {
            safe += "&lt;";
        } else if (c == '&') {
            safe += "&amp;";
        } else if (c == '"') {
            safe += "&quot;";
        } else {
            safe += c;
        }
    }
    return safe;
}

struct Line {
    std::string name;
    std::string_view colour;  // a variable of the page's
    std::vector<double> values;
};

using Label = std::function<std::string(double)>;

// Something at a place between the first and the last.
struct Mark {
    double at;  // 0 to 1
    std::string name;
};

// Lines over a common row of places, from 0 up.
std::string chart(const std::vector<Line>& lines, const std::string& first, const std::string& last,
                  const Label& label, const std::vector<Mark>& marks = {}) {
    double most = 0;
    for (const Line& line : lines) {
        for (const double value : line.values) most = std::max(most, value);
    }
    if (most <= 0) return "<p>no data</p>\n";
    std::string text = "<p>";
    for (const Line& line : lines) {
        text += fmt::format("<span class=\"k\" style=\"background:var({})\"></span>{}", line.colour,
                            escaped(line.name));
    }
    text += fmt::format("</p><svg viewBox=\"0 0 {} {}\" role=\"img\">", kWidth, kHeight);
    const double high = kHeight - kBottom - 10, wide = kWidth - kLeft - 10;
    for (int tick = 0; tick <= 4; ++tick) {
        const double y = 10 + high * (4 - tick) / 4;
        text += fmt::format("<line class=\"g\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                            kWidth - 10, y, y);
        text += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 6, y + 4,
                            label(most * tick / 4));
    }
    text +=
        fmt::format("<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                    kLeft, kHeight - 6, first, kWidth - 10, kHeight - 6, last);
    for (const Mark& mark : marks) {
        const double x = kLeft + wide * mark.at;
        text += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"10\" y2=\"{1}\" stroke=\"currentColor\" "
            "stroke-dasharray=\"3 3\"/><text x=\"{0:.1f}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>",
            x, kHeight - kBottom, kHeight - 6, escaped(mark.name));
    }
    for (const Line& line : lines) {
        text += fmt::format("<polyline fill=\"none\" stroke-width=\"1.5\" style=\"stroke:var({})\" points=\"",
                            line.colour);
        for (std::size_t i = 0; i < line.values.size(); ++i) {
            text +=
                fmt::format("{:.1f},{:.1f} ",
                            kLeft + wide * static_cast<double>(i) /
                                        static_cast<double>(std::max<std::size_t>(line.values.size() - 1, 1)),
                            10 + high * (1 - line.values[i] / most));
        }
        text += "\"/>";
    }
    return text + "</svg>\n";
}

std::string bytes_label(double bytes) {
    return format_bytes(static_cast<std::uint64_t>(bytes));
}

std::size_t column(const Analysis& all, std::uint64_t at_ns) {
    const auto span = static_cast<double>(std::max<std::uint64_t>(all.end_ns - all.begin_ns, 1));
    const auto part = static_cast<double>(at_ns - std::min(at_ns, all.begin_ns)) / span;
    return std::min(static_cast<std::size_t>(part * kColumns), kColumns - 1);
}

std::string residency(const Trace& trace, const Analysis& all, int device) {
    std::vector<double> resident(kColumns, -1), host(kColumns, -1), budget(kColumns, -1);
    for (const trace::Event& event : trace.events) {
        const auto* const now = std::get_if<trace::Residency>(&event);
        if (!now || now->device != device) continue;
        const std::size_t at = column(all, now->at_ns);
        resident[at] = static_cast<double>(now->resident_bytes);
        host[at] = static_cast<double>(now->host_bytes);
        budget[at] = static_cast<double>(now->budget_bytes);
    }
    for (std::vector<double>* line : {&resident, &host, &budget}) {
        double last = 0;
        for (double& value : *line) value = last = value < 0 ? last : value;
    }
    return chart(
        {{"on the GPU", "--a", resident}, {"in host memory", "--b", host}, {"may be filled", "--d", budget}},
        "0 s", fmt::format("{:.2f} s", all.seconds()), bytes_label);
}

// Share of each stretch of time in which the device copied.
std::string links(const Trace& trace, const Analysis& all) {
    std::array<std::vector<double>, 2> busy;
    for (auto& line : busy) line.assign(kColumns, 0);
    const double stretch = std::max(static_cast<double>(all.end_ns - all.begin_ns) / kColumns, 1.0);
    for (const trace::Event& event : trace.events) {
        const auto* const move = std::get_if<trace::Move>(&event);
        if (!move || !move->timed) continue;
        auto& line = busy[static_cast<std::size_t>(move->direction)];
        const std::size_t first = column(all, move->begin_ns), last = column(all, move->end_ns);
        for (std::size_t i = first; i <= last; ++i) {
            const double from = std::max(static_cast<double>(move->begin_ns - all.begin_ns),
                                         stretch * static_cast<double>(i));
            const double until = std::min(static_cast<double>(move->end_ns - all.begin_ns),
                                          stretch * static_cast<double>(i + 1));
            line[i] = std::min(1.0, line[i] + std::max(until - from, 0.0) / stretch);
        }
    }
    return chart({{"to the GPU", "--a", busy[0]}, {"to the host", "--b", busy[1]}}, "0 s",
                 fmt::format("{:.2f} s", all.seconds()),
                 [](double value) { return fmt::format("{:.0f} %", 100 * value); });
}

std::string stalls(const Analysis& all) {
    if (all.stall_ns == 0) return "<p>No thread waited.</p>\n";
    std::string text = "<table><tr><th>ms</th><th>share</th><th>waited for</th></tr>";
    for (std::size_t i = 0; i < trace::kStallCauses; ++i) {
        if (all.stall_ns_by_cause[i] == 0) continue;
        text += fmt::format(
            "<tr><td>{:.1f}</td><td>{:.0f} %</td><td>{}</td></tr>",
            static_cast<double>(all.stall_ns_by_cause[i]) / 1e6,
            100.0 * static_cast<double>(all.stall_ns_by_cause[i]) / static_cast<double>(all.stall_ns),
            name_of(static_cast<trace::StallCause>(i)));
    }
    return text + "</table>\n";
}

std::string sizes(const Trace& trace, const Analysis& all) {
    std::uint64_t most = 0;
    for (const auto& [device, gpu] : all.gpus) most = std::max(most, gpu.peak_allocated_bytes);
    if (most == 0) return "<p>no data</p>\n";
    std::vector<Line> lines = {{"next-use", "--a", {}}, {"lru", "--b", {}}, {kOptimal, "--c", {}}};
    ReplayWith with = replay_like(trace);
    const auto size = [&](std::size_t i) { return most * (i + 2) / (kSizes + 1); };
    for (Line& line : lines) {
        with.policy = line.name;
        for (std::size_t i = 0; i < kSizes; ++i)
            line.values.push_back(static_cast<double>(replay_all(trace, with, size(i)).bytes()));
    }
    std::vector<Mark> marks;
    for (const auto& [device, gpu] : all.gpus) {
        const double at = (static_cast<double>(gpu.budget_bytes) - static_cast<double>(size(0))) /
                          static_cast<double>(size(kSizes - 1) - size(0));
        // Beside the ends their own labels stand.
        if (at > 0.15 && at < 0.85) marks.push_back({at, "this run: " + format_bytes(gpu.budget_bytes)});
    }
    return chart(lines, fmt::format("{} to fill", format_bytes(size(0))),
                 fmt::format("{} to fill", format_bytes(size(kSizes - 1))), bytes_label, marks);
}

std::string regions(const Analysis& all) {
    std::string text =
        "<table><tr><th>times</th><th>ms</th><th>stall ms</th><th>to GPU</th><th>to "
        "host</th><th>region</th></tr>";
    for (const auto& [name, use] : all.regions) {
        text +=
            fmt::format("<tr><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        use.times, static_cast<double>(use.ns) / 1e6, static_cast<double>(use.stall_ns) / 1e6,
                        format_bytes(use.bytes_in), format_bytes(use.bytes_out), escaped(name));
    }
    return text + "</table>\n";
}

std::string buffers(const Analysis& all) {
    std::string text =
        "<table><tr><th>size</th><th>buffers</th><th>to GPU</th><th>to host</th><th>trips</th><th>stall "
        "ms</th>"
        "<th>allocated at</th></tr>";
    for (const BufferGroup& group : all.groups) {
        text += fmt::format(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td></tr>",
            format_bytes(group.bytes), group.buffers, format_bytes(group.bytes_in),
            format_bytes(group.bytes_out), group.round_trips(), static_cast<double>(group.stall_ns) / 1e6,
            group.call_site.empty() ? "no data" : escaped(group.call_site));
    }
    return text + "</table>\n";
}

}  // namespace

std::string html_report(const Trace& trace, const Analysis& all, const std::vector<std::string>& sentences) {
    std::string text(kHead);
    for (const std::string& sentence : sentences) text += fmt::format("<p>{}</p>\n", escaped(sentence));
    for (const auto& [device, gpu] : all.gpus) {
        text += fmt::format("<h2>Where the bytes were: GPU {}, {}</h2>\n", device,
                            gpu.name.empty() ? "no name" : escaped(gpu.name));
        text += residency(trace, all, device);
    }
    text += "<h2>How busy the links were</h2>\n" + links(trace, all);
    text += "<h2>What threads waited for</h2>\n" + stalls(all);
    text += "<h2>Bytes moved, by the GPU's size (replayed)</h2>\n" + sizes(trace, all);
    if (!all.regions.empty()) text += "<h2>Regions</h2>\n" + regions(all);
    text += "<h2>Buffers</h2>\n" + buffers(all);
    return text + "</body></html>\n";
}

}  // namespace lms::tool
