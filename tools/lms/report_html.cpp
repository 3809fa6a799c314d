#include "tools/lms/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "shim/trace/demangle.h"
#include "shim/util/units.h"
#include "tools/lms/chart.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/trace_names.h"

namespace lms::tool {
namespace {

using util::format_bytes;

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
constexpr std::size_t kColumns = 20;  // most of what a made-up page costs is to print them
#else
constexpr std::size_t kColumns = 400;  // points in time
#endif
constexpr std::size_t kSizes = 7;          // of GPUs, in the replay
constexpr std::size_t kPlaces = 6;         // with a colour of their own
constexpr std::size_t kKernels = 30;       // in their table
constexpr std::size_t kSlices = 60;        // launches that are drawn one by one
constexpr std::size_t kMostSlices = 2000;  // of a row, however much moved meanwhile

double span_of(const Analysis& all) {
    return static_cast<double>(std::max<std::uint64_t>(all.end_ns - all.begin_ns, 1));
}

// Part of the run that is over then, 0 to 1.
double part(const Analysis& all, std::uint64_t at_ns) {
    return std::min(static_cast<double>(at_ns - std::min(at_ns, all.begin_ns)) / span_of(all), 1.0);
}

std::size_t column(const Analysis& all, std::uint64_t at_ns) {
    return std::min(static_cast<std::size_t>(part(all, at_ns) * kColumns), kColumns - 1);
}

Chart over_time(const Analysis& all, Unit up) {
    return {.across = Unit::Seconds, .from = 0, .to = all.seconds(), .up = up};
}

// The budget of a GPU, as long as it held.
std::vector<double> budgets(const Trace& trace, const Analysis& all, int device) {
    std::vector<double> line(kColumns, -1);
    for (const trace::Event& event : trace.events) {
        const auto* const now = std::get_if<trace::Residency>(&event);
        if (now && now->device == device)
            line[column(all, now->at_ns)] = static_cast<double>(now->budget_bytes);
    }
    double last = 0;
    for (const double value : line) {
        if (last == 0 && value > 0) last = value;
    }
    for (double& value : line) value = last = value < 0 ? last : value;
    return line;
}

// Where each group is drawn: those that moved most by themselves, others together.
std::vector<std::size_t> place_of_groups(const Analysis& all, int device, std::vector<Line>& areas) {
    std::vector<std::size_t> place(all.groups.size(), kPlaces + 1);
    for (const BufferGroup& group : all.groups) {
        if (group.device != device) continue;
        std::size_t at = std::min(areas.size(), kPlaces);
        const std::string name(group.call_site.empty() ? kUnknownPlace : group.call_site);
        const auto same = std::ranges::find(areas, name, &Line::name);
        if (same != areas.end()) at = static_cast<std::size_t>(same - areas.begin());
        if (at == areas.size())
            areas.push_back(
                {at == kPlaces ? "other places" : name, std::vector<double>(kColumns), colour(at)});
        place[group.number] = at;
    }
    return place;
}

std::string residency(const Trace& trace, const Analysis& all, int device) {
    Chart chart = over_time(all, Unit::Bytes);
    const std::vector<std::size_t> place = place_of_groups(all, device, chart.areas);
    std::vector<ResidentChange> changes = all.resident_changes;
    std::ranges::stable_sort(changes, {}, &ResidentChange::at_ns);
    std::vector<double> now(chart.areas.size());
    auto next = changes.begin();
    for (std::size_t i = 0; i < kColumns; ++i) {
        for (; next != changes.end() && column(all, next->at_ns) <= i; ++next) {
            if (place[next->group] < now.size()) now[place[next->group]] += static_cast<double>(next->bytes);
        }
        for (std::size_t k = 0; k < now.size(); ++k) chart.areas[k].values[i] = std::max(now[k], 0.0);
    }
    chart.lines = {{"may be filled", budgets(trace, all, device), "--line"}};
    return svg_of(chart);
}

// Share of each stretch of time in which something went on.
class Shares {
  public:
    explicit Shares(const Analysis& all) : all_(all), busy_(kColumns) {}

    void add(std::uint64_t begin_ns, std::uint64_t end_ns) {
        const double begin = part(all_, begin_ns) * kColumns, end = part(all_, end_ns) * kColumns;
        for (std::size_t i = column(all_, begin_ns); i <= column(all_, end_ns); ++i) {
            const double from = std::max(begin, static_cast<double>(i));
            const double until = std::min(end, static_cast<double>(i + 1));
            busy_[i] = std::min(1.0, busy_[i] + std::max(until - from, 0.0));
        }
    }
    std::vector<double> values() const { return busy_; }

  private:
    const Analysis& all_;
    std::vector<double> busy_;
};

// The program's own copies have lines of their own, where there are any.
std::string links(const Trace& trace, const Analysis& all) {
    using trace::CopyWay;
    std::array<Shares, 2> busy = {Shares(all), Shares(all)};
    std::array<Shares, trace::kCopyWays> own = {Shares(all), Shares(all), Shares(all), Shares(all)};
    for (const trace::Event& event : trace.events) {
        if (const auto* const move = std::get_if<trace::Move>(&event); move && move->timed)
            busy[static_cast<std::size_t>(move->direction)].add(move->begin_ns, move->end_ns);
        if (const auto* const copy = std::get_if<trace::CopyTime>(&event))
            own[static_cast<std::size_t>(copy->copied.way)].add(copy->begin_ns, copy->end_ns);
    }
    Chart chart = over_time(all, Unit::Share);
    chart.lines = {{"to the GPU", busy[0].values(), "--0"}, {"to the host", busy[1].values(), "--1"}};
    std::size_t colours = 2;
    for (const CopyWay way : {CopyWay::ToGpu, CopyWay::ToHost}) {
        const auto at = static_cast<std::size_t>(way);
        if (all.own_copies[at].timed_ns == 0) continue;
        chart.lines.push_back(
            {fmt::format("{}, the program's own copies", name_of(way)), own[at].values(), colour(colours++)});
    }
    return svg_of(chart);
}

// When something was copied: stretches of time that do not overlap, in order.
std::vector<std::pair<std::uint64_t, std::uint64_t>> copying(const Trace& trace) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all, merged;
    for (const trace::Event& event : trace.events) {
        if (const auto* const move = std::get_if<trace::Move>(&event); move && move->timed)
            all.emplace_back(move->begin_ns, move->end_ns);
    }
    std::ranges::sort(all);
    for (const auto& each : all) {
        if (merged.empty() || each.first > merged.back().second) {
            merged.push_back(each);
        } else {
            merged.back().second = std::max(merged.back().second, each.second);
        }
    }
    return merged;
}

// How much of the time in which the kernels of the sample ran the shim copied beside them.
std::string overlap(const Trace& trace) {
    const auto copies = copying(trace);
    std::vector<double> before(copies.size() + 1);  // ns that those in front of each took
    for (std::size_t i = 0; i < copies.size(); ++i)
        before[i + 1] = before[i] + static_cast<double>(copies[i].second - copies[i].first);
    const auto copied_until = [&](std::uint64_t ns) {
        const auto next =
            std::ranges::lower_bound(copies, ns, {}, &std::pair<std::uint64_t, std::uint64_t>::second);
        const auto at = static_cast<std::size_t>(next - copies.begin());
        return before[at] +
               (next == copies.end() || ns <= next->first ? 0 : static_cast<double>(ns - next->first));
    };
    double ran_ns = 0, beside_ns = 0;
    for (const trace::Event& event : trace.events) {
        const auto* const kernel = std::get_if<trace::KernelTime>(&event);
        if (!kernel || kernel->end_ns <= kernel->begin_ns) continue;
        ran_ns += static_cast<double>(kernel->end_ns - kernel->begin_ns);
        beside_ns += copied_until(kernel->end_ns) - copied_until(kernel->begin_ns);
    }
    if (ran_ns <= 0) return "<p>No launch was timed on the GPU.</p>\n";
    return fmt::format(
        "<p>The shim copied during {:.0f} % of the time in which kernels ran, by a sample.</p>\n",
        100 * beside_ns / ran_ns);
}

std::string kernel_table(const Analysis& all) {
    const std::optional<double> busy = busy_share(all);
    if (!busy) return "<p>no data</p>\n";
    std::string text = fmt::format(
        "<p>On the GPU for {:.0f} % of the time, by a sample of their launches.</p>\n"
        "<table><tr><th>launches</th><th>of them timed</th><th>us, "
        "mean</th><th>share</th><th>kernel</th></tr>",
        100 * *busy);
    const auto named = kernels_by_time(all);
    for (const auto& [name, use] : std::span(named).first(std::min(named.size(), kKernels))) {
        if (use.samples == 0) break;
        text += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.0f} %</td><td>{}</td></tr>",
                            use.launches, use.samples, use.mean_ns() / 1e3, use.ns() / 1e7 / all.seconds(),
                            escaped(name));
    }
    return text + "</table>\n";
}

// Some launches, and what moved and who waited meanwhile.
std::string moves_and_kernels(const Trace& trace) {
    std::vector<const trace::Launch*> launches;
    std::vector<const trace::Move*> moves;
    for (const trace::Event& event : trace.events) {
        if (const auto* const launch = std::get_if<trace::Launch>(&event); launch && !launch->kernel.empty())
            launches.push_back(launch);
        if (const auto* const move = std::get_if<trace::Move>(&event); move && move->timed)
            moves.push_back(move);
    }
    if (launches.empty()) return "<p>no data</p>\n";
    // Around a move, where there is one: in the middle of the run there may be none.
    std::size_t middle = launches.size() / 2;
    if (!moves.empty()) {
        const auto next = std::ranges::lower_bound(launches, moves[moves.size() / 2]->begin_ns, {},
                                                   &trace::Launch::begin_ns);
        middle = static_cast<std::size_t>(next - launches.begin());
    }
    const std::size_t first = std::min(middle - std::min(middle, kSlices / 2),
                                       launches.size() - std::min(launches.size(), kSlices));
    const std::uint64_t begin_ns = launches[first]->begin_ns;
    const std::uint64_t end_ns =
        std::max(launches[std::min(first + kSlices, launches.size()) - 1]->end_ns, begin_ns + 1);
    std::vector<Row> rows = {{"launches", "--2", {}}, {"kernels", "--4", {}}, {"waiting", "--3", {}},
                             {"to GPU", "--0", {}},   {"to host", "--1", {}}, {"own copies", "--5", {}}};
    // `name`: gives it, of what is drawn alone.
    const auto draw = [&](std::size_t row, std::uint64_t from_ns, std::uint64_t until_ns, const auto& name) {
        const auto at = [&](std::uint64_t ns) {
            return static_cast<double>(std::clamp(ns, begin_ns, end_ns) - begin_ns) /
                   static_cast<double>(end_ns - begin_ns);
        };
        if (until_ns >= begin_ns && from_ns <= end_ns && rows[row].slices.size() < kMostSlices)
            rows[row].slices.push_back(
                {at(from_ns), at(until_ns),
                 fmt::format("{}, {:.1f} us", name(), static_cast<double>(until_ns - from_ns) / 1e3)});
    };
    for (const trace::Event& event : trace.events) {
        if (const auto* const launch = std::get_if<trace::Launch>(&event))
            draw(0, launch->begin_ns, launch->end_ns, [&] {
                return launch->kernel.empty() ? "copy or set" : trace::demangled(std::string(launch->kernel));
            });
        if (const auto* const kernel = std::get_if<trace::KernelTime>(&event))
            draw(1, kernel->begin_ns, kernel->end_ns,
                 [&] { return trace::demangled(std::string(kernel->kernel)); });
        if (const auto* const stall = std::get_if<trace::Stall>(&event))
            draw(2, stall->begin_ns, stall->end_ns, [&] { return name_of(stall->cause); });
        if (const auto* const move = std::get_if<trace::Move>(&event); move && move->timed)
            draw(move->direction == trace::Direction::In ? 3 : 4, move->begin_ns, move->end_ns,
                 [&] { return format_bytes(move->bytes); });
        if (const auto* const copy = std::get_if<trace::CopyTime>(&event))
            draw(5, copy->begin_ns, copy->end_ns, [&] {
                return fmt::format("{} {}", format_bytes(copy->copied.bytes), name_of(copy->copied.way));
            });
    }
    if (rows.back().slices.empty()) rows.pop_back();
    return fmt::format(
               "<p class=\"l\">{} launches somewhere in the run, each from its call to its return, and "
               "kernels of the sample, as they ran on the GPU: {} of it.</p>\n",
               std::min(kSlices, launches.size()),
               label_of(Unit::Seconds, static_cast<double>(end_ns - begin_ns) / 1e9)) +
           svg_of(rows);
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

// Bytes and modelled time on GPUs of other sizes.
std::string sizes(const Trace& trace, const Analysis& all) {
    std::uint64_t most = 0;
    for (const auto& [device, gpu] : all.gpus) most = std::max(most, gpu.peak_allocated_bytes);
    if (most == 0) return "<p>no data</p>\n";
    const auto size = [&](std::size_t i) { return most * (i + 2) / (kSizes + 1); };
    Chart bytes{.across = Unit::Bytes,
                .from = static_cast<double>(size(0)),
                .to = static_cast<double>(size(kSizes - 1)),
                .up = Unit::Bytes};
    Chart times = bytes;
    times.up = Unit::Times;
    const std::vector<std::string> policies = {"next-use", "lru", kFewestBytes, kForesight};
    for (std::size_t i = 0; i < 3; ++i) {
        bytes.lines.push_back({policies[i], {}, colour(i)});
        times.lines.push_back({i < 2 ? policies[i] : kLeastTime, {}, colour(i)});
    }
    const ReplayWith with = replay_like(trace);
    for (std::size_t i = 0; i < kSizes; ++i) {
        const std::vector<Replayed> replayed = replay_all(trace, policies, with, size(i));
        const Replayed& fastest = *std::ranges::min_element(replayed, {}, &Replayed::seconds);
        for (std::size_t k = 0; k < 3; ++k) {
            const Replayed& one = k < 2 ? replayed[k] : fastest;
            bytes.lines[k].values.push_back(static_cast<double>(replayed[k].bytes()));
            times.lines[k].values.push_back(one.fitting_seconds > 0 ? one.seconds / one.fitting_seconds : 0);
        }
    }
    for (const auto& [device, gpu] : all.gpus) {
        const auto budget = static_cast<double>(gpu.budget_bytes);
        if (budget <= bytes.from || budget >= bytes.to) continue;
        bytes.marks.push_back({budget, fmt::format("this run: {}, {} moved", format_bytes(gpu.budget_bytes),
                                                   format_bytes(all.moved()))});
        times.marks.push_back({budget, fmt::format("this run: {}", format_bytes(gpu.budget_bytes))});
    }
    return svg_of(bytes) + "<h2>Time, by the GPU's size, in that of all fitting (modelled)</h2>\n" +
           svg_of(times);
}

std::string findings_table(const std::vector<Finding>& findings) {
    if (findings.empty()) return "<p>Nothing.</p>\n";
    std::string text = "<table class=\"f\"><tr><th>seen</th><th>what to do</th></tr>";
    for (const Finding& finding : findings)
        text += fmt::format("<tr><td>{}</td><td>{}</td></tr>", escaped(finding.evidence),
                            escaped(finding.action));
    return text + "</table>\n";
}

std::string region_table(const Analysis& all) {
    std::string text =
        "<table><tr><th>times</th><th>ms</th><th>stall ms</th><th>to GPU</th><th>to "
        "host</th><th>region</th></tr>";
    // A program may name each of its steps.
    constexpr std::size_t kMostRows = 1000;
    const auto named = regions_by_time(all);
    for (const auto& [name, use] : std::span(named).first(std::min(named.size(), kMostRows))) {
        text +=
            fmt::format("<tr><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        use.times, static_cast<double>(use.ns) / 1e6, static_cast<double>(use.stall_ns) / 1e6,
                        format_bytes(use.bytes_in), format_bytes(use.bytes_out), escaped(name));
    }
    return text + "</table>\n";
}

std::string flames(const Analysis& all) {
    std::vector<Stack> stacks;
    for (const BufferGroup& group : all.groups)
        stacks.push_back({group.frames, static_cast<double>(group.moved())});
    return flame_graph(stacks, Unit::Bytes);
}

std::string buffers(const Analysis& all) {
    std::string text =
        "<table><tr><th>size</th><th>buffers</th><th>to GPU</th><th>to host</th><th>trips</th><th>stall "
        "ms</th><th>allocated at</th></tr>";
    for (const BufferGroup& group : all.places) {
        text += fmt::format(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td></tr>",
            format_bytes(group.bytes), group.buffers, format_bytes(group.bytes_in),
            format_bytes(group.bytes_out), group.round_trips(), static_cast<double>(group.stall_ns) / 1e6,
            group.call_site.empty() ? std::string(kUnknownPlace) : escaped(group.call_site));
    }
    return text + "</table>\n";
}

}  // namespace

std::string html_report(const Trace& trace, const Analysis& all, const std::vector<std::string>& sentences,
                        const std::vector<Finding>& findings) {
    std::string text = page_head("lms report");
    for (const std::string& sentence : sentences) text += fmt::format("<p>{}</p>\n", escaped(sentence));
    if (trace.dropped > 0) text += fmt::format("<p>{} events are missing.</p>\n", trace.dropped);
    if (!trace.stopped.empty()) text += fmt::format("<p>Not all was read: {}.</p>\n", escaped(trace.stopped));
    text += "<h2>What to do</h2>\n" + findings_table(findings);
    for (const auto& [device, gpu] : all.gpus) {
        text += fmt::format("<h2>What was on GPU {} ({}), by call site</h2>\n", device,
                            gpu.name.empty() ? "no name" : escaped(gpu.name));
        text += residency(trace, all, device);
    }
    text += "<h2>How busy the links were</h2>\n" + links(trace, all);
    text += "<h2>Moves beside kernels</h2>\n" + overlap(trace) + moves_and_kernels(trace);
    text += "<h2>Kernels</h2>\n" + kernel_table(all);
    text += "<h2>What threads waited for</h2>\n" + stalls(all);
    text += "<h2>Bytes moved, by the GPU's size (replayed)</h2>\n" + sizes(trace, all);
    text += "<h2>Bytes moved, by call stack</h2>\n" + flames(all);
    if (!all.regions.empty()) text += "<h2>Regions</h2>\n" + region_table(all);
    text += "<h2>Buffers</h2>\n" + buffers(all);
    return text + "</body></html>\n";
}

}  // namespace lms::tool
