#include "shim/sharing/turns.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "shim/sharing/grants.h"

namespace lms::sharing {
namespace {

constexpr std::uint64_t ns(std::chrono::nanoseconds length) {
    return static_cast<std::uint64_t>(length.count());
}

// Of a turn in one word.
constexpr unsigned kHolderBits = 8, kLengthBits = 15;
constexpr std::uint64_t kHolders = (1 << kHolderBits) - 1;
constexpr std::uint64_t kUnit = 1'000'000;
static_assert(ns(kLongestTurn) / kUnit < std::uint64_t{1} << kLengthBits);

std::uint64_t since(std::uint64_t then_ns, std::uint64_t now_ns) {
    return now_ns - std::min(now_ns, then_ns);
}

std::uint64_t missing_bytes(const Tenant& tenant, std::uint64_t capacity_bytes) {
    const std::uint64_t useful = std::min(tenant.allocated_bytes, capacity_bytes);
    return useful - std::min(useful, tenant.resident_bytes);
}

// By weight as long as the most that one of those that want a turn lacks: turns of the same tenants are
// equally long, whoever lacks less.
Turn begin_turn(std::size_t next, std::size_t holder, std::span<const Tenant> tenants,
                std::uint64_t capacity_bytes, std::uint64_t link_bytes_per_s, std::uint64_t now_ns) {
    std::uint64_t most_missing = 0;
    std::uint32_t least_weight = std::max(tenants[next].weight, 1u);
    for (std::size_t i = 0; i < tenants.size(); ++i) {
        if (i != next && i != holder && tenants[i].waiting_since_ns == 0) continue;
        most_missing = std::max(most_missing, missing_bytes(tenants[i], capacity_bytes));
        least_weight = std::min(least_weight, std::max(tenants[i].weight, 1u));
    }
    const std::uint64_t length = turn_length_ns(most_missing, link_bytes_per_s);
    return {next, now_ns, std::min(length * tenants[next].weight / least_weight, ns(kLongestTurn))};
}

bool is_over(const Turn& turn, const Tenant& holder, const Tenant& next, std::uint64_t now_ns) {
    return next.priority > holder.priority || since(turn.began_ns, now_ns) >= turn.length_ns ||
           (since(turn.began_ns, now_ns) >= ns(kUnusedTurn) &&
            since(holder.last_use_ns, now_ns) >= ns(kUnusedTurn));
}

}  // namespace

void TurnUse::note(bool in_use, bool holds_turn, std::uint64_t now_ns) {
    if (!in_use) {
        if (holds_turn && unused_since_ns_ == 0) unused_since_ns_ = now_ns;
        return;
    }
    if (unused_since_ns_ == 0) return;
    const std::uint64_t pause = since(std::exchange(unused_since_ns_, 0), now_ns);
    longest_pause_ns_ = pause >= ns(kUnusedTurn)
                            ? std::max(longest_pause_ns_ / 2, ns(kShortestPause))
                            : std::min(std::max(longest_pause_ns_, 2 * pause), ns(kUnusedTurn));
}

bool TurnUse::is_over(std::uint64_t now_ns) const {
    return unused_since_ns_ != 0 && since(unused_since_ns_, now_ns) >= longest_pause_ns_;
}

std::uint64_t turn_length_ns(std::uint64_t missing_bytes, std::uint64_t link_bytes_per_s) {
    constexpr unsigned __int128 kSecond = 1'000'000'000;
    const auto bringing_in = link_bytes_per_s == 0 ? 0 : kSecond * missing_bytes / link_bytes_per_s;
    const auto length = kTurnFactor * (bringing_in + ns(kSwitch));
    return static_cast<std::uint64_t>(std::min<unsigned __int128>(length, ns(kLongestTurn)));
}

std::uint64_t word_of(const Turn& turn) {
    if (turn.holder >= kHolders) return 0;
    const std::uint64_t length = std::min(turn.length_ns, ns(kLongestTurn)) / kUnit;
    return turn.began_ns / kUnit << (kHolderBits + kLengthBits) | length << kHolderBits | (turn.holder + 1);
}

Turn turn_of(std::uint64_t word, std::uint64_t now_ns) {
    const std::uint64_t holder = word % (kHolders + 1), began = word >> (kHolderBits + kLengthBits);
    if (holder == 0 || began > now_ns / kUnit) return {};
    const std::uint64_t length = (word >> kHolderBits) % (std::uint64_t{1} << kLengthBits);
    return {holder - 1, began * kUnit, length * kUnit};
}

void end_stale_waits(std::span<Tenant> tenants, std::uint64_t now_ns) {
    for (Tenant& each : tenants)
        if (since(each.last_use_ns, now_ns) >= ns(kIdle)) each.waiting_since_ns = 0;
}

std::size_t next_tenant(std::span<const Tenant> tenants, std::size_t holder) {
    std::size_t next = kNoTenant;
    for (std::size_t i = 0; i < tenants.size(); ++i) {
        const Tenant& tenant = tenants[i];
        if (i == holder || tenant.waiting_since_ns == 0) continue;
        const bool first = next == kNoTenant || tenant.priority > tenants[next].priority ||
                           (tenant.priority == tenants[next].priority &&
                            tenant.waiting_since_ns < tenants[next].waiting_since_ns);
        if (first) next = i;
    }
    return next;
}

Turn first_turn(const Turn& now, std::span<const Tenant> tenants, std::uint64_t capacity_bytes,
                std::uint64_t link_bytes_per_s, std::uint64_t turns_began_ns, std::uint64_t now_ns) {
    if (now.holder < tenants.size() && now.began_ns / kUnit >= turns_began_ns / kUnit) return now;
    std::size_t last = kNoTenant;
    for (std::size_t i = 0; i < tenants.size(); ++i) {
        const Tenant& tenant = tenants[i];
        if (since(tenant.last_use_ns, now_ns) >= ns(kUnusedTurn) ||
            missing_bytes(tenant, capacity_bytes) == 0)
            continue;
        if (last == kNoTenant || std::tuple(tenant.priority, tenant.came_ns) >
                                     std::tuple(tenants[last].priority, tenants[last].came_ns))
            last = i;
    }
    return last == kNoTenant
               ? now
               : begin_turn(last, now.holder, tenants, capacity_bytes, link_bytes_per_s, now_ns);
}

Turn turn_at(const Turn& now, std::span<const Tenant> tenants, std::uint64_t capacity_bytes,
             std::uint64_t link_bytes_per_s, std::uint64_t now_ns) {
    const std::size_t next = next_tenant(tenants, now.holder);
    const bool held = now.holder < tenants.size();
    if (next == kNoTenant) return held ? now : Turn{};
    if (held && !is_over(now, tenants[now.holder], tenants[next], now_ns)) return now;
    return begin_turn(next, now.holder, tenants, capacity_bytes, link_bytes_per_s, now_ns);
}

}  // namespace lms::sharing
