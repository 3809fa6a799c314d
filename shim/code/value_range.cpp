#include "shim/code/value_range.h"

#include <algorithm>
#include <bit>

namespace lms::code {

namespace {

using Wide = __int128;

constexpr Wide one_of(unsigned bits) {
    return Wide{1} << bits;
}

struct WideRange {
    Wide lo, hi;
};

constexpr Wide least(IntegerType type) {
    return type.is_signed ? -one_of(type.bits - 1) : 0;
}
constexpr Wide most(IntegerType type) {
    return type.is_signed ? one_of(type.bits - 1) - 1 : one_of(type.bits) - 1;
}

// As numbers of that type; all of them where the range goes round its end.
WideRange numbers(IntegerType type, ValueRange range) {
    const Wide turn = one_of(type.bits);
    const Wide below = Wide{range.lo} - least(type);
    const Wide turns = below >= 0 ? below / turn : -((-below + turn - 1) / turn);
    const WideRange moved{Wide{range.lo} - turns * turn, Wide{range.hi} - turns * turn};
    if (moved.hi > most(type)) return {least(type), most(type)};
    return moved;
}

// Such a range as a register of so many bits, begun within the signed numbers.
ValueRange stored(unsigned bits, WideRange range) {
    const Wide turn = one_of(bits);
    if (range.hi - range.lo >= turn - 1) return ValueRange::any();
    const Wide least_one = -one_of(bits - 1);
    const Wide below = range.lo - least_one;
    const Wide turns = below >= 0 ? below / turn : -((-below + turn - 1) / turn);
    range.lo -= turns * turn;
    range.hi -= turns * turn;
    if (range.hi > INT64_MAX) return ValueRange::any();
    return {static_cast<std::int64_t>(range.lo), static_cast<std::int64_t>(range.hi)};
}

// The least and the most of four products.
std::optional<WideRange> product(WideRange a, WideRange b) {
    // Of factors below this none leaves 128 bits.
    constexpr Wide kMost = Wide{1} << 63;
    if (a.lo < -kMost || a.hi > kMost || b.lo < -kMost || b.hi > kMost) return std::nullopt;
    const auto [lo, hi] = std::minmax({a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi});
    return WideRange{lo, hi};
}

WideRange wide(ValueRange range) {
    return {range.lo, range.hi};
}

// The smallest 2^n - 1 that is no less.
Wide filled(Wide value) {
    Wide result = 0;
    while (result < value) result = result * 2 + 1;
    return result;
}

}  // namespace

Comparison opposite(Comparison comparison) {
    switch (comparison) {
        case Comparison::Equal:
            return Comparison::NotEqual;
        case Comparison::NotEqual:
            return Comparison::Equal;
        case Comparison::Less:
            return Comparison::GreaterEqual;
        case Comparison::LessEqual:
            return Comparison::Greater;
        case Comparison::Greater:
            return Comparison::LessEqual;
        case Comparison::GreaterEqual:
            break;
    }
    return Comparison::Less;
}

Comparison mirrored(Comparison comparison) {
    switch (comparison) {
        case Comparison::Less:
            return Comparison::Greater;
        case Comparison::LessEqual:
            return Comparison::GreaterEqual;
        case Comparison::Greater:
            return Comparison::Less;
        case Comparison::GreaterEqual:
            return Comparison::LessEqual;
        case Comparison::Equal:
        case Comparison::NotEqual:
            break;
    }
    return comparison;
}

std::optional<ValueRange> as(IntegerType type, ValueRange range) {
    const WideRange all = numbers(type, range);
    if (all.hi > INT64_MAX) return std::nullopt;
    return ValueRange{static_cast<std::int64_t>(all.lo), static_cast<std::int64_t>(all.hi)};
}

ValueRange joined(unsigned bits, ValueRange a, ValueRange b) {
    if (a == b) return a;
    if (a.is_any() || b.is_any()) return ValueRange::any();
    // Both begun within the signed numbers.
    const ValueRange x = stored(bits, wide(a));
    const ValueRange y = stored(bits, wide(b));
    if (x.is_any() || y.is_any()) return ValueRange::any();
    return stored(bits, {std::min(x.lo, y.lo), std::max(x.hi, y.hi)});
}

ValueRange add(unsigned bits, ValueRange a, ValueRange b) {
    if (a.is_any() || b.is_any()) return ValueRange::any();
    return stored(bits, {Wide{a.lo} + b.lo, Wide{a.hi} + b.hi});
}

ValueRange subtract(unsigned bits, ValueRange a, ValueRange b) {
    if (a.is_any() || b.is_any()) return ValueRange::any();
    return stored(bits, {Wide{a.lo} - b.hi, Wide{a.hi} - b.lo});
}

ValueRange multiply(unsigned bits, ValueRange a, ValueRange b) {
    if (a == ValueRange::of(0) || b == ValueRange::of(0)) return ValueRange::of(0);
    if (a.is_any() || b.is_any()) return ValueRange::any();
    const auto all = product(wide(a), wide(b));
    return all ? stored(bits, *all) : ValueRange::any();
}

ValueRange multiply_wide(IntegerType type, ValueRange a, ValueRange b) {
    const auto all = product(numbers(type, a), numbers(type, b));
    return all ? stored(2 * type.bits, *all) : ValueRange::any();
}

ValueRange multiply_high(IntegerType type, ValueRange a, ValueRange b) {
    const auto all = product(numbers(type, a), numbers(type, b));
    if (!all) return ValueRange::any();
    return stored(type.bits, {all->lo >> type.bits, all->hi >> type.bits});
}

ValueRange divide(IntegerType type, ValueRange a, ValueRange b) {
    const WideRange x = numbers(type, a);
    const WideRange y = numbers(type, b);
    if (y.lo <= 0) return ValueRange::any();
    const auto [lo, hi] = std::minmax({x.lo / y.lo, x.lo / y.hi, x.hi / y.lo, x.hi / y.hi});
    return stored(type.bits, {lo, hi});
}

ValueRange remainder(IntegerType type, ValueRange a, ValueRange b) {
    const WideRange x = numbers(type, a);
    const WideRange y = numbers(type, b);
    if (y.lo <= 0) return ValueRange::any();
    if (x.lo >= 0 && x.hi < y.lo) return stored(type.bits, x);
    return stored(type.bits,
                  {x.lo < 0 ? std::max(x.lo, 1 - y.hi) : 0, x.hi > 0 ? std::min(x.hi, y.hi - 1) : 0});
}

ValueRange shift_left(unsigned bits, ValueRange a, ValueRange by) {
    const WideRange n = numbers({32, false}, by);
    if (n.lo != n.hi) return ValueRange::any();
    if (n.lo >= bits) return ValueRange::of(0);
    if (a.is_any() || n.lo >= 62) return ValueRange::any();
    return multiply(bits, a, ValueRange::of(std::int64_t{1} << static_cast<unsigned>(n.lo)));
}

ValueRange shift_right(IntegerType type, ValueRange a, ValueRange by) {
    const WideRange x = numbers(type, a);
    const WideRange n = numbers({32, false}, by);
    const auto shifted = [&](Wide value, Wide count) {
        return value >> static_cast<unsigned>(std::min<Wide>(count, type.bits));
    };
    const auto [lo, hi] =
        std::minmax({shifted(x.lo, n.lo), shifted(x.lo, n.hi), shifted(x.hi, n.lo), shifted(x.hi, n.hi)});
    return stored(type.bits, {lo, hi});
}

ValueRange extract(IntegerType type, ValueRange a, ValueRange from, ValueRange count) {
    if (!from.is_one() || !count.is_one() || from.lo < 0 || from.lo > 255 || count.lo < 0 || count.lo > 62)
        return ValueRange::any();
    const std::int64_t end = std::int64_t{1} << static_cast<unsigned>(count.lo);
    const ValueRange bits = bit_and(type.bits, shift_right(type, a, from), ValueRange::of(end - 1));
    // The highest one is the sign.
    if (!type.is_signed || count.lo == 0 || count.lo >= type.bits || bits.hi < end / 2) return bits;
    return {-end / 2, end / 2 - 1};
}

ValueRange bit_and(unsigned bits, ValueRange a, ValueRange b) {
    WideRange x = numbers({bits, false}, a);
    WideRange mask = numbers({bits, false}, b);
    if (x.lo == x.hi) std::swap(x, mask);
    if (mask.lo == mask.hi) {
        // Below the lowest bit of the mask nothing counts. If the rest of it has no gaps up to the highest
        // bit in which the numbers differ, the result grows with them.
        const Wide free = filled(x.lo ^ x.hi);
        const Wide low = mask.lo & free;
        if ((low | (low == 0 ? free : (low & -low) - 1)) == free)
            return stored(bits, {x.lo & mask.lo, x.hi & mask.lo});
    }
    return stored(bits, {0, std::min(x.hi, mask.hi)});
}

ValueRange bit_or(unsigned bits, ValueRange a, ValueRange b) {
    const WideRange x = numbers({bits, false}, a);
    const WideRange y = numbers({bits, false}, b);
    return stored(bits, {std::max(x.lo, y.lo), std::min(x.hi + y.hi, filled(std::max(x.hi, y.hi)))});
}

ValueRange bit_xor(unsigned bits, ValueRange a, ValueRange b) {
    const WideRange x = numbers({bits, false}, a);
    const WideRange y = numbers({bits, false}, b);
    if (x.lo == x.hi && y.lo == y.hi) return stored(bits, {x.lo ^ y.lo, x.lo ^ y.lo});
    return stored(bits, {0, std::min(x.hi + y.hi, filled(std::max(x.hi, y.hi)))});
}

ValueRange bit_not(unsigned bits, ValueRange a) {
    if (a.is_any()) return a;
    return stored(bits, {-1 - Wide{a.hi}, -1 - Wide{a.lo}});
}

ValueRange minimum(IntegerType type, ValueRange a, ValueRange b) {
    const WideRange x = numbers(type, a);
    const WideRange y = numbers(type, b);
    return stored(type.bits, {std::min(x.lo, y.lo), std::min(x.hi, y.hi)});
}

ValueRange maximum(IntegerType type, ValueRange a, ValueRange b) {
    const WideRange x = numbers(type, a);
    const WideRange y = numbers(type, b);
    return stored(type.bits, {std::max(x.lo, y.lo), std::max(x.hi, y.hi)});
}

ValueRange absolute(IntegerType type, ValueRange a) {
    const WideRange x = numbers({type.bits, true}, a);
    if (x.lo >= 0) return stored(type.bits, x);
    if (x.hi <= 0) return stored(type.bits, {-x.hi, -x.lo});
    return stored(type.bits, {0, std::max(-x.lo, x.hi)});
}

ValueRange convert(IntegerType to, IntegerType from, ValueRange a) {
    return stored(to.bits, numbers(from, a));
}

std::optional<ValueRange> where(Comparison comparison, IntegerType type, ValueRange a, ValueRange b) {
    WideRange x = numbers(type, a);
    const WideRange y = numbers(type, b);
    switch (comparison) {
        case Comparison::Equal:
            x = {std::max(x.lo, y.lo), std::min(x.hi, y.hi)};
            break;
        case Comparison::NotEqual:
            if (y.lo == y.hi && x.lo == y.lo) ++x.lo;
            if (y.lo == y.hi && x.hi == y.lo) --x.hi;
            break;
        case Comparison::Less:
            x.hi = std::min(x.hi, y.hi - 1);
            break;
        case Comparison::LessEqual:
            x.hi = std::min(x.hi, y.hi);
            break;
        case Comparison::Greater:
            x.lo = std::max(x.lo, y.lo + 1);
            break;
        case Comparison::GreaterEqual:
            x.lo = std::max(x.lo, y.lo);
            break;
    }
    if (x.lo > x.hi) return std::nullopt;
    // Half of the numbers of 64 bits has no name here as it is: those are left as they were.
    const ValueRange result = stored(type.bits, x);
    return result.is_any() ? a : result;
}

}  // namespace lms::code
