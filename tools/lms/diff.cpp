#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "shim/util/units.h"
#include "tools/lms/analysis.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/pages.h"
#include "tools/lms/progress.h"
#include "tools/lms/trace_commands.h"

namespace lms::tool {
namespace {

using util::format_bytes;
using Json = nlohmann::ordered_json;

struct Figure {
    const char* name;
    std::uint64_t (*of)(const Analysis&);
    std::string (*show)(std::uint64_t);
};

std::string plain(std::uint64_t number) {
    return std::to_string(number);
}
std::string milliseconds(std::uint64_t ns) {
    return fmt::format("{:.1f} ms", static_cast<double>(ns) / 1e6);
}

std::string speed(std::uint64_t bytes_per_s) {
    return bytes_per_s == 0 ? "no data" : fmt::format("{:.2f} GB/s", static_cast<double>(bytes_per_s) / 1e9);
}
std::uint64_t speed_of(const LinkUse& link) {
    return static_cast<std::uint64_t>(link.bytes_per_s().value_or(0));
}

constexpr Figure kFigures[] = {
    {"time", [](const Analysis& all) { return all.end_ns - all.begin_ns; }, milliseconds},
    {"waited", [](const Analysis& all) { return all.stall_ns; }, milliseconds},
    {"launches", [](const Analysis& all) { return all.launches; }, plain},
    {"launches in place", [](const Analysis& all) { return all.in_place_launches; }, plain},
    {"to the GPU", [](const Analysis& all) { return all.in.bytes; }, format_bytes},
    {"to the host", [](const Analysis& all) { return all.out.bytes; }, format_bytes},
    {"speed to the GPU", [](const Analysis& all) { return speed_of(all.in); }, speed},
    {"speed to the host", [](const Analysis& all) { return speed_of(all.out); }, speed},
};

std::string change(std::uint64_t before, std::uint64_t after) {
    if (before == after) return "same";
    if (before == 0) return "new";
    return fmt::format("{:+.0f} %", 100 * (static_cast<double>(after) / static_cast<double>(before) - 1));
}

// Bytes moved, by who allocated them, before and after; the largest change first.
using ByPlace = std::vector<std::pair<std::string, std::pair<std::uint64_t, std::uint64_t>>>;
ByPlace by_place(const Analysis& before, const Analysis& after) {
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> sums;
    for (const BufferGroup& group : before.groups) sums[group.call_site].first += group.moved();
    for (const BufferGroup& group : after.groups) sums[group.call_site].second += group.moved();
    ByPlace rows(sums.begin(), sums.end());
    std::ranges::stable_sort(rows, std::ranges::greater{}, [](const auto& row) {
        const auto [was, is] = row.second;
        return std::max(was, is) - std::min(was, is);
    });
    return rows;
}

}  // namespace

int diff(const std::string& before, const std::string& after, bool as_json) {
    if (!as_json) Progress::show();
    const auto first = open_trace(before, "diff");
    const auto second = first ? open_trace(after, "diff") : nullptr;
    if (!second) return kUsage;
    Analysis a = analyse(*first), b = analyse(*second);
    name_alike(a, b);
    const ByPlace places = by_place(a, b);
    if (as_json) {
        Json all{{"figures", Json::object()}, {"moved_by_call_site", Json::array()}};
        for (const Figure& figure : kFigures) all["figures"][figure.name] = {figure.of(a), figure.of(b)};
        for (const auto& [site, moved] : places) {
            all["moved_by_call_site"].push_back(
                {{"call_site", site.empty() ? Json() : Json(site)}, {"bytes", {moved.first, moved.second}}});
        }
        fmt::print("{}", text_of(all));
        return 0;
    }
    fmt::print("{:<20} {:>12} {:>12} {:>9}\n", "", "before", "after", "change");
    for (const Figure& figure : kFigures) {
        fmt::print("{:<20} {:>12} {:>12} {:>9}\n", figure.name, figure.show(figure.of(a)),
                   figure.show(figure.of(b)), change(figure.of(a), figure.of(b)));
    }
    fmt::print("\n{:>12} {:>12} {:>9}  {}\n", "moved before", "after", "change", "allocated at");
    for (const auto& [site, moved] : places) {
        fmt::print("{:>12} {:>12} {:>9}  {}\n", format_bytes(moved.first), format_bytes(moved.second),
                   change(moved.first, moved.second), site.empty() ? kUnknownPlace : site);
    }
    return 0;
}

}  // namespace lms::tool
