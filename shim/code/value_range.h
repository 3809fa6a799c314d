// Ranges of integers as a GPU computes them: modulo a power of two. Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace lms::code {

// What a register may hold: its bits are those of some number of [lo, hi]. Two numbers that differ by a
// multiple of 2^bits have the same bits, so a range goes on beyond what the type can hold: as s32 [-1, 3], as
// u32 the largest number and [0, 3]. A range is never empty.
struct ValueRange {
    std::int64_t lo, hi;

    // Whatever it may be.
    static constexpr ValueRange any() { return {INT64_MIN, INT64_MAX}; }
    static constexpr ValueRange of(std::int64_t value) { return {value, value}; }

    bool is_any() const { return lo == INT64_MIN && hi == INT64_MAX; }
    bool is_one() const { return lo == hi; }
    friend bool operator==(const ValueRange&, const ValueRange&) = default;
};

// How an instruction reads its operands and what it leaves.
struct IntegerType {
    unsigned bits;
    bool is_signed;
};

enum class Comparison : std::uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };
Comparison opposite(Comparison comparison);  // where it does not hold
Comparison mirrored(Comparison comparison);  // of the operands the other way round

// The numbers that such a type has for it: at most those of the type. Nothing where those do not fit: numbers
// of 64 bits above the largest signed one.
std::optional<ValueRange> as(IntegerType type, ValueRange range);

// Of the numbers that either may be, as registers of so many bits.
ValueRange joined(unsigned bits, ValueRange a, ValueRange b);

// What the instructions give, in registers of so many bits. Those that take a type read by it.
ValueRange add(unsigned bits, ValueRange a, ValueRange b);
ValueRange subtract(unsigned bits, ValueRange a, ValueRange b);
ValueRange multiply(unsigned bits, ValueRange a, ValueRange b);
ValueRange multiply_wide(IntegerType type, ValueRange a, ValueRange b);
ValueRange multiply_high(IntegerType type, ValueRange a, ValueRange b);
ValueRange divide(IntegerType type, ValueRange a, ValueRange b);
ValueRange remainder(IntegerType type, ValueRange a, ValueRange b);
ValueRange shift_left(unsigned bits, ValueRange a, ValueRange by);
ValueRange shift_right(IntegerType type, ValueRange a, ValueRange by);
// Bits [from, from + count), as a number of that type; of a signed one those above its own are its sign.
ValueRange extract(IntegerType type, ValueRange a, ValueRange from, ValueRange count);
ValueRange bit_and(unsigned bits, ValueRange a, ValueRange b);
ValueRange bit_or(unsigned bits, ValueRange a, ValueRange b);
ValueRange bit_xor(unsigned bits, ValueRange a, ValueRange b);
ValueRange bit_not(unsigned bits, ValueRange a);
ValueRange minimum(IntegerType type, ValueRange a, ValueRange b);
ValueRange maximum(IntegerType type, ValueRange a, ValueRange b);
ValueRange absolute(IntegerType type, ValueRange a);
ValueRange convert(IntegerType to, IntegerType from, ValueRange a);

// Where a comparison of `a` with `b` holds: what is left of `a`. Nothing: it cannot hold.
std::optional<ValueRange> where(Comparison comparison, IntegerType type, ValueRange a, ValueRange b);

}  // namespace lms::code
