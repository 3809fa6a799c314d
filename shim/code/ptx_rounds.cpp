#include "shim/code/ptx_rounds.h"

#include <algorithm>
#include <optional>

namespace lms::code {

namespace {

// Nothing where it may be this or that.
std::optional<std::int64_t> total(unsigned bits, const PtxSteps::Loop::Sum& sum, const KnownAt& outside) {
    ValueRange all = ValueRange::of(0);
    for (const PtxSteps::Loop::Term& term : sum) {
        const ValueRange by = outside.value(term.value);
        all = term.subtracts ? subtract(bits, all, by) : add(bits, all, by);
    }
    return all.is_one() ? std::optional(all.lo) : std::nullopt;
}

// How often the loop goes back at most, where that follows from one of its tests.
std::optional<std::int64_t> rounds_by(const PtxSteps::Loop::Counter& counter,
                                      const PtxSteps::Loop::Test& test, const KnownAt& outside) {
    const auto by = total(counter.bits, counter.by, outside);
    const auto added = total(counter.bits, test.added, outside);
    const auto with = as(test.type, outside.value(test.with));
    constexpr std::int64_t kMost = std::int64_t{1} << 60;
    const auto small = [](std::int64_t number) { return number > -kMost && number < kMost; };
    if (!by || *by == 0 || !added || !with || !small(*by) || !small(*added)) return std::nullopt;
    // What the first round compares; each round adds `by` to it.
    const auto first = as(test.type, add(counter.bits, outside.values[counter.reg],
                                         ValueRange::of(*added + (test.is_later ? *by : 0))));
    if (!first || !small(first->lo) || !small(first->hi) || !small(with->lo) || !small(with->hi))
        return std::nullopt;
    if (test.comparison == Comparison::NotEqual) {
        // Steps of 1 pass no number by, wherever they begin.
        if (!with->is_one() || (!first->is_one() && *by != 1 && *by != -1)) return std::nullopt;
        const std::int64_t nearest = with->lo - (*by > 0 ? first->hi : first->lo);
        const std::int64_t furthest = with->lo - (*by > 0 ? first->lo : first->hi);
        if (furthest % *by != 0 || (*by > 0 ? nearest < 0 : nearest > 0)) return std::nullopt;
        return furthest / *by;
    }
    const bool up = test.comparison == Comparison::Less || test.comparison == Comparison::LessEqual;
    const bool down = test.comparison == Comparison::Greater || test.comparison == Comparison::GreaterEqual;
    if (up ? *by < 0 : !down || *by > 0) return std::nullopt;
    const bool also_equal =
        test.comparison == Comparison::LessEqual || test.comparison == Comparison::GreaterEqual;
    // The last number with which it goes on, and how far that is.
    const std::int64_t last = up ? with->hi - (also_equal ? 0 : 1) : with->lo + (also_equal ? 0 : 1);
    const std::int64_t way = up ? last - first->lo : first->hi - last;
    // The number with which it ends must not go round the end of its type.
    const std::int64_t end = last + *by;
    const auto all = as(test.type, ValueRange::any());
    if (up ? end > (all ? all->hi : INT64_MAX) : end < (all ? all->lo : 0)) return std::nullopt;
    return way < 0 ? 0 : way / (up ? *by : -*by) + 1;
}

}  // namespace

void bound_counters(const PtxSteps::Loop& loop, const KnownAt& outside, KnownAt& head) {
    for (std::size_t i = 0; i < head.values.size(); ++i) {
        if (!loop.changes[i]) head.values[i] = outside.values[i];
    }
    std::optional<std::int64_t> rounds;
    for (const PtxSteps::Loop::Test& test : loop.tests) {
        const auto most = rounds_by(loop.counters[test.counter], test, outside);
        if (most && (!rounds || *most < *rounds)) rounds = most;
    }
    if (!rounds) return;
    for (const PtxSteps::Loop::Counter& counter : loop.counters) {
        const auto by = total(counter.bits, counter.by, outside);
        std::int64_t way = 0;
        if (!by || __builtin_mul_overflow(*by, *rounds, &way)) continue;
        const ValueRange all{std::min<std::int64_t>(way, 0), std::max<std::int64_t>(way, 0)};
        const ValueRange counted = add(counter.bits, outside.values[counter.reg], all);
        head.values[counter.reg] = narrower(head.values[counter.reg], counted);
    }
}

}  // namespace lms::code
