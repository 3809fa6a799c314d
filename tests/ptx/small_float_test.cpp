// cvt to and from floats of 8 bits, and to tf32.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "tests/ptx/instructions.h"

namespace simcuda::testing {
namespace {

// A format by its definition: all its values can be listed.
struct Format {
    const char* name;
    int fraction_bits, bias;
    unsigned largest;  // the code of the largest finite number
    double value(unsigned code) const {
        const unsigned magnitude = code & 0x7f, fraction = magnitude & ((1u << fraction_bits) - 1);
        const int exponent = static_cast<int>(magnitude >> fraction_bits);
        if (magnitude > largest)
            return fraction_bits == 2 && magnitude == 0x7c ? (code & 0x80 ? -INFINITY : INFINITY) : NAN;
        const double whole = exponent ? fraction + std::ldexp(1, fraction_bits) : fraction;
        const double result = std::ldexp(whole, (exponent ? exponent : 1) - bias - fraction_bits);
        return code & 0x80 ? -result : result;
    }
    // The nearest, of two as near the even one; never more than the largest.
    Bits code(double v) const {
        if (std::isnan(v)) return 0x7f;
        const unsigned sign = std::signbit(v) ? 0x80 : 0;
        if (std::fabs(v) >= value(largest)) return sign | largest;
        unsigned best = 0;
        for (unsigned c = 1; c <= largest; ++c) {
            const double nearer = std::fabs(value(best) - std::fabs(v)) - std::fabs(value(c) - std::fabs(v));
            if (nearer > 0 || (nearer == 0 && c % 2 == 0)) best = c;
        }
        return sign | best;
    }
};
constexpr Format kFormats[] = {{"e4m3x2", 3, 7, 0x7e}, {"e5m2x2", 2, 15, 0x7b}};

double half(Bits bits) {
    const double sign = bits & 0x8000 ? -1 : 1;
    const auto exponent = static_cast<int>(bits >> 10 & 31);
    const auto fraction = static_cast<double>(bits & 0x3ff);
    if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

// The f16 of a value of 8 bits: all of them are exact.
Bits to_half(double v) {
    if (std::isnan(v)) return 0x7fff;
    const Bits sign = std::signbit(v) ? 0x8000 : 0;
    if (std::isinf(v)) return sign | 0x7c00;
    const double a = std::fabs(v);
    if (a < 0x1p-14) return sign | static_cast<Bits>(a * 0x1p24);
    const int exponent = std::ilogb(a);
    return sign |
           ((static_cast<Bits>(exponent + 14) << 10) + static_cast<Bits>(std::ldexp(a, 10 - exponent)));
}

TEST_CASE("cvt: floats of 8 bits from f32 and f16x2, and to f16x2") {
    std::vector<InstructionCase> cases;
    for (const Format& format : kFormats)
        for (const bool relu : {false, true}) {
            const auto code = [&format, relu](double v) {
                return format.code(relu && v < 0 ? 0.0 : relu && v == 0 ? 0.0 : v);
            };
            const char* suffix = relu ? ".relu" : "";
            cases.push_back({fmt::format("cvt.rn.satfinite{}.{}.f32 %d, %a, %b;", suffix, format.name),
                             Type::B16,
                             {Type::F32, Type::F32},
                             [code](const Bits* o) {
                                 return code(static_cast<double>(f32(o[0]))) << 8 |
                                        code(static_cast<double>(f32(o[1])));
                             }});
            cases.push_back(
                {fmt::format("cvt.rn.satfinite{}.{}.f16x2 %d, %a;", suffix, format.name),
                 Type::B16,
                 {Type::B32},
                 [code](const Bits* o) { return code(half(o[0] >> 16)) << 8 | code(half(o[0] & 0xffff)); }});
            cases.push_back({fmt::format("cvt.rn{}.f16x2.{} %d, %a;", suffix, format.name),
                             Type::B32,
                             {Type::B16},
                             [&format, relu](const Bits* o) {
                                 const auto wide = [&](Bits eight) {
                                     const double v = format.value(static_cast<unsigned>(eight));
                                     return to_half(relu && v <= 0 ? 0.0 : v);
                                 };
                                 return wide(o[0] >> 8 & 0xff) << 16 | wide(o[0] & 0xff);
                             }});
        }
    check_instructions(cases, true);
}

TEST_CASE("cvt: every float of 8 bits is its own nearest, and halves between two go to the even one") {
    std::vector<InstructionCase> cases;
    for (const Format& format : kFormats)
        cases.push_back({fmt::format("{{ .reg .b16 s; .reg .f32 f<3>; .reg .b16 h<3>; .reg .b32 w;"
                                     " and.b16 s, %a, 0xff; cvt.rn.f16x2.{0} w, s; mov.b32 {{h0, h1}}, w;"
                                     " cvt.f32.f16 f0, h0; cvt.rn.satfinite.{0}.f32 %d, f0, f0; }}",
                                     format.name),
                         Type::B16,
                         {Type::B16},
                         [&format](const Bits* o) {
                             const Bits code_of =
                                 format.code(format.value(static_cast<unsigned>(o[0] & 0xff)));
                             return code_of << 8 | code_of;
                         }});
    check_instructions(cases, true);
}

TEST_CASE("cvt: tf32 from f32") {
    const auto tf32 = [](const Bits* o, const std::string& mode) {
        const float v = f32(o[0]);
        if (std::isnan(v)) return Bits{0x7fffffff};
        if (std::isinf(v) || v == 0) return o[0];
        const int exponent = std::max(std::ilogb(v), -126);
        const double scaled = std::ldexp(static_cast<double>(v), 10 - exponent);
        const double rounded = mode == "rna"  ? std::round(scaled)
                               : mode == "rn" ? std::nearbyint(scaled)
                                              : std::trunc(scaled);
        return bits(static_cast<float>(std::copysign(std::ldexp(rounded, exponent - 10), scaled)));
    };
    std::vector<InstructionCase> cases;
    for (const std::string mode : {"rna", "rn", "rz"}) {
        cases.push_back(
            {fmt::format("cvt.{}.tf32.f32 %d, %a;", mode), Type::B32, {Type::F32}, [=](const Bits* o) {
                 return tf32(o, mode);
             }});
        cases.push_back(
            {fmt::format("cvt.{}.relu.tf32.f32 %d, %a;", mode), Type::B32, {Type::F32}, [=](const Bits* o) {
                 const Bits result = tf32(o, mode);
                 return result >> 31 ? 0 : result;
             }});
        cases.push_back({fmt::format("cvt.{}.satfinite.tf32.f32 %d, %a;", mode),
                         Type::B32,
                         {Type::F32},
                         [=](const Bits* o) {
                             const Bits result = tf32(o, mode);
                             return (result & 0x7fffffff) == 0x7f800000 ? result - 0x2000 : result;
                         }});
    }
    check_instructions(cases, true);
}

}  // namespace
}  // namespace simcuda::testing
