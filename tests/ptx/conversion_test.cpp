// cvt between integers and floats and between floats, in all modes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/ptx/instructions.h"

namespace simcuda::testing {
namespace {

struct Mode {
    const char* name;
    int host;
};
constexpr Mode kModes[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
constexpr Type kIntegers[] = {Type::U8,  Type::S8,  Type::U16, Type::S16,
                              Type::U32, Type::S32, Type::U64, Type::S64};

unsigned width(Type type) {
    return ptx::bytes_of(type) * 8;
}

template <typename To, typename From>
To converted(int mode, From from) {
    volatile From source = from;
    std::fesetround(mode);
    volatile To result = static_cast<To>(source);
    std::fesetround(FE_TONEAREST);
    return result;
}

TEST_CASE("conversion: integer to float") {
    std::vector<InstructionCase> cases;
    for (Type from : kIntegers)
        for (const Mode& mode : kModes)
            for (Type to : {Type::F32, Type::F64}) {
                cases.push_back(
                    {fmt::format("cvt.{}.{}.{} %d, %a;", mode.name, ptx::name_of(to), ptx::name_of(from)),
                     to,
                     {from},
                     [=, host = mode.host](const Bits* o) {
                         const auto s =
                             static_cast<std::int64_t>(o[0] << (64 - width(from))) >> (64 - width(from));
                         if (to == Type::F32)
                             return ptx::is_signed(from) ? bits(converted<float>(host, s))
                                                         : bits(converted<float>(host, o[0]));
                         return ptx::is_signed(from) ? bits(converted<double>(host, s))
                                                     : bits(converted<double>(host, o[0]));
                     }});
            }
    check_instructions(cases);
}

TEST_CASE("conversion: float to integer rounds, clamps, and makes something of NaN") {
    std::vector<InstructionCase> cases;
    const auto round_to = [](const char* mode, double v) {
        switch (mode[1]) {
            case 'n':
                return std::nearbyint(v);
            case 'z':
                return std::trunc(v);
            case 'm':
                return std::floor(v);
            default:
                return std::ceil(v);
        }
    };
    for (Type to : kIntegers)
        for (const char* mode : {"rni", "rzi", "rmi", "rpi"})
            for (Type from : {Type::F32, Type::F64}) {
                const auto model = [=](double v) -> Bits {
                    const unsigned w = width(to);
                    // As the specification has it: zero, unless the source is f64 or the result has 64 bits.
                    if (std::isnan(v)) return from == Type::F64 || w == 64 ? Bits{1} << (w - 1) : 0;
                    const long double r = static_cast<long double>(round_to(mode, v));
                    const long double low =
                        ptx::is_signed(to) ? -std::ldexp(1.0L, static_cast<int>(w) - 1) : 0.0L;
                    const long double high = std::ldexp(1.0L, static_cast<int>(w) - ptx::is_signed(to)) - 1;
                    const long double clamped = r < low ? low : r > high ? high : r;
                    return clamped < 0 ? static_cast<Bits>(static_cast<std::int64_t>(clamped))
                                       : static_cast<Bits>(clamped);
                };
                cases.push_back(
                    {fmt::format("cvt.{}.{}.{} %d, %a;", mode, ptx::name_of(to), ptx::name_of(from)),
                     to,
                     {from},
                     [=](const Bits* o) {
                         return model(from == Type::F32 ? static_cast<double>(f32(o[0])) : f64(o[0]));
                     }});
            }
    cases.push_back({"cvt.rzi.ftz.s32.f32 %d, %a;", Type::S32, {Type::F32}, [](const Bits* o) {
                         const double v = std::trunc(static_cast<double>(f32(o[0])));
                         if (std::isnan(v)) return Bits{0};
                         return static_cast<Bits>(
                             static_cast<std::int32_t>(std::fmin(std::fmax(v, -0x1p31), 0x1p31 - 1)));
                     }});
    cases.push_back({"cvt.rpi.ftz.s32.f32 %d, %a;", Type::S32, {Type::F32}, [](const Bits* o) {
                         const float v = std::fabs(f32(o[0])) < 0x1p-126f ? 0 : std::ceil(f32(o[0]));
                         if (std::isnan(v)) return Bits{0};
                         return static_cast<Bits>(static_cast<std::int32_t>(
                             std::fmin(std::fmax(static_cast<double>(v), -0x1p31), 0x1p31 - 1)));
                     }});
    check_instructions(cases);
}

// An integer has no sign of zero: numba's test_complex found sin(-0.0f) to be 0.
TEST_CASE("conversion: what goes from float to integer and back is not -0") {
    check_instructions({{"{ .reg .s32 %i; cvt.rni.s32.f32 %i, %a; cvt.rn.f32.s32 %d, %i; }",
                         Type::F32,
                         {Type::F32},
                         [](const Bits* o) {
                             const double v = std::nearbyint(static_cast<double>(f32(o[0])));
                             return bits(v != v       ? 0.0f
                                         : v < 0x1p31 ? std::max(static_cast<float>(v), -0x1p31f) + 0.0f
                                                      : 0x1p31f);
                         }},
                        {"{ .reg .s64 %i; cvt.rzi.s64.f64 %i, %a; cvt.rn.f64.s64 %d, %i; }",
                         Type::F64,
                         {Type::F64},
                         [](const Bits* o) {
                             const double v = std::trunc(f64(o[0]));
                             return bits(v != v ? -0x1p63 : std::clamp(v, -0x1p63, 0x1p63) + 0.0);
                         }}});
}

TEST_CASE("conversion: float to float") {
    std::vector<InstructionCase> cases;
    for (const Mode& mode : kModes)
        cases.push_back(
            {fmt::format("cvt.{}.f32.f64 %d, %a;", mode.name),
             Type::F32,
             {Type::F64},
             [host = mode.host](const Bits* o) { return bits(converted<float>(host, f64(o[0]))); }});
    cases.push_back({"cvt.f64.f32 %d, %a;", Type::F64, {Type::F32}, [](const Bits* o) {
                         return bits(static_cast<double>(f32(o[0])));
                     }});
    cases.push_back({"cvt.rn.ftz.f32.f64 %d, %a;", Type::F32, {Type::F64}, [](const Bits* o) {
                         const float v = static_cast<float>(f64(o[0]));
                         return bits(std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v);
                     }});
    cases.push_back({"cvt.sat.f32.f32 %d, %a;", Type::F32, {Type::F32}, [](const Bits* o) {
                         const float v = f32(o[0]);
                         return bits(v > 0 ? std::fmin(v, 1.0f) : 0.0f);
                     }});
    cases.push_back({"cvt.rni.f32.f32 %d, %a;", Type::F32, {Type::F32}, [](const Bits* o) {
                         return bits(std::nearbyint(f32(o[0])));
                     }});
    cases.push_back({"cvt.rzi.f32.f32 %d, %a;", Type::F32, {Type::F32}, [](const Bits* o) {
                         return bits(std::trunc(f32(o[0])));
                     }});
    cases.push_back({"cvt.rmi.f32.f32 %d, %a;", Type::F32, {Type::F32}, [](const Bits* o) {
                         return bits(std::floor(f32(o[0])));
                     }});
    cases.push_back({"cvt.rpi.f32.f32 %d, %a;", Type::F32, {Type::F32}, [](const Bits* o) {
                         return bits(std::ceil(f32(o[0])));
                     }});
    cases.push_back({"cvt.rni.f64.f64 %d, %a;", Type::F64, {Type::F64}, [](const Bits* o) {
                         return bits(std::nearbyint(f64(o[0])));
                     }});
    cases.push_back({"cvt.rmi.f64.f64 %d, %a;", Type::F64, {Type::F64}, [](const Bits* o) {
                         return bits(std::floor(f64(o[0])));
                     }});
    cases.push_back({"cvt.rmi.ftz.f32.f32 %d, %a;", Type::F32, {Type::F32}, [](const Bits* o) {
                         const float v = f32(o[0]);
                         return bits(std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : std::floor(v));
                     }});
    cases.push_back({"cvt.rpi.f64.f64 %d, %a;", Type::F64, {Type::F64}, [](const Bits* o) {
                         return bits(std::ceil(f64(o[0])));
                     }});
    cases.push_back({"cvt.rzi.f64.f64 %d, %a;", Type::F64, {Type::F64}, [](const Bits* o) {
                         return bits(std::trunc(f64(o[0])));
                     }});
    cases.push_back({"cvt.ftz.f64.f32 %d, %a;", Type::F64, {Type::F32}, [](const Bits* o) {
                         const float v = f32(o[0]);
                         return bits(
                             static_cast<double>(std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v));
                     }});
    check_instructions(cases);
}

}  // namespace
}  // namespace simcuda::testing
