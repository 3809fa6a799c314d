#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "policy/host.h"
#include "shim/util/units.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/pages.h"
#include "tools/lms/progress.h"
#include "tools/lms/to_stderr.h"
#include "tools/lms/trace_commands.h"

namespace lms::tool {
namespace {

using util::format_bytes;
using Json = nlohmann::ordered_json;

struct ReplayRow {
    std::optional<std::uint64_t> limit;
    std::string policy;
    Replayed result;
    std::uint64_t fewest_bytes;

    // The bytes that it moves, over the fewest. Nothing: the fewest are none.
    std::optional<double> ratio() const {
        if (fewest_bytes == 0) return {};
        return static_cast<double>(result.bytes()) / static_cast<double>(fewest_bytes);
    }
};

// The rows that every replay has.
bool is_order(const std::string& policy) {
    return policy == kFewestBytes || policy == kLeastTime;
}

std::vector<ReplayRow> replay_each(const Trace& trace, const ReplayOptions& options) {
    ReplayWith with = replay_like(trace);
    if (const auto link = util::parse_bytes(options.link)) {
        with.in_bytes_per_s = static_cast<double>(*link);
        with.out_bytes_per_s = static_cast<double>(*link);
    }
    std::vector<std::string> policies = options.policies;
    if (policies.empty()) policies = {with.policy};
    std::erase_if(policies, is_order);
    std::vector<std::optional<std::uint64_t>> limits;
    for (const std::string& limit : options.limits) limits.push_back(util::parse_bytes(limit));
    if (limits.empty()) limits.emplace_back();

    const std::size_t shown = policies.size();  // the rest is replayed for the fewest and the least
    policies.emplace_back(kFewestBytes);
    policies.emplace_back(kForesight);
    for (const char* each : {"next-use", "lru"}) {
        if (std::ranges::find(policies, each) == policies.end()) policies.emplace_back(each);
    }
    std::vector<ReplayRow> rows;
    for (const auto& limit : limits) {
        const std::vector<Replayed> replayed = replay_all(trace, policies, with, limit);
        const Replayed& fewest = *std::ranges::min_element(replayed, {}, &Replayed::bytes);
        const Replayed& fastest = *std::ranges::min_element(replayed, {}, &Replayed::seconds);
        for (std::size_t i = 0; i < shown; ++i)
            rows.push_back({limit, policies[i], replayed[i], fewest.bytes()});
        rows.push_back({limit, kFewestBytes, fewest, fewest.bytes()});
        rows.push_back({limit, kLeastTime, fastest, fewest.bytes()});
    }
    return rows;
}

Json json_of(const ReplayRow& row) {
    Json json;
    json["limit_bytes"] = row.limit ? Json(*row.limit) : Json();
    json["policy"] = row.policy;
    json["bytes_in"] = row.result.bytes_in;
    json["bytes_out"] = row.result.bytes_out;
    json["fills"] = row.result.fills;
    json["fills_ahead"] = row.result.fills_ahead;
    json["evictions"] = row.result.evictions;
    json["works_without_room"] = row.result.in_place;
    json["seconds"] = row.result.seconds;
    json["fitting_seconds"] = row.result.fitting_seconds;
    json["bytes_over_fewest"] = row.ratio() ? Json(*row.ratio()) : Json();
    return json;
}

void print(const std::vector<ReplayRow>& rows) {
    fmt::print("{:>10}  {:<16} {:>10} {:>10} {:>10} {:>9}  {}\n", "limit", "policy", "to GPU", "to host",
               "x fewest", "seconds", "x all fitting");
    for (const ReplayRow& row : rows) {
        const double fitting = row.result.fitting_seconds;
        fmt::print("{:>10}  {:<16} {:>10} {:>10} {:>10} {:>9.3f}  {}\n",
                   row.limit ? format_bytes(*row.limit) : "as it was", row.policy,
                   format_bytes(row.result.bytes_in), format_bytes(row.result.bytes_out),
                   row.ratio() ? fmt::format("{:.2f}", *row.ratio()) : "-", row.result.seconds,
                   fitting > 0 ? fmt::format("{:.2f}", row.result.seconds / fitting) : "no data");
    }
}

}  // namespace

std::string refuse(const ReplayOptions& options) {
    for (const std::string& limit : options.limits) {
        if (util::parse_bytes(limit).value_or(0) == 0)
            return fmt::format("--limit={}: expected sizes in bytes, or with suffix K, M, G or T", limit);
    }
    constexpr std::uint64_t kSlowestLink = 1 << 20;
    if (!options.link.empty() && util::parse_bytes(options.link).value_or(0) < kSlowestLink)
        return fmt::format("--link={}: expected bytes a second, at least 1M: 25G is PCIe 4", options.link);
    for (const std::string& policy : options.policies) {
        std::string problem;
        if (!is_order(policy) && policy::find(policy, problem) == nullptr)
            return fmt::format("--policy={}: {}", policy, problem);
    }
    return {};
}

int replay_command(const ReplayOptions& options) {
    if (!options.as_json) Progress::show();
    const auto trace = open_trace(options.path, "replay");
    if (!trace) return kUsage;
    const bool known = std::ranges::any_of(devices_of(*trace),
                                           [&](int device) { return budget_of(*trace, device).has_value(); });
    if (!known && options.limits.empty()) {
        to_stderr("lms replay: {} records no GPU's memory; give --limit\n", options.path);
        return kNotWell;
    }
    const std::vector<ReplayRow> rows = replay_each(*trace, options);
    if (options.as_json) {
        Json all{{"replays", Json::array()}};
        for (const ReplayRow& row : rows) all["replays"].push_back(json_of(row));
        fmt::print("{}", text_of(all));
    } else {
        print(rows);
    }
    const bool too_many =
        options.fail_above && std::ranges::any_of(rows, [&](const ReplayRow& row) {
            if (is_order(row.policy)) return false;
            return row.ratio() ? *row.ratio() > *options.fail_above : row.result.bytes() > 0;
        });
    if (!too_many) return 0;
    to_stderr("lms replay: a policy moves more than {} times the fewest bytes\n", *options.fail_above);
    return kNotWell;
}

}  // namespace lms::tool
