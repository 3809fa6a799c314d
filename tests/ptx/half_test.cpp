// f16 and bf16 against exact arithmetic in double followed by one rounding, worked out by searching the
// format.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/ptx/instructions.h"

namespace simcuda::testing {
namespace {

// A 16-bit format by its widths. All its finite values are exact in double.
struct Format {
    Type type;
    Type packed;
    int exponent_bits;
    int fraction_bits;

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    double value(Bits h) const {
        const int exponent = static_cast<int>(h >> fraction_bits & ((1u << exponent_bits) - 1));
        const double fraction = static_cast<double>(h & ((1u << fraction_bits) - 1));
        const double sign = h & 0x8000 ? -1 : 1;
        if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? std::nan("") : sign * INFINITY;
        if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - fraction_bits);
        return sign *
               std::ldexp(fraction + std::ldexp(1.0, fraction_bits), exponent - bias() - fraction_bits);
    }
    Bits infinity() const { return Bits((1u << exponent_bits) - 1) << fraction_bits; }

    // The nearest value to an exact number, given as a sum `high + low` with |low| below the last place of
    // high; ties to even. Found by bisection over the ordered positive values.
    Bits nearest(double high, double low = 0) const {
        if (std::isnan(high)) return 0x7fff;
        const bool negative = std::signbit(high);
        const double a = std::fabs(high), b = negative ? -low : low;
        Bits below = 0, above = infinity();
        const auto limit = [&](Bits h) { return h == infinity() ? std::ldexp(1.0, bias() + 1) : value(h); };
        if (std::isinf(a)) return negative ? above | 0x8000 : above;
        while (above - below > 1) {
            const Bits middle = (above + below) / 2;
            const double v = limit(middle);
            (v < a || (v == a && b >= 0) ? below : above) = middle;
        }
        if (a >= limit(above)) return negative ? above | 0x8000 : above;
        const double tie = (limit(below) + limit(above)) / 2;
        const bool up = a > tie || (a == tie && (b > 0 || (b == 0 && above % 2 == 0)));
        const Bits r = up ? above : below;
        return negative ? r | 0x8000 : r;
    }
};

const Format kFormats[] = {{Type::F16, Type::F16x2, 5, 10}, {Type::Bf16, Type::Bf16x2, 8, 7}};

// Exact sum of doubles as high + low.
std::pair<double, double> exact_sum(double a, double b) {
    const double high = a + b;
    if (!std::isfinite(high)) return {high, 0};
    const double v = high - a;
    return {high, (a - (high - v)) + (b - v)};
}

TEST_CASE("half: half arithmetic rounds once") {
    for (const Format& format : kFormats) {
        std::vector<InstructionCase> cases;
        const std::string_view name = ptx::name_of(format.type);
        const Type t = format.type;
        const auto sum = [=](double a, double b) {
            const auto [high, low] = exact_sum(a, b);
            return format.nearest(high, low);
        };
        const auto value = [=](Bits h) { return format.value(h); };
        const auto add = [&](std::string code, unsigned operands, std::function<Bits(const Bits*)> model) {
            cases.push_back({std::move(code), t, std::vector<Type>(operands, t), std::move(model)});
        };
        add(fmt::format("add.{} %d, %a, %b;", name), 2,
            [=](const Bits* o) { return sum(value(o[0]), value(o[1])); });
        for (const char* rounding : {"", ".rn"})
            add(fmt::format("sub{}.{} %d, %a, %b;", rounding, name), 2,
                [=](const Bits* o) { return sum(value(o[0]), -value(o[1])); });
        add(fmt::format("mul.{} %d, %a, %b;", name), 2,
            [=](const Bits* o) { return format.nearest(value(o[0]) * value(o[1])); });
        add(fmt::format("fma.rn.{} %d, %a, %b, %c;", name), 3,
            [=](const Bits* o) { return sum(value(o[0]) * value(o[1]), value(o[2])); });
        add(fmt::format("fma.rn.relu.{} %d, %a, %b, %c;", name), 3, [=](const Bits* o) {
            const Bits r = sum(value(o[0]) * value(o[1]), value(o[2]));
            return value(r) > 0 || std::isnan(value(r)) ? r : 0;
        });
        add(fmt::format("neg.{} %d, %a;", name), 1, [](const Bits* o) { return o[0] ^ 0x8000; });
        add(fmt::format("abs.{} %d, %a;", name), 1, [](const Bits* o) { return o[0] & 0x7fff; });
        const auto extreme = [=](const Bits* o, bool largest) {
            const double a = value(o[0]), b = value(o[1]);
            if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? o[1] : o[0];
            if (a == b) return std::signbit(a) == largest ? o[1] : o[0];
            return (a > b) == largest ? o[0] : o[1];
        };
        add(fmt::format("min.{} %d, %a, %b;", name), 2, [=](const Bits* o) { return extreme(o, false); });
        add(fmt::format("max.{} %d, %a, %b;", name), 2, [=](const Bits* o) { return extreme(o, true); });
        add(fmt::format("max.NaN.{} %d, %a, %b;", name), 2, [=](const Bits* o) {
            return std::isnan(value(o[0])) || std::isnan(value(o[1])) ? Bits{0x7fff} : extreme(o, true);
        });
        check_instructions(cases);
    }
}

TEST_CASE("half: packed halves are two of them") {
    for (const Format& format : kFormats) {
        const auto value = [&](Bits word, unsigned half) { return format.value(word >> 16 * half & 0xffff); };
        const std::string_view name = ptx::name_of(format.packed);
        // NaN is compared by bits here, so keep it out: it has a case of its own above.
        const auto both = [&](const Bits* o, unsigned operands, std::function<Bits(unsigned)> model) {
            for (unsigned i = 0; i < operands; ++i)
                for (unsigned h = 0; h < 2; ++h)
                    if (std::isnan(value(o[i], h))) return ~Bits{0};
            return model(0) | model(1) << 16;
        };
        const auto guarded = [&](std::string code, unsigned operands) {
            for (unsigned i = 0; i < operands; ++i) {
                const char* names[] = {"%a", "%b", "%c"};
                code += fmt::format(
                    " {{ .reg .b16 l, h; .reg .pred n; mov.b32 {{l, h}}, {0}; setp.nan.{1} n, l, l; @n "
                    "mov.b32 %d, -1; setp.nan.{1} n, h, h; @n mov.b32 %d, -1; }}",
                    names[i], ptx::name_of(format.type));
            }
            return code;
        };
        const auto sum = [&](double a, double b) {
            const auto [high, low] = exact_sum(a, b);
            const Bits r = format.nearest(high, low);
            return r;
        };
        const Type p = format.packed;
        check_instructions({
            {guarded(fmt::format("fma.rn.{} %d, %a, %b, %c;", name), 3),
             p,
             {p, p, p},
             [&](const Bits* o) {
                 return both(
                     o, 3, [&](unsigned h) { return sum(value(o[0], h) * value(o[1], h), value(o[2], h)); });
             }},
            {guarded(fmt::format("add.{} %d, %a, %b;", name), 2),
             p,
             {p, p},
             [&](const Bits* o) {
                 return both(o, 2, [&](unsigned h) { return sum(value(o[0], h), value(o[1], h)); });
             }},
            {guarded(fmt::format("sub.{} %d, %a, %b;", name), 2),
             p,
             {p, p},
             [&](const Bits* o) {
                 return both(o, 2, [&](unsigned h) { return sum(value(o[0], h), -value(o[1], h)); });
             }},
            {guarded(fmt::format("mul.{} %d, %a, %b;", name), 2),
             p,
             {p, p},
             [&](const Bits* o) {
                 return both(o, 2,
                             [&](unsigned h) { return format.nearest(value(o[0], h) * value(o[1], h)); });
             }},
            {fmt::format("neg.{} %d, %a;", name), p, {p}, [](const Bits* o) { return o[0] ^ 0x80008000; }},
        });
    }
}

TEST_CASE("half: conversions of halves") {
    for (const Format& format : kFormats) {
        const std::string_view name = ptx::name_of(format.type);
        const Type t = format.type;
        const auto value = [=](Bits h) { return format.value(h); };
        std::vector<InstructionCase> cases = {
            {fmt::format("cvt.f32.{} %d, %a;", name),
             Type::F32,
             {t},
             [=](const Bits* o) { return bits(static_cast<float>(value(o[0]))); }},
            {fmt::format("cvt.rn.{}.f32 %d, %a;", name),
             t,
             {Type::F32},
             [=](const Bits* o) { return format.nearest(static_cast<double>(f32(o[0]))); }},
            {fmt::format("cvt.rz.{}.f32 %d, %a;", name),
             t,
             {Type::F32},
             [=](const Bits* o) {
                 const double v = static_cast<double>(f32(o[0]));
                 const Bits r = format.nearest(v);
                 return std::fabs(value(r)) > std::fabs(v) ? r - 1 : r;
             }},
            {fmt::format("setp.lt.{} %d, %a, %b;", name),
             Type::Pred,
             {t, t},
             [=](const Bits* o) { return Bits{value(o[0]) < value(o[1])}; }},
            {fmt::format("setp.neu.{} %d, %a, %b;", name),
             Type::Pred,
             {t, t},
             [=](const Bits* o) { return Bits{!(value(o[0]) == value(o[1]))}; }},
            {fmt::format("cvt.rn.{}x2.f32 %d, %a, %b;", name),
             format.packed,
             {Type::S32, Type::S32},
             [=](const Bits* o) {
                 return format.nearest(static_cast<double>(f32(o[0]))) << 16 |
                        format.nearest(static_cast<double>(f32(o[1])));
             }},
        };
        if (t == Type::F16) {
            cases.push_back(
                {"cvt.f64.f16 %d, %a;", Type::F64, {t}, [=](const Bits* o) { return bits(value(o[0])); }});
            cases.push_back({"cvt.rn.f16.f64 %d, %a;", t, {Type::F64}, [=](const Bits* o) {
                                 return format.nearest(f64(o[0]));
                             }});
            cases.push_back({"cvt.rn.f16.s32 %d, %a;", t, {Type::S32}, [=](const Bits* o) {
                                 return format.nearest(static_cast<double>(static_cast<std::int32_t>(o[0])));
                             }});
            cases.push_back({"cvt.rm.f16.s32 %d, %a;", t, {Type::S32}, [=](const Bits* o) {
                                 const double v = static_cast<double>(static_cast<std::int32_t>(o[0]));
                                 const Bits r = format.nearest(v);
                                 return value(r) > v ? (r & 0x8000 ? r + 1 : r - 1) : r;
                             }});
            cases.push_back({"cvt.rn.f16.u64 %d, %a;", t, {Type::U64}, [=](const Bits* o) {
                                 return format.nearest(static_cast<double>(o[0]));
                             }});
            cases.push_back({"cvt.rni.s32.f16 %d, %a;", Type::S32, {t}, [=](const Bits* o) {
                                 const double v = value(o[0]);
                                 return std::isnan(v)
                                            ? Bits{0}
                                            : static_cast<Bits>(static_cast<std::int64_t>(
                                                  std::clamp(std::nearbyint(v), -0x1p31, 0x1p31 - 1)));
                             }});
            cases.push_back({"cvt.rn.f16.s16 %d, %a;", t, {Type::S16}, [=](const Bits* o) {
                                 return format.nearest(static_cast<double>(static_cast<std::int16_t>(o[0])));
                             }});
            for (const Type to : {Type::S8, Type::S16, Type::S32}) {
                const double limit = std::ldexp(1.0, static_cast<int>(ptx::bytes_of(to)) * 8 - 1);
                cases.push_back(
                    {fmt::format("cvt.rzi.{}.f16 %d, %a;", ptx::name_of(to)), to, {t}, [=](const Bits* o) {
                         const double v = value(o[0]);
                         return std::isnan(v) ? Bits{0}
                                              : static_cast<Bits>(static_cast<std::int64_t>(
                                                    std::clamp(std::trunc(v), -limit, limit - 1)));
                     }});
            }
            cases.push_back({"cvt.rzi.u8.f16 %d, %a;", Type::U8, {t}, [=](const Bits* o) {
                                 const double v = value(o[0]);
                                 return std::isnan(v)
                                            ? Bits{0}
                                            : static_cast<Bits>(std::clamp(std::trunc(v), 0.0, 255.0));
                             }});
            cases.push_back({"cvt.rmi.f16.f16 %d, %a;", t, {t}, [=](const Bits* o) {
                                 return format.nearest(std::floor(value(o[0])));
                             }});
            cases.push_back({"set.eq.f16.f16 %d, %a, %b;", t, {t, t}, [=](const Bits* o) {
                                 return Bits{value(o[0]) == value(o[1]) ? 0x3c00u : 0u};
                             }});
            cases.push_back(
                {"set.gt.f16x2.f16x2 %d, %a, %b;",
                 Type::F16x2,
                 {Type::F16x2, Type::F16x2},
                 [=](const Bits* o) {
                     Bits r = 0;
                     for (unsigned h = 0; h < 32; h += 16)
                         r |= (value(o[0] >> h & 0xffff) > value(o[1] >> h & 0xffff) ? Bits{0x3c00} : 0) << h;
                     return r;
                 }});
            cases.push_back(
                {"set.eq.u32.f16x2 %d, %a, %b;", Type::U32, {Type::F16x2, Type::F16x2}, [=](const Bits* o) {
                     Bits r = 0;
                     for (unsigned h = 0; h < 32; h += 16)
                         r |= (value(o[0] >> h & 0xffff) == value(o[1] >> h & 0xffff) ? Bits{0xffff} : 0)
                              << h;
                     return r;
                 }});
        }
        check_instructions(cases);
    }
}

TEST_CASE("half: a bf16 becomes the upper half of an f32, NaN or not") {
    check_instructions(
        {{"cvt.f32.bf16 %d, %a;", Type::F32, {Type::Bf16}, [](const Bits* o) { return o[0] << 16; }}}, true);
}

}  // namespace
}  // namespace simcuda::testing
