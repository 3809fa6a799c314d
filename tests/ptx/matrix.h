// Matrices of numbers of any type a tensor core takes, and the PTX text around them.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace simcuda::testing {

inline constexpr std::string_view kMatrixHead = ".version 8.4\n.target sm_90\n.address_size 64\n";

struct Number {
    std::string_view name;
    unsigned bits;
    int exponent_bits = 0;  // 0: an integer
    int fraction_bits = 0;
    bool is_signed = true;
};
inline constexpr Number kF16{"f16", 16, 5, 10}, kBf16{"bf16", 16, 8, 7}, kTf32{"tf32", 32, 8, 23},
    kF32{"f32", 32, 8, 23}, kF64{"f64", 64, 11, 52}, kE4m3{"e4m3", 8, 4, 3}, kE5m2{"e5m2", 8, 5, 2},
    kU8{"u8", 8, 0, 0, false}, kS8{"s8", 8}, kU4{"u4", 4, 0, 0, false}, kS4{"s4", 4},
    kB1{"b1", 1, 0, 0, false}, kS32{"s32", 32};

// A value the type holds exactly.
inline std::uint64_t encode(const Number& type, double value) {
    const std::uint64_t mask = type.bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << type.bits) - 1;
    if (!type.exponent_bits) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) & mask;
    const std::uint64_t sign = std::uint64_t{std::signbit(value)} << (type.bits - 1);
    if (value == 0) return sign;
    const int exponent = std::ilogb(value), bias = (1 << (type.exponent_bits - 1)) - 1;
    const auto fraction = static_cast<std::uint64_t>(
        std::ldexp(std::fabs(value), type.fraction_bits - exponent) - std::ldexp(1, type.fraction_bits));
    return sign | static_cast<std::uint64_t>(exponent + bias) << type.fraction_bits | fraction;
}

inline double decode(const Number& type, std::uint64_t bits) {
    if (!type.exponent_bits)
        return type.is_signed ? static_cast<double>(static_cast<std::int64_t>(bits << (64 - type.bits)) >>
                                                    (64 - type.bits))
                              : static_cast<double>(bits);
    const int bias = (1 << (type.exponent_bits - 1)) - 1;
    const double sign = bits >> (type.bits - 1) & 1 ? -1 : 1;
    const auto exponent = static_cast<int>(bits >> type.fraction_bits & ((1u << type.exponent_bits) - 1));
    const auto fraction = static_cast<double>(bits & ((std::uint64_t{1} << type.fraction_bits) - 1));
    if (exponent == (1 << type.exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
    if (!exponent) return sign * std::ldexp(fraction, 1 - bias - type.fraction_bits);
    return sign *
           std::ldexp(fraction + std::ldexp(1, type.fraction_bits), exponent - bias - type.fraction_bits);
}

inline void put(void* memory, const Number& type, std::size_t index, double value) {
    auto* bytes = static_cast<std::uint8_t*>(memory);
    const std::uint64_t raw = encode(type, value);
    const std::size_t bit = index * type.bits;
    if (type.bits >= 8) {
        std::memcpy(bytes + bit / 8, &raw, type.bits / 8);
    } else {
        const auto mask = static_cast<std::uint8_t>(((1u << type.bits) - 1) << bit % 8);
        bytes[bit / 8] = static_cast<std::uint8_t>((bytes[bit / 8] & ~mask) | (raw << bit % 8 & mask));
    }
}

inline double get(const void* memory, const Number& type, std::size_t index) {
    const auto* bytes = static_cast<const std::uint8_t*>(memory);
    const std::size_t bit = index * type.bits;
    if (type.bits < 8) return decode(type, bytes[bit / 8] >> bit % 8 & ((1u << type.bits) - 1));
    std::uint64_t raw = 0;
    std::memcpy(&raw, bytes + bit / 8, type.bits / 8);
    return decode(type, raw);
}

struct Matrix {
    unsigned rows, columns;
    std::vector<double> values;
    Matrix(unsigned r, unsigned c) : rows(r), columns(c), values(std::size_t{r} * c) {}
    double& at(unsigned r, unsigned c) { return values[std::size_t{r} * columns + c]; }
};

inline Matrix random_matrix(unsigned rows, unsigned columns, const Number& type, std::mt19937& random) {
    Matrix matrix(rows, columns);
    const int low = !type.is_signed ? 0 : &type == &kS8 ? -128 : -8;
    const int high = type.bits == 1                        ? 1
                     : type.bits == 4                      ? low + 15
                     : type.exponent_bits || type.bits > 8 ? 8
                                                           : low + 255;
    for (double& value : matrix.values)
        value = low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    return matrix;
}

inline Matrix product(Matrix& a, Matrix& b, Matrix& c, std::string_view operation = "") {
    Matrix d(a.rows, b.columns);
    for (unsigned i = 0; i < a.rows; ++i)
        for (unsigned j = 0; j < b.columns; ++j) {
            d.at(i, j) = c.at(i, j);
            for (unsigned k = 0; k < a.columns; ++k)
                d.at(i, j) += operation == "xor" ? a.at(i, k) != b.at(k, j) : a.at(i, k) * b.at(k, j);
        }
    return d;
}

struct Shape {
    unsigned m, n, k;
};

inline std::string shape_name(Shape s) {
    return fmt::format("m{}n{}k{}", s.m, s.n, s.k);
}

inline std::string registers(char name, unsigned count) {
    std::string text;
    for (unsigned i = 0; i < count; ++i) text += fmt::format("{}%{}{}", i ? ", " : "", name, i);
    return "{" + text + "}";
}

}  // namespace simcuda::testing
