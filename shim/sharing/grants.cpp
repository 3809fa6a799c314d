#include "shim/sharing/grants.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace lms::sharing {
namespace {

using Wide = unsigned __int128;

// What a tenant has at least and at most.
struct Range {
    std::uint64_t least = 0, most = 0, weight = 1;
    bool idle = false;

    std::uint64_t at(std::uint64_t level) const {
        return static_cast<std::uint64_t>(std::clamp<Wide>(Wide{level} * weight, least, most));
    }
};

std::uint64_t part(std::uint64_t whole, Wide share, Wide of) {
    return of == 0 ? 0 : static_cast<std::uint64_t>(whole * share / of);
}

template <typename Of>
Wide sum(std::span<const Range> ranges, Of of) {
    Wide all = 0;
    for (const Range& range : ranges) all += of(range);
    return all;
}

std::vector<Range> ranges_of(std::span<const Tenant> tenants, std::uint64_t capacity, std::uint64_t now_ns) {
    std::vector<Range> ranges;
    for (const Tenant& tenant : tenants) {
        const std::uint64_t most = std::min(tenant.allocated_bytes, capacity);
        const std::uint64_t unused = now_ns - std::min(now_ns, tenant.last_use_ns);
        ranges.push_back({std::min(tenant.least_bytes, most), most,
                          std::clamp(tenant.weight, 1u, kMostWeight),
                          unused >= static_cast<std::uint64_t>(kIdle.count())});
    }
    const Wide least = sum(ranges, [](const Range& range) { return range.least; });
    if (least > capacity) {
        for (Range& range : ranges) range.least = part(capacity, range.least, least);
    }
    return ranges;
}

// The highest bytes for each unit of weight at which `chosen` together have at most `bytes`.
template <typename Chosen>
std::uint64_t level_for(std::span<const Range> ranges, Chosen chosen, std::uint64_t bytes) {
    std::uint64_t low = 0, high = bytes;
    while (low < high) {
        const std::uint64_t level = low + (high - low + 1) / 2;
        const Wide all = sum(ranges, [&](const Range& range) { return chosen(range) ? range.at(level) : 0; });
        if (all <= bytes)
            low = level;
        else
            high = level - 1;
    }
    return low;
}

}  // namespace

std::vector<std::uint64_t> grants(std::span<const Tenant> tenants, std::uint64_t capacity_bytes,
                                  std::uint64_t now_ns) {
    const std::vector<Range> ranges = ranges_of(tenants, capacity_bytes, now_ns);
    const auto used = [](const Range& range) { return !range.idle; };
    const auto idle = [](const Range& range) { return range.idle; };
    std::uint64_t left = capacity_bytes;
    for (const Range& range : ranges) left -= range.idle ? range.least : 0;
    const std::uint64_t level = level_for(ranges, used, left);
    const Wide in_use = sum(ranges, [&](const Range& range) { return range.idle ? 0 : range.at(level); });
    left = capacity_bytes - static_cast<std::uint64_t>(in_use);
    const std::uint64_t idle_level = level_for(ranges, idle, left);

    std::vector<std::uint64_t> all;
    bool satisfied = true;
    for (const Range& range : ranges) {
        all.push_back(range.at(range.idle ? idle_level : level));
        satisfied &= all.back() == range.most;
        left -= range.idle ? all.back() : 0;
    }
    if (!satisfied) return all;
    const bool any_used = std::ranges::any_of(ranges, used);
    const auto grows = [&](const Range& range) { return !range.idle || !any_used; };
    const Wide weights = sum(ranges, [&](const Range& range) { return grows(range) ? range.weight : 0; });
    for (std::size_t i = 0; i < ranges.size(); ++i)
        if (grows(ranges[i])) all[i] += part(left, ranges[i].weight, weights);
    return all;
}

std::vector<std::uint64_t> grants_in_turn(std::span<const Tenant> tenants, std::size_t holder,
                                          std::uint64_t capacity_bytes, std::uint64_t now_ns) {
    const std::vector<Range> ranges = ranges_of(tenants, capacity_bytes, now_ns);
    std::vector<std::size_t> order(tenants.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto rank = [&](std::size_t i) {
        const bool waits = tenants[i].waiting_since_ns != 0;
        return std::tuple(i != holder, !waits, ranges[i].idle, kMostPriority - tenants[i].priority,
                          tenants[i].waiting_since_ns);
    };
    std::ranges::stable_sort(order, {}, rank);
    std::vector<std::uint64_t> all;
    std::uint64_t left = capacity_bytes;
    for (const Range& range : ranges) {
        all.push_back(range.least);
        left -= range.least;
    }
    for (const std::size_t i : order) {
        const std::uint64_t more = std::min(ranges[i].most - ranges[i].least, left);
        all[i] += more;
        left -= more;
    }
    if (holder < all.size()) all[holder] += left;
    return all;
}

}  // namespace lms::sharing
