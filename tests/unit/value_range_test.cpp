// Ranges of numbers of 8 bits against every number in them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "shim/code/value_range.h"

using namespace lms::code;

namespace {

constexpr IntegerType kSigned{8, true}, kUnsigned{8, false};

// As registers of 8 bits may be given: within either type, round their ends, and all.
const std::vector<ValueRange>& samples() {
    static const std::vector<ValueRange> all = [] {
        constexpr int kEnds[] = {-300, -256, -129, -128, -127, -100, -17, -2,  -1,  0,   1,   2,   3,   7,
                                 8,    15,   31,   64,   100,  126,  127, 128, 129, 200, 254, 255, 256, 300};
        std::vector<ValueRange> ranges{ValueRange::any()};
        for (const int lo : kEnds) {
            for (const int length : {0, 1, 2, 5, 16, 40, 100, 127, 128, 200, 254, 255, 256})
                ranges.push_back({lo, lo + length});
        }
        return ranges;
    }();
    return all;
}

int number(IntegerType type, std::int64_t bits) {
    return type.is_signed ? static_cast<std::int8_t>(bits) : static_cast<std::uint8_t>(bits);
}

// The registers that a range stands for.
std::vector<std::uint8_t> registers(ValueRange range) {
    std::vector<std::uint8_t> all;
    const bool is_any = range.is_any() || range.hi - range.lo >= 255;
    for (int i = 0; i < 256; ++i) {
        const auto offset = static_cast<std::uint8_t>(i - static_cast<int>(is_any ? 0 : range.lo & 255));
        if (is_any || offset <= range.hi - range.lo) all.push_back(static_cast<std::uint8_t>(i));
    }
    return all;
}

bool has(unsigned bits, ValueRange range, std::int64_t value) {
    if (range.is_any()) return true;
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
    return ((static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(range.lo)) & mask) <=
           static_cast<std::uint64_t>(range.hi) - static_cast<std::uint64_t>(range.lo);
}

// Nothing: it cannot be.
using Binary = std::function<std::optional<ValueRange>(ValueRange, ValueRange)>;
using Of = std::function<std::optional<std::int64_t>(int, int)>;

// Every result of two numbers read as `type` is in what the function says, in registers of `bits`.
void check(const char* name, IntegerType type, unsigned bits, const Binary& function, const Of& of) {
    std::vector<std::vector<std::uint8_t>> sets;
    for (const ValueRange& each : samples()) sets.push_back(registers(each));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < sets.size(); ++i) {
        for (std::size_t j = i % 3; j < sets.size(); j += 3) {
            const std::optional<ValueRange> result = function(samples()[i], samples()[j]);
            if (result && result->is_any()) continue;
            // Of the sets some, and always their ends.
            const auto each = [](const std::vector<std::uint8_t>& set, auto&& visit) {
                const std::size_t step = set.size() > 24 ? 7 : 1;
                for (std::size_t at = 0; at < set.size(); at += step) visit(set[at]);
                visit(set.back());
            };
            each(sets[i], [&](std::uint8_t x) {
                each(sets[j], [&](std::uint8_t y) {
                    const auto value = of(number(type, x), number(type, y));
                    if (!value || (result && has(bits, *result, *value))) return;
                    if (wrong++ == 0)
                        FAIL_CHECK(name << " of " << int{x} << " and " << int{y} << ", of ["
                                        << samples()[i].lo << ", " << samples()[i].hi << "] and ["
                                        << samples()[j].lo << ", " << samples()[j].hi << "]: " << *value
                                        << " is not in [" << (result ? result->lo : 1) << ", "
                                        << (result ? result->hi : 0) << "]");
                });
            });
        }
    }
    CHECK(wrong == 0);
}

bool holds(Comparison comparison, int a, int b) {
    switch (comparison) {
        case Comparison::Equal:
            return a == b;
        case Comparison::NotEqual:
            return a != b;
        case Comparison::Less:
            return a < b;
        case Comparison::LessEqual:
            return a <= b;
        case Comparison::Greater:
            return a > b;
        case Comparison::GreaterEqual:
            break;
    }
    return a >= b;
}

}  // namespace

TEST_CASE("value ranges: what two registers give") {
    for (const IntegerType type : {kSigned, kUnsigned}) {
        const auto plain = [&](const char* name, ValueRange (*function)(unsigned, ValueRange, ValueRange),
                               auto&& of) {
            check(
                name, type, 8, [&](ValueRange a, ValueRange b) { return function(8, a, b); },
                [&](int a, int b) -> std::optional<std::int64_t> { return of(a, b); });
        };
        const auto typed = [&](const char* name, unsigned bits,
                               ValueRange (*function)(IntegerType, ValueRange, ValueRange), auto&& of) {
            check(
                name, type, bits, [&](ValueRange a, ValueRange b) { return function(type, a, b); },
                [&](int a, int b) -> std::optional<std::int64_t> { return of(a, b); });
        };
        plain("add", add, [](int a, int b) { return a + b; });
        plain("subtract", subtract, [](int a, int b) { return a - b; });
        plain("multiply", multiply, [](int a, int b) { return a * b; });
        plain("and", bit_and, [](int a, int b) { return a & b; });
        plain("or", bit_or, [](int a, int b) { return a | b; });
        plain("xor", bit_xor, [](int a, int b) { return a ^ b; });
        typed("multiply wide", 16, multiply_wide, [](int a, int b) { return a * b; });
        typed("multiply high", 8, multiply_high, [](int a, int b) { return (a * b) >> 8; });
        typed("minimum", 8, minimum, [](int a, int b) { return std::min(a, b); });
        typed("maximum", 8, maximum, [](int a, int b) { return std::max(a, b); });
        const auto unless_zero = [](auto&& of) {
            return
                [=](int a, int b) { return b == 0 ? std::nullopt : std::optional<std::int64_t>(of(a, b)); };
        };
        check(
            "divide", type, 8, [&](ValueRange a, ValueRange b) { return divide(type, a, b); },
            unless_zero([](int a, int b) { return a / b; }));
        check(
            "remainder", type, 8, [&](ValueRange a, ValueRange b) { return remainder(type, a, b); },
            unless_zero([](int a, int b) { return a % b; }));
        plain("joined", joined, [](int a, int) { return a; });
        plain("joined", joined, [](int, int b) { return b; });
        plain(
            "not", [](unsigned bits, ValueRange a, ValueRange) { return bit_not(bits, a); },
            [](int a, int) { return ~a; });
        typed(
            "absolute", 8, [](IntegerType, ValueRange a, ValueRange) { return absolute(kSigned, a); },
            [](int a, int) { return std::abs(int{static_cast<std::int8_t>(a)}); });
        for (const IntegerType to :
             {IntegerType{16, true}, IntegerType{16, false}, IntegerType{4, true}, IntegerType{64, false}}) {
            check(
                "convert", type, std::min(to.bits, 16u),
                [&](ValueRange a, ValueRange) { return convert(to, type, a); },
                [](int a, int) -> std::optional<std::int64_t> { return a; });
        }
    }
}

// The count is of 32 bits.
TEST_CASE("value ranges: shifts") {
    for (const IntegerType type : {kSigned, kUnsigned}) {
        std::size_t wrong = 0;
        for (const ValueRange& range : samples()) {
            for (int from = 0; from < 12; ++from) {
                for (int to = from; to < 12; ++to) {
                    const ValueRange left = shift_left(8, range, {from, to});
                    const ValueRange right = shift_right(type, range, {from, to});
                    for (const std::uint8_t x : registers(range)) {
                        for (int by = from; by <= to; ++by) {
                            wrong += !has(8, left, by >= 8 ? 0 : x << by);
                            wrong += !has(8, right, number(type, x) >> by);
                        }
                    }
                }
            }
            // Counts that are large as unsigned numbers.
            const ValueRange far = shift_right(type, range, {-2, 3});
            for (const std::uint8_t x : registers(range)) wrong += !has(8, far, number(type, x) < 0 ? -1 : 0);
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("value ranges: where a comparison holds") {
    for (const IntegerType type : {kSigned, kUnsigned}) {
        for (int i = 0; i < 6; ++i) {
            const auto comparison = static_cast<Comparison>(i);
            check(
                "where", type, 8, [&](ValueRange a, ValueRange b) { return where(comparison, type, a, b); },
                [&](int a, int b) {
                    return holds(comparison, a, b) ? std::optional<std::int64_t>(a) : std::nullopt;
                });
            for (int a = -128; a < 128; ++a)
                CHECK(holds(opposite(comparison), a, 5) == !holds(comparison, a, 5));
        }
    }
}

TEST_CASE("value ranges: numbers of a type") {
    for (const IntegerType type : {kSigned, kUnsigned}) {
        for (const ValueRange& range : samples()) {
            const auto all = as(type, range);
            REQUIRE(all);
            std::size_t wrong = 0;
            for (const std::uint8_t x : registers(range))
                wrong += number(type, x) < all->lo || number(type, x) > all->hi;
            CHECK(wrong == 0);
        }
    }
    CHECK(!as({64, false}, {-1, 1}));
    CHECK(!as({64, false}, ValueRange::any()));
    CHECK(as({64, true}, ValueRange::any()) == ValueRange::any());
}

TEST_CASE("value ranges: bits of a number") {
    std::size_t wrong = 0;
    for (const ValueRange& range : samples()) {
        for (int from = 0; from < 10; ++from) {
            for (int count = 0; count < 10; ++count) {
                const ValueRange result =
                    extract(kUnsigned, range, ValueRange::of(from), ValueRange::of(count));
                for (const std::uint8_t x : registers(range))
                    wrong += !has(8, result, (x >> from) & ((1 << count) - 1));
                const ValueRange with_sign =
                    extract(kSigned, range, ValueRange::of(from), ValueRange::of(count));
                for (const std::uint8_t x : registers(range)) {
                    const int bits = (static_cast<std::int8_t>(x) >> from) & ((1 << count) - 1);
                    const bool is_negative = count > 0 && count < 8 && bits >> (count - 1) != 0;
                    wrong += !has(8, with_sign, bits - (is_negative ? 1 << count : 0));
                }
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(extract({32, false}, ValueRange::any(), ValueRange::of(3), ValueRange::of(4)) == ValueRange{0, 15});
    CHECK(extract({32, true}, ValueRange::any(), ValueRange::of(3), ValueRange::of(4)) == ValueRange{-8, 7});
    CHECK(extract({32, true}, {0, 1 << 20}, ValueRange::of(22), ValueRange::of(1)) == ValueRange::of(0));
    CHECK(extract({32, false}, ValueRange::any(), {3, 4}, ValueRange::of(4)).is_any());
}

// None is larger than it needs to be, of these.
TEST_CASE("value ranges: what is exact") {
    CHECK(add(32, {0, 7}, {-3, 4}) == ValueRange{-3, 11});
    CHECK(multiply(32, {-2, 3}, ValueRange::of(4)) == ValueRange{-8, 12});
    CHECK(multiply(32, ValueRange::any(), ValueRange::of(0)) == ValueRange::of(0));
    CHECK(multiply_wide({32, true}, {0, 1000}, ValueRange::of(-4)) == ValueRange{-4000, 0});
    CHECK(divide({32, false}, {0, 1000}, ValueRange::of(7)) == ValueRange{0, 142});
    CHECK(remainder({32, false}, {0, 1000}, ValueRange::of(7)) == ValueRange{0, 6});
    CHECK(remainder({32, true}, {-3, 1000}, ValueRange::of(7)) == ValueRange{-3, 6});
    CHECK(shift_left(64, {1, 3}, ValueRange::of(4)) == ValueRange{16, 48});
    CHECK(shift_right({32, true}, {-8, 8}, ValueRange::of(1)) == ValueRange{-4, 4});
    CHECK(bit_and(32, {0, 100}, ValueRange::of(-4)) == ValueRange{0, 100});
    CHECK(bit_and(32, {3, 102}, ValueRange::of(-4)) == ValueRange{0, 100});
    CHECK(bit_and(32, ValueRange::any(), ValueRange::of(31)) == ValueRange{0, 31});
    CHECK(bit_or(32, {0, 15}, {16, 16}) == ValueRange{16, 31});
    CHECK(minimum({32, true}, ValueRange::any(), {0, 9}) == ValueRange{INT32_MIN, 9});
    CHECK(convert({64, true}, {32, true}, {-5, 5}) == ValueRange{-5, 5});
    CHECK(where(Comparison::Less, {32, true}, ValueRange::any(), {0, 9}) == ValueRange{INT32_MIN, 8});
    CHECK(where(Comparison::Less, {32, false}, {0, 100}, {0, 9}) == ValueRange{0, 8});
    CHECK(!where(Comparison::Less, {32, false}, {9, 100}, {0, 9}));
    CHECK(where(Comparison::NotEqual, {32, false}, {0, 9}, ValueRange::of(9)) == ValueRange{0, 8});
}
