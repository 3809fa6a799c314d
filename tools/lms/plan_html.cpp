#include "tools/lms/plan_html.h"

#include <fmt/format.h>

#include <algorithm>

#include "shim/util/units.h"
#include "tools/lms/chart.h"
#include "tools/lms/progress.h"

namespace lms::tool {
namespace {

using util::format_bytes;

constexpr std::size_t kAmounts = 13;  // of memory, in a curve
constexpr std::size_t kCurves = 6;

std::string row_of(const Planned& row) {
    std::string text = fmt::format("<tr><td>{}</td><td>{:.4g}</td>", format_bytes(row.gpu.memory_bytes),
                                   row.gpu.in_bytes_per_s / 1e9);
    if (!row.has_room) {
        text += "<td>no room</td><td></td><td></td><td></td><td></td><td></td>";
    } else {
        text += fmt::format("<td>{}</td><td>{:.2f}x</td><td>{:.4g}</td><td>{}</td><td>{}</td><td>{}</td>",
                            row.fits ? "yes" : "no", row.slowdown(), row.seconds * 1e3,
                            format_bytes(row.bytes_in), format_bytes(row.bytes_out),
                            format_bytes(row.host_bytes));
    }
    return text + fmt::format("<td>{}</td></tr>", escaped(row.gpu.title));
}

// The GPUs that have curves: those that are too small, and of each speed and link the first.
std::vector<TargetGpu> drawn(std::span<const Planned> rows) {
    std::vector<TargetGpu> gpus;
    const auto add = [&](const Planned& row) {
        const bool known = std::ranges::any_of(gpus, [&](const TargetGpu& gpu) {
            return gpu.in_bytes_per_s == row.gpu.in_bytes_per_s && gpu.title == row.gpu.title;
        });
        if (!known && gpus.size() < kCurves) gpus.push_back(row.gpu);
    };
    for (const Planned& row : rows) {
        if (!row.fits) add(row);
    }
    for (const Planned& row : rows) add(row);
    return gpus;
}

std::string curves(const Workload& load, std::span<const Planned> rows, const PlanWith& with) {
    std::uint64_t most = 0;
    for (const Planned& row : rows) most = std::max(most, row.buffer_bytes);
    if (most == 0) return "<p>no data</p>\n";
    // From a fifth of the buffers to where all fit.
    const std::uint64_t from = most / 5, step = (most + most / 5 - from) / (kAmounts - 1);
    Chart chart{.across = Unit::Bytes,
                .from = static_cast<double>(from),
                .to = static_cast<double>(from + step * (kAmounts - 1)),
                .up = Unit::Times};
    const std::vector<TargetGpu> gpus = drawn(rows);
    Progress progress("planning", gpus.size() * kAmounts);
    std::uint64_t done = 0;
    for (const TargetGpu& gpu : gpus) {
        Line line{fmt::format("{}, {:.4g} GB/s", gpu.title, gpu.in_bytes_per_s / 1e9),
                  {},
                  colour(chart.lines.size())};
        for (std::size_t i = 0; i < kAmounts; ++i) {
            progress.at(done++);
            TargetGpu other = gpu;
            other.memory_bytes = from + step * i;
            const Planned planned = plan_on(load, other, with);
            line.values.push_back(planned.has_room ? planned.slowdown() : 0);
        }
        chart.lines.push_back(std::move(line));
        const auto memory = static_cast<double>(gpu.memory_bytes);
        if (memory > chart.from && memory < chart.to) chart.marks.push_back({memory, gpu.title});
    }
    return svg_of(chart);
}

}  // namespace

std::string html_plan(const Workload& load, std::span<const Planned> rows, const PlanWith& with) {
    std::string text = page_head("lms plan");
    text += fmt::format("<p>Kernels' times: {}.</p>\n", escaped(load.times->source()));
    const Planned* const best = smallest(rows);
    text += best ? fmt::format("<p>Smallest with less than 10 % loss: {}, {}.</p>\n",
                               escaped(best->gpu.title), format_bytes(best->gpu.memory_bytes))
                 : "<p>None of these GPUs loses less than 10 %.</p>\n";
    text +=
        "<table><tr><th>memory</th><th>GB/s</th><th>fits</th><th>slowdown</th><th>ms</th><th>to "
        "GPU</th><th>to host</th><th>host memory</th><th>GPU</th></tr>\n";
    for (const Planned& row : rows) text += row_of(row) + "\n";
    text += "</table>\n<h2>Time by memory, in that of all fitting</h2>\n" + curves(load, rows, with);
    return text + "</body></html>\n";
}

}  // namespace lms::tool
