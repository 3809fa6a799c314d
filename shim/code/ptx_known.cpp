#include "shim/code/ptx_known.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace lms::code {

namespace {

// Steps that a value is looked up through.
constexpr int kMostLookedAt = 256;

const PtxStep* computed_by(const PtxStepOperand& operand, const KnownAt& known) {
    return operand.reg == kNoRegister ? nullptr : known.computed_by[operand.reg];
}

std::optional<std::int64_t> constant(const PtxStepOperand& operand, unsigned bits, const KnownAt& known) {
    const auto number = as({bits, true}, known.value(operand));
    return number && number->is_one() ? std::optional(number->lo) : std::nullopt;
}

bool reads(const PtxStep& step, RegisterId reg) {
    return std::ranges::any_of(step.from, [&](const PtxStepOperand& each) { return each.reg == reg; }) ||
           (step.beside && step.beside->reg == reg);
}

// Whether the operand is x / m, where x is `most` at most, both unsigned.
bool divides(const PtxStepOperand& operand, const PtxStepOperand& x, std::int64_t most, std::int64_t m,
             const KnownAt& known) {
    const PtxStep* step = computed_by(operand, known);
    if (step && step->what == PtxCompute::Divide) {
        // A signed division of what is negative as a signed number has a negative rest.
        return step->from[0].reg == x.reg && constant(step->from[1], step->type.bits, known) == m &&
               (!step->type.is_signed || most <= std::int64_t{INT64_MAX} >> (64 - step->type.bits));
    }
    std::int64_t shift = 0;
    if (step && step->what == PtxCompute::ShiftRight && !step->type.is_signed) {
        shift = constant(step->from[1], 32, known).value_or(-1);
        step = computed_by(step->from[0], known);
    }
    if (!step || step->from[0].reg != x.reg || shift < 0 || shift > 31) return false;
    const auto factor = as({step->type.bits, false}, known.value(step->from[1]));
    // The lower half of a product is the same for signed numbers.
    const bool is_unsigned = !step->type.is_signed || step->what == PtxCompute::Multiply;
    if (!factor || !factor->is_one() || step->type.bits > 32 || !is_unsigned) return false;
    const __int128 whole = static_cast<__int128>(most) * factor->lo;
    if (step->what == PtxCompute::MultiplyHigh) {
        shift += step->type.bits;
    } else if (step->what != PtxCompute::Multiply || whole >= static_cast<__int128>(1) << step->type.bits) {
        return false;
    }
    // Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
    const __int128 unit = static_cast<__int128>(1) << shift;
    const __int128 over = static_cast<__int128>(factor->lo) * m - unit;
    return over >= 0 && over * most < unit;
}

// x - x / m * m, as compilers write it where m is a constant: they multiply by a rounded-up 2^n / m, and
// shift by n. Of unsigned numbers.
std::optional<ValueRange> rest_of_division(const PtxStep& step, const KnownAt& known) {
    const PtxStepOperand* x = &step.from[0];
    const PtxStep* product = nullptr;
    PtxStepOperand quotient;
    std::int64_t m = 0;
    if (step.what == PtxCompute::Subtract) {
        product = computed_by(step.from[1], known);
        if (!product || product->what != PtxCompute::Multiply) return std::nullopt;
        quotient = product->from[0];
        m = constant(product->from[1], step.type.bits, known).value_or(0);
    } else if (step.what == PtxCompute::MultiplyAdd) {
        x = &step.from[2];
        quotient = step.from[0];
        m = -constant(step.from[1], step.type.bits, known).value_or(0);
    }
    const auto number = m > 1 ? as({step.type.bits, false}, known.value(*x)) : std::nullopt;
    if (!number || !divides(quotient, *x, number->hi, m, known)) return std::nullopt;
    return ValueRange{0, std::min(number->hi, m - 1)};
}

// x - (x & -2^k), as LLVM writes the rest of a division by 2^k: of the mask it leaves out bits that x does
// not have, and to a negative x it adds 2^k - 1 before.
std::optional<ValueRange> rest_of_mask(const PtxStep& step, const KnownAt& known) {
    const RegisterId x = step.from[0].reg;
    if (step.what != PtxCompute::Subtract || x == kNoRegister) return std::nullopt;
    const PtxStep* const masked = computed_by(step.from[1], known);
    if (!masked || masked->what != PtxCompute::And || step.type.bits > 32) return std::nullopt;
    const IntegerType type{step.type.bits, false};
    const auto mask = as(type, known.value(masked->from[1]));
    const auto number = as(type, known.value(masked->from[0]));
    if (!mask || !number || !mask->is_one() || mask->lo == 0) return std::nullopt;
    const std::int64_t unit = mask->lo & -mask->lo;
    const auto has_bits = std::bit_ceil(static_cast<std::uint64_t>(number->hi) + 1) - 1;
    if ((has_bits & ~static_cast<std::uint64_t>(mask->lo | (unit - 1))) != 0) return std::nullopt;
    if (masked->from[0].reg == x) return ValueRange{0, std::min(number->hi, unit - 1)};
    const PtxStep* const sum = computed_by(masked->from[0], known);
    if (!sum || sum->what != PtxCompute::Add || sum->from[0].reg != x) return std::nullopt;
    const auto more = as(type, known.value(sum->from[1]));
    if (!more || more->hi >= unit) return std::nullopt;
    return ValueRange{-more->hi, unit - 1};
}

}  // namespace

ValueRange narrower(ValueRange a, ValueRange b) {
    const auto width = [](ValueRange range) {
        return static_cast<std::uint64_t>(range.hi) - static_cast<std::uint64_t>(range.lo);
    };
    return width(b) < width(a) ? b : a;
}

template <typename ValueOf>
ValueRange PtxKnown::computed(const PtxStep& step, ValueOf&& value_of) const {
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

ValueRange PtxKnown::input(const PtxStep& step) const {
    if (pointers_.moves_along[step.number]) return ValueRange::of(stand_in(step.number));
    const auto given = static_cast<std::int64_t>(inputs_[step.number]);
    const unsigned bits = step.type.bits;
    if (bits == 64) return ValueRange::of(given);
    const std::int64_t turn = std::int64_t{1} << bits;
    const bool is_negative = step.type.is_signed && given >= turn / 2;
    return ValueRange::of(is_negative ? given - turn : given);
}

void PtxKnown::pass(const PtxStep& step) {
    ValueRange result = computed(step, [&](const PtxStepOperand& from) { return at.value(from); });
    for (const auto& rest : {rest_of_division(step, at), rest_of_mask(step, at)})
        if (rest) result = narrower(result, *rest);
    const RegisterId reg = step.result;
    const bool maybe = step.guard.has_value();
    if (maybe) result = joined(64, at.values[reg], result);
    at.values[reg] = result;
    at.computed_by[reg] = maybe ? nullptr : &step;
    for (const RegisterId reader : readers_[reg]) {
        const PtxStep* const by = at.computed_by[reader];
        if (by && reads(*by, reg)) at.computed_by[reader] = nullptr;
    }
}

ValueRange PtxKnown::chained(const PtxStepOperand& operand) {
    looked_at_ = 0;
    return chained(operand, kDeep);
}

ValueRange PtxKnown::chained(const PtxStepOperand& operand, int depth) {
    const ValueRange known = at.value(operand);
    const PtxStep* const step = computed_by(operand, at);
    if (!step || depth == 0 || known.is_one() || ++looked_at_ > kMostLookedAt) return known;
    return narrower(known,
                    computed(*step, [&](const PtxStepOperand& from) { return chained(from, depth - 1); }));
}

void PtxKnown::look_at_copies() {
    for (std::size_t i = 0; i < at.values.size(); ++i) {
        const PtxStep* const step = at.computed_by[i];
        if (step && step->what == PtxCompute::Move)
            at.values[i] = narrower(at.values[i], at.value(step->from[0]));
    }
}

}  // namespace lms::code
