#include "shim/code/ptx_bounds.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace lms::shim {

namespace {

// What is known at one place of a kernel, of all threads that come by.
struct KnownAt {
    std::vector<ValueRange> values;           // by register
    std::vector<const PtxStep*> computed_by;  // whose operands are still what they were; null: none
};

using Place = std::optional<KnownAt>;  // nothing: no thread comes there

constexpr int kMostRounds = 64;
// Steps that a value is looked up through, and values that a comparison bounds.
constexpr int kMostLookedAt = 256, kMostNarrowed = 64;

// Whether these numbers of a register, read as `to`, are the same ones read as `from`.
bool same_number(IntegerType from, IntegerType to, ValueRange range) {
    return from.is_signed == to.is_signed ||
           (range.lo >= 0 && range.hi <= static_cast<std::int64_t>(~std::uint64_t{0} >> (65 - to.bits)));
}

ValueRange narrower(ValueRange a, ValueRange b) {
    const auto width = [](ValueRange range) {
        return static_cast<std::uint64_t>(range.hi) - static_cast<std::uint64_t>(range.lo);
    };
    return width(b) < width(a) ? b : a;
}

// By the input that they move along with, those that are written apart from the others; those that overlap or
// follow one another as one.
void unite(std::vector<RelativeRange>& ranges) {
    const auto kind = [](const RelativeRange& each) { return std::pair(each.input, each.written); };
    std::ranges::sort(ranges, {},
                      [&](const RelativeRange& each) { return std::pair(kind(each), each.begin); });
    std::size_t count = 0;
    for (const RelativeRange& each : ranges) {
        RelativeRange* const last = count > 0 ? &ranges[count - 1] : nullptr;
        if (last && kind(*last) == kind(each) && each.begin <= last->end) {
            last->end = std::max(last->end, each.end);
        } else {
            ranges[count++] = each;
        }
    }
    ranges.resize(count);
}

// Where inputs that only move accesses along are taken to lead: so far from each other, and from what may be
// an address, that each access shows to which it belongs.
constexpr std::int64_t kApart = std::int64_t{1} << 44, kFirst = std::int64_t{1} << 56;
constexpr std::int64_t stand_in(std::uint32_t input) {
    return kFirst + kApart * (input + 1);
}

class Run {
  public:
    Run(const PtxSteps& steps, const PtxPointers& pointers,
        const std::vector<std::vector<RegisterId>>& readers, const LaunchShape& shape,
        std::span<const std::uint64_t> inputs)
        : steps_(steps),
          pointers_(pointers),
          readers_(readers),
          shape_(shape),
          inputs_(inputs),
          at_(steps.flow.blocks().size()),
          is_open_(steps.flow.blocks().size()) {
        is_open_[0] = 1;
    }

    PtxBounds::Answer answer() {
        if (!settle()) return anywhere();
        for (const std::uint32_t block : steps_.flow.order()) {
            if (!at_[block]) continue;
            known_ = *at_[block];
            for (const PtxStep& step : steps_.blocks[block]) pass(step, true);
        }
        unite(result_.ranges);
        return std::move(result_);
    }

  private:
    PtxBounds::Answer anywhere() const {
        PtxBounds::Answer all;
        for (const PtxSteps::Access& each : steps_.accesses)
            (each.written ? all.written : all.read).add(each.words);
        return all;
    }

    // ------------------------------------------------------------ to a fixed point

    // False where there is none in sight.
    bool settle() {
        const std::span<const std::uint32_t> order = steps_.flow.order();
        for (int round = 0; std::ranges::find(is_open_, 1) != is_open_.end(); ++round) {
            if (round == kMostRounds) return false;
            for (const std::uint32_t block : order) {
                if (std::exchange(is_open_[block], 0) == 0) continue;
                Place now = arrive(block);
                const PtxSteps::Loop* const loop = loop_at(block);
                if (round > 1 && now && at_[block] && loop) widen(*now, *at_[block], *loop);
                if (same(now, at_[block])) continue;
                put(block, std::move(now));
            }
        }
        // What was taken for any number may be bounded by how the loop goes on.
        for (int round = 0; round < 2; ++round) {
            for (const PtxSteps::Loop& loop : steps_.loops) is_open_[steps_.flow.loops()[loop.loop].head] = 1;
            for (const std::uint32_t block : order) {
                if (std::exchange(is_open_[block], 0) == 0) continue;
                Place now = arrive(block);
                if (!same(now, at_[block])) put(block, std::move(now));
            }
        }
        return true;
    }

    void put(std::uint32_t block, Place now) {
        at_[block] = std::move(now);
        for (const FlowEdge& edge : steps_.flow.blocks()[block].next) is_open_[edge.to] = 1;
    }

    static bool same(const Place& a, const Place& b) {
        if (!a || !b) return a.has_value() == b.has_value();
        return a->values == b->values && a->computed_by == b->computed_by;
    }

    static void widen(KnownAt& now, const KnownAt& before, const PtxSteps::Loop& loop) {
        for (std::size_t i = 0; i < now.values.size(); ++i) {
            if (loop.changes[i] && now.values[i] != before.values[i]) now.values[i] = ValueRange::any();
        }
    }

    Place arrive(std::uint32_t block) {
        const PtxSteps::Loop* const loop = loop_at(block);
        Place outside;
        Place all;
        if (block == 0) outside = all = beginning();
        for (const std::uint32_t before : steps_.flow.blocks()[block].before) {
            if (!at_[before]) continue;
            leave(before, block, [&](const KnownAt& known) {
                join(all, known);
                if (loop && !inside(*loop, before)) join(outside, known);
            });
        }
        if (loop && all && outside) count(*loop, *outside, *all);
        return all;
    }

    const PtxSteps::Loop* loop_at(std::uint32_t block) const {
        for (const PtxSteps::Loop& each : steps_.loops) {
            if (steps_.flow.loops()[each.loop].head == block) return &each;
        }
        return nullptr;
    }
    bool inside(const PtxSteps::Loop& loop, std::uint32_t block) const {
        return steps_.flow.loops()[loop.loop].has[block];
    }

    // What is known where `before` goes on to `block`, for each way it does.
    template <typename Visit>
    void leave(std::uint32_t before, std::uint32_t block, Visit&& visit) {
        const auto& next = steps_.flow.blocks()[before].next;
        known_ = *at_[before];
        for (const PtxStep& step : steps_.blocks[before]) pass(step, false);
        for (std::size_t i = 0; i < next.size(); ++i) {
            if (next[i].to != block) continue;
            const auto& guard = steps_.edges[before][i];
            // Seldom: a jump to where it goes on anyway.
            const bool again = std::ranges::any_of(std::span(next).subspan(i + 1),
                                                   [&](const FlowEdge& each) { return each.to == block; });
            const Place whole = again ? Place(known_) : std::nullopt;
            if (!guard || holds(guard->predicate, guard->when)) {
                if (guard) look_at_copies();
                visit(known_);
            }
            if (whole) known_ = *whole;
        }
    }

    // What was learnt of a register is so of its copies: LLVM's loops test the next number after they took it
    // over.
    void look_at_copies() {
        for (std::size_t i = 0; i < known_.values.size(); ++i) {
            const PtxStep* const step = known_.computed_by[i];
            if (step && step->what == PtxCompute::Move)
                known_.values[i] = narrower(known_.values[i], value(step->from[0], known_));
        }
    }

    static void join(Place& place, const KnownAt& known) {
        if (!place) {
            place = known;
            return;
        }
        for (std::size_t i = 0; i < known.values.size(); ++i) {
            place->values[i] = joined(64, place->values[i], known.values[i]);
            if (place->computed_by[i] != known.computed_by[i]) place->computed_by[i] = nullptr;
        }
    }

    KnownAt beginning() const {
        KnownAt known{std::vector(steps_.registers, ValueRange::any()),
                      std::vector<const PtxStep*>(steps_.registers, nullptr)};
        for (const PtxSteps::Set& set : steps_.set) known.values[set.reg] = thread_number(set);
        return known;
    }

    ValueRange thread_number(const PtxSteps::Set& set) const {
        const std::int64_t threads = shape_.threads[set.axis];
        const std::int64_t blocks = shape_.blocks[set.axis];
        switch (set.number) {
            case ThreadNumber::Thread:
                return {0, std::max<std::int64_t>(threads - 1, 0)};
            case ThreadNumber::Block:
                return {0, std::max<std::int64_t>(blocks - 1, 0)};
            case ThreadNumber::Threads:
                return ValueRange::of(threads);
            case ThreadNumber::Blocks:
                return ValueRange::of(blocks);
            case ThreadNumber::Lane:
                break;
        }
        return {0, 31};
    }

    // ------------------------------------------------------------ loops

    // At the head of a loop what it does not change is what it was outside; its counters are that, and what
    // the rounds add.
    void count(const PtxSteps::Loop& loop, const KnownAt& outside, KnownAt& head) const {
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

    static ValueRange value(const PtxStepOperand& operand, const KnownAt& known) {
        return operand.reg == kNoRegister ? ValueRange::of(operand.number) : known.values[operand.reg];
    }

    // Nothing where it may be this or that.
    static std::optional<std::int64_t> total(unsigned bits, const PtxSteps::Loop::Sum& sum,
                                             const KnownAt& outside) {
        ValueRange all = ValueRange::of(0);
        for (const PtxSteps::Loop::Term& term : sum) {
            const ValueRange by = value(term.value, outside);
            all = term.subtracts ? subtract(bits, all, by) : add(bits, all, by);
        }
        return all.is_one() ? std::optional(all.lo) : std::nullopt;
    }

    // How often the loop goes back at most, where that follows from one of its tests.
    static std::optional<std::int64_t> rounds_by(const PtxSteps::Loop::Counter& counter,
                                                 const PtxSteps::Loop::Test& test, const KnownAt& outside) {
        const auto by = total(counter.bits, counter.by, outside);
        const auto added = total(counter.bits, test.added, outside);
        const auto with = as(test.type, value(test.with, outside));
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
        const bool down =
            test.comparison == Comparison::Greater || test.comparison == Comparison::GreaterEqual;
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

    // ------------------------------------------------------------ one step

    void pass(const PtxStep& step, bool notes) {
        if (step.what == PtxCompute::Reach) {
            if (notes) note(step);
            return;
        }
        ValueRange result = computed(step, [&](const PtxStepOperand& from) { return value(from, known_); });
        if (const auto rest = rest_of_division(step)) result = narrower(result, *rest);
        const RegisterId reg = step.result;
        const bool maybe = step.guard.has_value();
        if (maybe) result = joined(64, known_.values[reg], result);
        known_.values[reg] = result;
        known_.computed_by[reg] = maybe ? nullptr : &step;
        for (const RegisterId reader : readers_[reg]) {
            const PtxStep* const by = known_.computed_by[reader];
            if (by && reads(*by, reg)) known_.computed_by[reader] = nullptr;
        }
    }

    // x - x / m * m, as compilers write it where m is a constant: they multiply by a rounded-up 2^n / m, and
    // shift by n. Of unsigned numbers.
    std::optional<ValueRange> rest_of_division(const PtxStep& step) const {
        const PtxStepOperand* x = &step.from[0];
        const PtxStep* product = nullptr;
        PtxStepOperand quotient;
        std::int64_t m = 0;
        if (step.what == PtxCompute::Subtract) {
            product = computed_by(step.from[1]);
            if (!product || product->what != PtxCompute::Multiply) return std::nullopt;
            quotient = product->from[0];
            m = constant(product->from[1], step.type.bits);
        } else if (step.what == PtxCompute::MultiplyAdd) {
            x = &step.from[2];
            quotient = step.from[0];
            m = -constant(step.from[1], step.type.bits);
        }
        const auto number = m > 1 ? as({step.type.bits, false}, value(*x, known_)) : std::nullopt;
        if (!number || !divides(quotient, *x, number->hi, m)) return std::nullopt;
        return ValueRange{0, std::min(number->hi, m - 1)};
    }

    // Whether the operand is x / m, where x is `most` at most.
    bool divides(const PtxStepOperand& operand, const PtxStepOperand& x, std::int64_t most,
                 std::int64_t m) const {
        const PtxStep* step = computed_by(operand);
        std::int64_t shift = 0;
        if (step && step->what == PtxCompute::Divide)
            return step->from[0].reg == x.reg && constant(step->from[1], step->type.bits) == m;
        if (step && step->what == PtxCompute::ShiftRight && !step->type.is_signed) {
            shift = constant(step->from[1], 32);
            step = computed_by(step->from[0]);
        }
        if (!step || step->from[0].reg != x.reg || shift < 0 || shift > 31) return false;
        const auto factor = as({step->type.bits, false}, value(step->from[1], known_));
        // The lower half of a product is the same for signed numbers.
        const bool is_unsigned = !step->type.is_signed || step->what == PtxCompute::Multiply;
        if (!factor || !factor->is_one() || step->type.bits > 32 || !is_unsigned) return false;
        const __int128 whole = static_cast<__int128>(most) * factor->lo;
        if (step->what == PtxCompute::MultiplyHigh) {
            shift += step->type.bits;
        } else if (step->what != PtxCompute::Multiply || whole >= static_cast<__int128>(1)
                                                                      << step->type.bits) {
            return false;
        }
        // Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
        const __int128 unit = static_cast<__int128>(1) << shift;
        const __int128 over = static_cast<__int128>(factor->lo) * m - unit;
        return over >= 0 && over * most < unit;
    }

    const PtxStep* computed_by(const PtxStepOperand& operand) const {
        return operand.reg == kNoRegister ? nullptr : known_.computed_by[operand.reg];
    }

    // 0: it is none.
    std::int64_t constant(const PtxStepOperand& operand, unsigned bits) const {
        const auto number = as({bits, true}, value(operand, known_));
        return number && number->is_one() ? number->lo : 0;
    }

    static bool reads(const PtxStep& step, RegisterId reg) {
        return std::ranges::any_of(step.from, [&](const PtxStepOperand& each) { return each.reg == reg; }) ||
               (step.beside && step.beside->reg == reg);
    }

    template <typename ValueOf>
    ValueRange computed(const PtxStep& step, ValueOf&& value_of) const {
        const auto a = [&] { return value_of(step.from[0]); };
        const auto b = [&] { return value_of(step.from[1]); };
        const auto c = [&] { return value_of(step.from[2]); };
        const unsigned bits = step.type.bits;
        switch (step.what) {
            case PtxCompute::Input:
                return input(step);
            case PtxCompute::Move:
                return a();
            case PtxCompute::Add:
                return add(bits, a(), b());
            case PtxCompute::Subtract:
                return subtract(bits, a(), b());
            case PtxCompute::Multiply:
                return multiply(bits, a(), b());
            case PtxCompute::MultiplyWide:
                return multiply_wide(step.type, a(), b());
            case PtxCompute::MultiplyHigh:
                return multiply_high(step.type, a(), b());
            case PtxCompute::MultiplyAdd:
                return add(bits, multiply(bits, a(), b()), c());
            case PtxCompute::MultiplyAddWide:
                return add(2 * bits, multiply_wide(step.type, a(), b()), c());
            case PtxCompute::Divide:
                return divide(step.type, a(), b());
            case PtxCompute::Remainder:
                return remainder(step.type, a(), b());
            case PtxCompute::ShiftLeft:
                return shift_left(bits, a(), b());
            case PtxCompute::ShiftRight:
                return shift_right(step.type, a(), b());
            case PtxCompute::Extract:
                return extract(step.type, a(), b(), c());
            case PtxCompute::And:
                return bit_and(bits, a(), b());
            case PtxCompute::Or:
                return bit_or(bits, a(), b());
            case PtxCompute::Xor:
                return bit_xor(bits, a(), b());
            case PtxCompute::Not:
                return bit_not(bits, a());
            case PtxCompute::Negate:
                return subtract(bits, ValueRange::of(0), a());
            case PtxCompute::Minimum:
                return minimum(step.type, a(), b());
            case PtxCompute::Maximum:
                return maximum(step.type, a(), b());
            case PtxCompute::Absolute:
                return absolute(step.type, a());
            case PtxCompute::Convert:
                return convert(step.to, step.type, a());
            case PtxCompute::Select:
                return joined(bits, a(), b());
            default:
                return step.range;
        }
    }

    ValueRange input(const PtxStep& step) const {
        if (pointers_.moves_along[step.number]) return ValueRange::of(stand_in(step.number));
        const auto given = static_cast<std::int64_t>(inputs_[step.number]);
        const unsigned bits = step.type.bits;
        if (bits == 64) return ValueRange::of(given);
        const std::int64_t turn = std::int64_t{1} << bits;
        const bool is_negative = step.type.is_signed && given >= turn / 2;
        return ValueRange::of(is_negative ? given - turn : given);
    }

    // ------------------------------------------------------------ what follows from predicates

    // Leaves what is known where the predicate is so. False: it cannot be.
    bool holds(RegisterId predicate, bool when, int depth = kDeep) {
        const PtxStep* const step = known_.computed_by[predicate];
        if (!step || depth == 0) return true;
        const auto operand = [&](const PtxStepOperand& each, bool so) {
            return each.reg == kNoRegister || holds(each.reg, so == each.when, depth - 1);
        };
        switch (step->what) {
            case PtxCompute::Both:
                return !when || (operand(step->from[0], true) && operand(step->from[1], true));
            case PtxCompute::Either:
                return when || (operand(step->from[0], false) && operand(step->from[1], false));
            case PtxCompute::Same:
                return operand(step->from[0], when == step->both);
            case PtxCompute::Compare:
                break;
            default:
                return true;
        }
        if (step->beside) {
            if (step->both != when) return true;
            return operand(*step->beside, when) && compared(*step, when);
        }
        return compared(*step, when);
    }

    bool compared(const PtxStep& step, bool when) {
        const Comparison comparison = when ? step.comparison : opposite(step.comparison);
        const ValueRange a = chained(step.from[0]);
        const ValueRange b = chained(step.from[1]);
        const auto left = where(comparison, step.type, a, b);
        const auto right = where(mirrored(comparison), step.type, b, a);
        if (!left || !right) return false;
        narrowed_ = 0;
        return narrow(step.from[0], step.type, *left, kDeep) &&
               narrow(step.from[1], step.type, *right, kDeep);
    }

    // The operand's number of that type is in the range: so are those that it was computed from. False: it
    // cannot be.
    bool narrow(const PtxStepOperand& operand, IntegerType type, ValueRange to, int depth) {
        if (operand.reg == kNoRegister) return true;
        const auto wanted = as(type, to);
        if (!wanted) return true;
        const auto low =
            where(Comparison::GreaterEqual, type, known_.values[operand.reg], ValueRange::of(wanted->lo));
        const auto now = low ? where(Comparison::LessEqual, type, *low, ValueRange::of(wanted->hi)) : low;
        if (!now) return false;
        known_.values[operand.reg] = narrower(known_.values[operand.reg], *now);
        const PtxStep* const step = known_.computed_by[operand.reg];
        if (!step || depth == 0 || ++narrowed_ > kMostNarrowed) return true;
        const auto result = as(type, *now);
        return !result || narrow_sources(*step, type, *result, depth - 1);
    }

    bool narrow_sources(const PtxStep& step, IntegerType type, ValueRange result, int depth) {
        const auto source = [&](std::size_t i) { return as(type, chained(step.from[i])); };
        const auto fits = [&](__int128 lo, __int128 hi) {
            const auto all = as(type, ValueRange::any());
            return lo >= (all ? static_cast<__int128>(all->lo) : 0) &&
                   hi <= (all ? static_cast<__int128>(all->hi) : INT64_MAX);
        };
        const bool same_bits = step.type.bits == type.bits;
        switch (step.what) {
            case PtxCompute::Move:
                return narrow(step.from[0], type, result, depth);
            case PtxCompute::Add:
            case PtxCompute::Subtract: {
                if (!same_bits) return true;
                // Of a number added, its sign.
                for (const std::size_t i : {0u, 1u}) {
                    if (step.what == PtxCompute::Subtract && i == 1) break;
                    const auto x = source(i);
                    const auto y = as({type.bits, true}, chained(step.from[1 - i]));
                    if (!x || !y || y->is_any()) continue;
                    const bool minus = step.what == PtxCompute::Subtract;
                    const __int128 least = minus ? -static_cast<__int128>(y->hi) : y->lo;
                    const __int128 most = minus ? -static_cast<__int128>(y->lo) : y->hi;
                    if (!fits(x->lo + least, x->hi + most)) continue;
                    const __int128 lo = result.lo - most;
                    const __int128 hi = result.hi - least;
                    if (!narrow_between(step.from[i], type, lo, hi, depth)) return false;
                }
                return true;
            }
            case PtxCompute::Multiply:
            case PtxCompute::MultiplyAdd:
            case PtxCompute::ShiftLeft:
                return !same_bits || narrow_factor(step, type, result, depth);
            case PtxCompute::MultiplyWide:
                return type.bits != 2 * step.type.bits || !same_number(step.type, type, result) ||
                       narrow_factor(step, step.type, result, depth);
            case PtxCompute::Convert:
                if (step.cuts || step.to.bits != type.bits || step.type.bits > step.to.bits) return true;
                if (!same_number(step.type, type, result)) return true;
                return narrow_between(step.from[0], step.type, result.lo, result.hi, depth);
            case PtxCompute::ShiftRight: {
                const ValueRange by = chained(step.from[1]);
                if (!same_bits || !by.is_one() || by.lo < 0 || by.lo > 31 ||
                    !same_number(step.type, type, result))
                    return true;
                const __int128 unit = static_cast<__int128>(1) << by.lo;
                return narrow_between(step.from[0], step.type, result.lo * unit, result.hi * unit + unit - 1,
                                      depth);
            }
            case PtxCompute::Or: {
                // No bit goes: neither is larger.
                const auto x = source(0);
                const auto y = source(1);
                if (!same_bits || !x || !y || x->lo < 0 || y->lo < 0 || result.lo < 0) return true;
                return narrow_between(step.from[0], type, x->lo, result.hi, depth) &&
                       narrow_between(step.from[1], type, y->lo, result.hi, depth);
            }
            case PtxCompute::Minimum:
            case PtxCompute::Maximum: {
                if (!same_bits || step.type.is_signed != type.is_signed) return true;
                for (const PtxStepOperand& each : step.from) {
                    if (each.reg == kNoRegister) continue;
                    const auto x = as(type, known_.values[each.reg]);
                    if (!x) continue;
                    const bool least = step.what == PtxCompute::Minimum;
                    const __int128 lo = least ? result.lo : x->lo;
                    const __int128 hi = least ? x->hi : result.hi;
                    if (!narrow_between(each, type, lo, hi, depth)) return false;
                }
                return true;
            }
            default:
                return true;
        }
    }

    // x * m + c: what x is. `type` reads x.
    bool narrow_factor(const PtxStep& step, IntegerType type, ValueRange result, int depth) {
        const bool shifts = step.what == PtxCompute::ShiftLeft;
        for (const std::size_t i : {0u, 1u}) {
            if (shifts && i == 1) break;
            const auto by = as(shifts ? IntegerType{32, false} : type, chained(step.from[1 - i]));
            if (!by || !by->is_one() || by->lo < (shifts ? 0 : 1) || (shifts && by->lo > 31)) continue;
            const __int128 factor = shifts ? static_cast<__int128>(1) << by->lo : by->lo;
            const auto x = as(type, chained(step.from[i]));
            if (!x || x->is_any()) continue;
            __int128 least = 0;
            __int128 most = 0;
            if (step.what == PtxCompute::MultiplyAdd) {
                const auto c = as({type.bits, true}, chained(step.from[2]));
                if (!c || c->is_any()) continue;
                least = c->lo;
                most = c->hi;
            }
            if (step.what != PtxCompute::MultiplyWide) {
                const auto all = as(type, ValueRange::any());
                const __int128 top = all ? static_cast<__int128>(all->hi) : INT64_MAX;
                const __int128 bottom = all ? static_cast<__int128>(all->lo) : 0;
                if (x->lo * factor + least < bottom || x->hi * factor + most > top) continue;
                // Of 64 bits unsigned ones only half have a name here.
                if (x->lo * factor < bottom || x->hi * factor > top) continue;
            }
            if (step.what == PtxCompute::MultiplyAdd &&
                !narrow_between(step.from[2], {type.bits, true}, result.lo - x->hi * factor,
                                result.hi - x->lo * factor, depth))
                return false;
            const __int128 lo = result.lo - most;
            const __int128 hi = result.hi - least;
            const __int128 first = lo >= 0 ? (lo + factor - 1) / factor : -(-lo / factor);
            const __int128 last = hi >= 0 ? hi / factor : -((-hi + factor - 1) / factor);
            if (!narrow_between(step.from[i], type, first, last, depth)) return false;
        }
        return true;
    }

    bool narrow_between(const PtxStepOperand& operand, IntegerType type, __int128 lo, __int128 hi,
                        int depth) {
        const auto all = as(type, ValueRange::any());
        // Unsigned ones of 64 bits, of which the upper half has no name here.
        if (!all && hi > INT64_MAX) return true;
        lo = std::max<__int128>(lo, INT64_MIN);
        hi = std::min<__int128>(hi, INT64_MAX);
        if (all) {
            lo = std::max<__int128>(lo, all->lo);
            hi = std::min<__int128>(hi, all->hi);
        } else {
            lo = std::max<__int128>(lo, 0);
        }
        if (lo > hi) return false;
        return narrow(operand, type, {static_cast<std::int64_t>(lo), static_cast<std::int64_t>(hi)}, depth);
    }

    // ------------------------------------------------------------ what it reaches

    // A value by what it was computed from, which may be known better by now.
    ValueRange chained(const PtxStepOperand& operand) {
        looked_at_ = 0;
        return chained(operand, kDeep);
    }

    ValueRange chained(const PtxStepOperand& operand, int depth) {
        if (operand.reg == kNoRegister) return ValueRange::of(operand.number);
        const ValueRange known = known_.values[operand.reg];
        const PtxStep* const step = known_.computed_by[operand.reg];
        if (!step || depth == 0 || known.is_one() || ++looked_at_ > kMostLookedAt) return known;
        return narrower(
            known, computed(*step, [&](const PtxStepOperand& from) { return chained(from, depth - 1); }));
    }

    void note(const PtxStep& step) {
        const PtxSteps::Access& access = steps_.accesses[step.number];
        const KnownAt whole = step.guard ? known_ : KnownAt{};
        const bool happens = !step.guard || holds(step.guard->predicate, step.guard->when);
        const ValueRange address =
            happens ? add(64, chained(step.from[0]), ValueRange::of(step.offset)) : ValueRange::of(0);
        if (step.guard) known_ = whole;
        if (!happens) return;
        const auto addresses = as({64, false}, address);
        constexpr std::int64_t kHighest = std::int64_t{1} << 57;
        // Wider ones come of an index that may be any number of 32 bits, and say less than the buffer does
        // that the parameters lead to.
        constexpr std::int64_t kWidest = std::int64_t{1} << 31;
        if (access.bytes == 0 || address.is_any() || !addresses || addresses->hi >= kHighest ||
            addresses->hi - addresses->lo >= kWidest) {
            (access.written ? result_.written : result_.read).add(access.words);
            return;
        }
        const auto input = pointers_.of_access[step.number];
        const std::int64_t from = input ? stand_in(*input) : 0;
        const std::int64_t begin = addresses->lo - from;
        const std::int64_t end = addresses->hi - from + static_cast<std::int64_t>(access.bytes);
        // What is not near where it is to begin has come from elsewhere.
        if (input && (begin < -kApart / 2 || end > kApart / 2)) {
            (access.written ? result_.written : result_.read).add(access.words);
            return;
        }
        result_.ranges.push_back({begin, end, access.written, input});
    }

    static constexpr int kDeep = 12;

    const PtxSteps& steps_;
    const PtxPointers& pointers_;
    const std::vector<std::vector<RegisterId>>& readers_;
    const LaunchShape& shape_;
    const std::span<const std::uint64_t> inputs_;
    std::vector<Place> at_;      // where each block begins
    std::vector<char> is_open_;  // by block: what leads to it is no longer what it was
    KnownAt known_;              // at the step that is looked at
    PtxBounds::Answer result_;
    int looked_at_ = 0;
    int narrowed_ = 0;
};

}  // namespace

void AccessBounds::add(const AccessBounds& more) {
    ranges.insert(ranges.end(), more.ranges.begin(), more.ranges.end());
    read.add(more.read);
    written.add(more.written);
}

std::unique_ptr<const PtxBounds> PtxBounds::of(const PtxModuleText& module, const PtxBodies& kernel,
                                               std::span<const SeenAccess> accesses) {
    auto steps = PtxSteps::of(module, kernel, accesses);
    if (!steps) return nullptr;
    return std::unique_ptr<const PtxBounds>(new PtxBounds(std::move(*steps)));
}

PtxBounds::PtxBounds(PtxSteps steps)
    : steps_(std::move(steps)), pointers_(PtxPointers::of(steps_)), readers_(steps_.registers) {
    for (const auto& block : steps_.blocks) {
        for (const PtxStep& step : block) {
            if (step.result == kNoRegister) continue;
            const auto add = [&](const PtxStepOperand& from) {
                if (from.reg == kNoRegister) return;
                auto& readers = readers_[from.reg];
                if (std::ranges::find(readers, step.result) == readers.end()) readers.push_back(step.result);
            };
            std::ranges::for_each(step.from, add);
            if (step.beside) add(*step.beside);
        }
    }
}

PtxBounds::Answer PtxBounds::follow(const LaunchShape& shape, std::span<const std::uint64_t> inputs) const {
    return Run(steps_, pointers_, readers_, shape, inputs).answer();
}

AccessBounds PtxBounds::placed(const Answer& answer, std::span<const std::uint64_t> inputs) {
    AccessBounds bounds{{}, answer.read, answer.written};
    for (const RelativeRange& each : answer.ranges) {
        const std::uint64_t from = each.input ? inputs[*each.input] : 0;
        const AccessRange range{from + static_cast<std::uint64_t>(each.begin),
                                from + static_cast<std::uint64_t>(each.end), each.written};
        // Nothing is at either end of all addresses.
        if (range.begin < range.end) bounds.ranges.push_back(range);
    }
    return bounds;
}

}  // namespace lms::shim
