#include "shim/code/ptx_narrowing.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace lms::code {

namespace {

// Values that a comparison bounds.
constexpr int kMostNarrowed = 64;

// Whether these numbers of a register, read as `to`, are the same ones read as `from`.
bool same_number(IntegerType from, IntegerType to, ValueRange range) {
    return from.is_signed == to.is_signed ||
           (range.lo >= 0 && range.hi <= static_cast<std::int64_t>(~std::uint64_t{0} >> (65 - to.bits)));
}

class Narrowing {
  public:
    explicit Narrowing(PtxKnown& known) : known_(known) {}

    // Leaves what is known where the predicate is so. False: it cannot be.
    bool holds(RegisterId predicate, bool when, int depth = PtxKnown::kDeep) {
        const PtxStep* const step = known_.at.computed_by[predicate];
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

    // All that was narrowed is as it was before.
    void take_back() {
        for (; !before_.empty(); before_.pop_back())
            known_.at.values[before_.back().first] = before_.back().second;
    }

  private:
    bool compared(const PtxStep& step, bool when) {
        const Comparison comparison = when ? step.comparison : opposite(step.comparison);
        const ValueRange a = known_.chained(step.from[0]);
        const ValueRange b = known_.chained(step.from[1]);
        const auto left = where(comparison, step.type, a, b);
        const auto right = where(mirrored(comparison), step.type, b, a);
        if (!left || !right) return false;
        narrowed_ = 0;
        return narrow(step.from[0], step.type, *left, PtxKnown::kDeep) &&
               narrow(step.from[1], step.type, *right, PtxKnown::kDeep);
    }

    // The operand's number of that type is in the range: so are those that it was computed from. False: it
    // cannot be.
    bool narrow(const PtxStepOperand& operand, IntegerType type, ValueRange to, int depth) {
        if (operand.reg == kNoRegister) return true;
        const auto wanted = as(type, to);
        if (!wanted) return true;
        const auto low =
            where(Comparison::GreaterEqual, type, known_.at.values[operand.reg], ValueRange::of(wanted->lo));
        const auto now = low ? where(Comparison::LessEqual, type, *low, ValueRange::of(wanted->hi)) : low;
        if (!now) return false;
        ValueRange& known = known_.at.values[operand.reg];
        before_.emplace_back(operand.reg, known);
        known = narrower(known, *now);
        const PtxStep* const step = known_.at.computed_by[operand.reg];
        if (!step || depth == 0 || ++narrowed_ > kMostNarrowed) return true;
        const auto result = as(type, *now);
        return !result || narrow_sources(*step, type, *result, depth - 1);
    }

    bool narrow_sources(const PtxStep& step, IntegerType type, ValueRange result, int depth) {
        const auto source = [&](std::size_t i) { return as(type, known_.chained(step.from[i])); };
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
                    const auto y = as({type.bits, true}, known_.chained(step.from[1 - i]));
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
                const ValueRange by = known_.chained(step.from[1]);
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
                    const auto x = as(type, known_.at.values[each.reg]);
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
            const auto by = as(shifts ? IntegerType{32, false} : type, known_.chained(step.from[1 - i]));
            if (!by || !by->is_one() || by->lo < (shifts ? 0 : 1) || (shifts && by->lo > 31)) continue;
            const __int128 factor = shifts ? static_cast<__int128>(1) << by->lo : by->lo;
            const auto x = as(type, known_.chained(step.from[i]));
            if (!x || x->is_any()) continue;
            __int128 least = 0;
            __int128 most = 0;
            if (step.what == PtxCompute::MultiplyAdd) {
                const auto c = as({type.bits, true}, known_.chained(step.from[2]));
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

    PtxKnown& known_;
    int narrowed_ = 0;
    std::vector<std::pair<RegisterId, ValueRange>> before_;  // what was narrowed, in order
};

}  // namespace

bool narrow_where(PtxKnown& known, RegisterId predicate, bool when) {
    return Narrowing(known).holds(predicate, when);
}

ValueRange selected(PtxKnown& known, const PtxStep& select) {
    const PtxStepOperand& predicate = select.from[2];
    std::optional<ValueRange> all;
    for (const bool first : {true, false}) {
        const PtxStepOperand& chosen = select.from[first ? 0 : 1];
        Narrowing narrowing(known);
        if (predicate.reg == kNoRegister || narrowing.holds(predicate.reg, first == predicate.when)) {
            const ValueRange value = known.chained(chosen);
            all = all ? joined(select.type.bits, *all, value) : value;
        }
        narrowing.take_back();
    }
    return all.value_or(ValueRange::any());
}

}  // namespace lms::code
