// f32 and f64 instructions against the host's arithmetic in each rounding mode, or in higher precision.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "tests/ptx/instructions.h"

namespace simcuda::testing {
namespace {

constexpr Type kF32 = Type::F32;
constexpr Type kF64 = Type::F64;

struct Mode {
    const char* name;
    int host;
};
constexpr Mode kModes[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

// Evaluates f(operands) on the host under a rounding mode; volatile keeps it there and then.
template <typename T, typename F>
T rounded(int mode, F&& f, T a, T b = 0, T c = 0) {
    volatile T x = a, y = b, z = c;
    std::fesetround(mode);
    volatile T result = f(T{x}, T{y}, T{z});
    std::fesetround(FE_TONEAREST);
    return result;
}

float flush(float a) {
    return std::fabs(a) < 0x1p-126f ? std::copysign(0.0f, a) : a;
}
float saturate(float a) {
    return a > 0 ? std::fmin(a, 1.0f) : 0.0f;
}

template <typename T>
struct Operation {
    const char* name;
    unsigned operands;
    T (*compute)(T, T, T);
};

template <typename T>
const Operation<T> kOperations[] = {
    {"add", 2, [](T a, T b, T) -> T { return a + b; }},
    {"sub", 2, [](T a, T b, T) -> T { return a - b; }},
    {"mul", 2, [](T a, T b, T) -> T { return a * b; }},
    {"fma", 3, [](T a, T b, T c) -> T { return std::fma(a, b, c); }},
    {"div", 2, [](T a, T b, T) -> T { return a / b; }},
    {"rcp", 1, [](T a, T, T) -> T { return 1 / a; }},
    {"sqrt", 1, [](T a, T, T) -> T { return std::sqrt(a); }},
    {"mad", 3, [](T a, T b, T c) -> T { return std::fma(a, b, c); }},
};

std::string operand_names(unsigned count) {
    return count == 1 ? "%a" : count == 2 ? "%a, %b" : "%a, %b, %c";
}

TEST_CASE("float: f32 and f64 arithmetic in every rounding mode") {
    std::vector<InstructionCase> cases;
    for (const Mode& mode : kModes) {
        for (const auto& op : kOperations<float>)
            cases.push_back(
                {fmt::format("{}.{}.f32 %d, {};", op.name, mode.name, operand_names(op.operands)), kF32,
                 std::vector<Type>(op.operands, kF32), [=, host = mode.host](const Bits* o) {
                     return bits(rounded<float>(host, op.compute, f32(o[0]), op.operands > 1 ? f32(o[1]) : 0,
                                                op.operands > 2 ? f32(o[2]) : 0));
                 }});
        for (const auto& op : kOperations<double>)
            cases.push_back(
                {fmt::format("{}.{}.f64 %d, {};", op.name, mode.name, operand_names(op.operands)), kF64,
                 std::vector<Type>(op.operands, kF64), [=, host = mode.host](const Bits* o) {
                     return bits(rounded<double>(host, op.compute, f64(o[0]), op.operands > 1 ? f64(o[1]) : 0,
                                                 op.operands > 2 ? f64(o[2]) : 0));
                 }});
    }
    check_instructions(cases);
}

TEST_CASE("float: f32 arithmetic with .ftz and .sat") {
    std::vector<InstructionCase> cases;
    for (const auto& op : kOperations<float>) {
        const bool saturates =
            op.name != std::string("div") && op.name != std::string("rcp") && op.name != std::string("sqrt");
        for (const Mode& mode : kModes)
            for (bool sat : {false, true}) {
                if (sat && !saturates) continue;
                cases.push_back(
                    {fmt::format("{}.{}.ftz{}.f32 %d, {};", op.name, mode.name, sat ? ".sat" : "",
                                 operand_names(op.operands)),
                     kF32, std::vector<Type>(op.operands, kF32), [=, host = mode.host](const Bits* o) {
                         const float r = flush(rounded<float>(host, op.compute, flush(f32(o[0])),
                                                              op.operands > 1 ? flush(f32(o[1])) : 0,
                                                              op.operands > 2 ? flush(f32(o[2])) : 0));
                         return bits(sat ? saturate(r) : r);
                     }});
            }
    }
    // Rounding to nearest need not be named.
    for (std::size_t i = 0; i < 3; ++i) {
        const Operation<float>& single = kOperations<float>[i];
        const Operation<double>& twice = kOperations<double>[i];
        cases.push_back(
            {fmt::format("{}.ftz.f32 %d, %a, %b;", single.name), kF32, {kF32, kF32}, [=](const Bits* o) {
                 return bits(flush(single.compute(flush(f32(o[0])), flush(f32(o[1])), 0)));
             }});
        cases.push_back(
            {fmt::format("{}.f64 %d, %a, %b;", twice.name), kF64, {kF64, kF64}, [=](const Bits* o) {
                 return bits(twice.compute(f64(o[0]), f64(o[1]), 0));
             }});
    }
    cases.push_back({"mad.f32 %d, %a, %b, %c;", kF32, {kF32, kF32, kF32}, [](const Bits* o) {
                         return bits(std::fma(f32(o[0]), f32(o[1]), f32(o[2])));
                     }});
    cases.push_back({"add.sat.f32 %d, %a, %b;", kF32, {kF32, kF32}, [](const Bits* o) {
                         return bits(saturate(f32(o[0]) + f32(o[1])));
                     }});
    cases.push_back({"add.f32 %d, %a, %b;", kF32, {kF32, kF32}, [](const Bits* o) {
                         return bits(f32(o[0]) + f32(o[1]));
                     }});
    cases.push_back({"mul.f64 %d, %a, 0d3FF8000000000000;", kF64, {kF64}, [](const Bits* o) {
                         return bits(f64(o[0]) * 1.5);
                     }});
    check_instructions(cases);
}

TEST_CASE("float: a NaN that f32 arithmetic makes has the GPU's bits where they can be seen") {
    const auto canonical = [](float v) { return std::isnan(v) ? Bits{0x7fffffff} : bits(v); };
    check_instructions(
        {
            {"mul.f32 %d, %a, %b;",
             kF32,
             {kF32, kF32},
             [=](const Bits* o) { return canonical(f32(o[0]) * f32(o[1])); }},
            {"{ .reg .f32 t; sub.f32 t, %a, %b; mov.b32 %d, t; }",
             Type::B32,
             {kF32, kF32},
             [=](const Bits* o) { return canonical(f32(o[0]) - f32(o[1])); }},
            {"{ .reg .b32 t, u; mov.b32 t, %a; sqrt.rn.f32 u, t; and.b32 %d, u, u; }",
             Type::B32,
             {kF32},
             [=](const Bits* o) { return canonical(std::sqrt(f32(o[0]))); }},
            {"{ .reg .f32 t, u; .reg .pred p; add.f32 t, %a, %a; setp.lt.f32 p, t, %a; selp.f32 u, t, %a, p; "
             "mov.f32 %d, u; }",
             kF32,
             {kF32},
             [=](const Bits* o) {
                 const float t = f32(o[0]) + f32(o[0]);
                 return t < f32(o[0]) ? bits(t) : canonical(f32(o[0]));
             }},
            // What is only moved keeps its bits.
            {"mov.f32 %d, %a;", kF32, {kF32}, [](const Bits* o) { return o[0]; }},
            {"selp.f32 %d, %a, %b, 1;", kF32, {kF32, kF32}, [](const Bits* o) { return o[0]; }},
            {"cvt.f64.f32 %d, %a;",
             kF64,
             {kF32},
             [](const Bits* o) {
                 return std::isnan(f32(o[0])) ? Bits{0x7fffffffe0000000}
                                              : bits(static_cast<double>(f32(o[0])));
             }},
        },
        true);
}

template <typename T>
T smaller(T a, T b) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}
template <typename T>
T larger(T a, T b) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
}

TEST_CASE("float: extremes, signs and classes") {
    const auto f2 = [](std::string code, float (*model)(float, float)) {
        return InstructionCase{std::move(code), kF32, {kF32, kF32}, [=](const Bits* o) {
                                   return bits(model(f32(o[0]), f32(o[1])));
                               }};
    };
    const auto d2 = [](std::string code, double (*model)(double, double)) {
        return InstructionCase{std::move(code), kF64, {kF64, kF64}, [=](const Bits* o) {
                                   return bits(model(f64(o[0]), f64(o[1])));
                               }};
    };
    const auto test = [](const char* name, bool (*model)(double v, double least)) {
        return std::vector<InstructionCase>{
            {fmt::format("testp.{}.f32 %d, %a;", name),
             Type::Pred,
             {kF32},
             [=](const Bits* o) { return Bits{model(static_cast<double>(f32(o[0])), 0x1p-126)}; }},
            {fmt::format("testp.{}.f64 %d, %a;", name),
             Type::Pred,
             {kF64},
             [=](const Bits* o) { return Bits{model(f64(o[0]), 0x1p-1022)}; }},
        };
    };
    std::vector<InstructionCase> cases = {
        f2("min.f32 %d, %a, %b;", smaller<float>),
        f2("max.f32 %d, %a, %b;", larger<float>),
        d2("min.f64 %d, %a, %b;", smaller<double>),
        d2("max.f64 %d, %a, %b;", larger<double>),
        f2("min.ftz.f32 %d, %a, %b;", [](float a, float b) { return smaller(flush(a), flush(b)); }),
        f2("max.ftz.f32 %d, %a, %b;", [](float a, float b) { return larger(flush(a), flush(b)); }),
        f2("max.NaN.f32 %d, %a, %b;",
           [](float a, float b) { return std::isnan(a)   ? a
                                         : std::isnan(b) ? b
                                                         : larger(a, b); }),
        f2("min.NaN.f32 %d, %a, %b;",
           [](float a, float b) { return std::isnan(a)   ? a
                                         : std::isnan(b) ? b
                                                         : smaller(a, b); }),
        f2("copysign.f32 %d, %a, %b;", [](float a, float b) { return std::copysign(b, a); }),
        d2("copysign.f64 %d, %a, %b;", [](double a, double b) { return std::copysign(b, a); }),
        f2("abs.f32 %d, %a;", [](float a, float) { return std::fabs(a); }),
        d2("abs.f64 %d, %a;", [](double a, double) { return std::fabs(a); }),
        f2("abs.ftz.f32 %d, %a;", [](float a, float) { return flush(std::fabs(a)); }),
        f2("neg.f32 %d, %a;", [](float a, float) { return -a; }),
        f2("neg.ftz.f32 %d, %a;", [](float a, float) { return flush(-a); }),
        d2("neg.f64 %d, %a;", [](double a, double) { return -a; }),
    };
    for (auto& group :
         {test("finite", [](double v, double) { return std::isfinite(v); }),
          test("infinite", [](double v, double) { return std::isinf(v); }),
          test("number", [](double v, double) { return !std::isnan(v); }),
          test("notanumber", [](double v, double) { return std::isnan(v); }),
          test("normal", [](double v, double least) { return std::isfinite(v) && std::fabs(v) >= least; }),
          test("subnormal", [](double v, double least) { return v != 0 && std::fabs(v) < least; })})
        cases.insert(cases.end(), group.begin(), group.end());
    check_instructions(cases);
}

TEST_CASE("float: comparisons know NaN") {
    // By the relation of the operands: less, equal, greater, unordered.
    enum { L = 1, E = 2, G = 4, U = 8 };
    struct Comparison {
        const char* name;
        int holds;
    };
    static constexpr Comparison kComparisons[] = {
        {"eq", E},      {"ne", L | G},      {"lt", L},          {"le", L | E},  {"gt", G},
        {"ge", G | E},  {"equ", E | U},     {"neu", L | G | U}, {"ltu", L | U}, {"leu", L | E | U},
        {"gtu", G | U}, {"geu", G | E | U}, {"num", L | E | G}, {"nan", U}};
    const auto relation = [](double a, double b) {
        return std::isnan(a) || std::isnan(b) ? U : a < b ? L : a > b ? G : E;
    };
    std::vector<InstructionCase> cases;
    for (const Comparison& c : kComparisons) {
        const int holds = c.holds;
        cases.push_back(
            {fmt::format("setp.{}.f32 %d, %a, %b;", c.name), Type::Pred, {kF32, kF32}, [=](const Bits* o) {
                 return Bits{
                     (relation(static_cast<double>(f32(o[0])), static_cast<double>(f32(o[1]))) & holds) != 0};
             }});
        cases.push_back({fmt::format("setp.{}.ftz.f32 %d, %a, %b;", c.name),
                         Type::Pred,
                         {kF32, kF32},
                         [=](const Bits* o) {
                             return Bits{(relation(static_cast<double>(flush(f32(o[0]))),
                                                   static_cast<double>(flush(f32(o[1])))) &
                                          holds) != 0};
                         }});
        cases.push_back(
            {fmt::format("setp.{}.f64 %d, %a, %b;", c.name), Type::Pred, {kF64, kF64}, [=](const Bits* o) {
                 return Bits{(relation(f64(o[0]), f64(o[1])) & holds) != 0};
             }});
        cases.push_back({fmt::format("setp.{}.xor.f64 %p0|%p1, %a, %b, %c; and.pred %d, %p0, %p1;", c.name),
                         Type::Pred,
                         {kF64, kF64, Type::Pred},
                         [](const Bits*) { return Bits{0}; }});
        cases.push_back(
            {fmt::format("set.{}.f32.f32 %d, %a, %b;", c.name), kF32, {kF32, kF32}, [=](const Bits* o) {
                 return bits(relation(static_cast<double>(f32(o[0])), static_cast<double>(f32(o[1]))) & holds
                                 ? 1.0f
                                 : 0.0f);
             }});
        cases.push_back(
            {fmt::format("set.{}.u32.f64 %d, %a, %b;", c.name), Type::U32, {kF64, kF64}, [=](const Bits* o) {
                 return relation(f64(o[0]), f64(o[1])) & holds ? 0xffffffff : 0;
             }});
    }
    check_instructions(cases);
}

TEST_CASE("float: approximations lie within the documented error") {
    const auto approximate = [](std::string code, double ulps, double (*model)(double)) {
        return InstructionCase{
            std::move(code),
            kF32,
            {kF32},
            [=](const Bits* o) { return bits(static_cast<float>(model(static_cast<double>(f32(o[0]))))); },
            ulps};
    };
    const auto flushed = [](std::string code, double ulps, double (*model)(double)) {
        return InstructionCase{
            std::move(code),
            kF32,
            {kF32},
            [=](const Bits* o) {
                return bits(flush(static_cast<float>(model(static_cast<double>(flush(f32(o[0])))))));
            },
            ulps};
    };
    check_instructions({
        approximate("ex2.approx.f32 %d, %a;", 2, [](double a) { return std::exp2(a); }),
        flushed("ex2.approx.ftz.f32 %d, %a;", 2, [](double a) { return std::exp2(a); }),
        approximate("lg2.approx.f32 %d, %a;", 2, [](double a) { return std::log2(a); }),
        flushed("lg2.approx.ftz.f32 %d, %a;", 2, [](double a) { return std::log2(a); }),
        approximate("rcp.approx.f32 %d, %a;", 1, [](double a) { return 1 / a; }),
        flushed("rcp.approx.ftz.f32 %d, %a;", 1, [](double a) { return 1 / a; }),
        approximate("rsqrt.approx.f32 %d, %a;", 2, [](double a) { return 1 / std::sqrt(a); }),
        flushed("rsqrt.approx.ftz.f32 %d, %a;", 2, [](double a) { return 1 / std::sqrt(a); }),
        approximate("sqrt.approx.f32 %d, %a;", 1, [](double a) { return std::sqrt(a); }),
        flushed("sqrt.approx.ftz.f32 %d, %a;", 1, [](double a) { return std::sqrt(a); }),
        approximate("tanh.approx.f32 %d, %a;", 2, [](double a) { return std::tanh(a); }),
        approximate("sin.approx.f32 %d, %a;", 2, [](double a) { return std::sin(a); }),
        approximate("cos.approx.f32 %d, %a;", 2, [](double a) { return std::cos(a); }),
        flushed("sin.approx.ftz.f32 %d, %a;", 2, [](double a) { return std::sin(a); }),
        flushed("cos.approx.ftz.f32 %d, %a;", 2, [](double a) { return std::cos(a); }),
        {"div.approx.ftz.f32 %d, %a, %b;",
         kF32,
         {kF32, kF32},
         [](const Bits* o) {
             const float a = flush(f32(o[0])), b = flush(f32(o[1]));
             if (std::fabs(b) > 0x1p126f && std::isinf(a)) return bits(NAN);
             if (std::fabs(b) > 0x1p126f && !std::isnan(a))
                 return bits(std::copysign(0.0f, std::signbit(a) != std::signbit(b) ? -1.0f : 1.0f));
             return bits(flush(a / b));
         },
         2},
        {"div.full.f32 %d, %a, %b;",
         kF32,
         {kF32, kF32},
         [](const Bits* o) { return bits(f32(o[0]) / f32(o[1])); },
         2},
        {"div.approx.f32 %d, %a, %b;",
         kF32,
         {kF32, kF32},
         [](const Bits* o) {
             const float a = f32(o[0]), b = f32(o[1]);
             if (std::fabs(b) > 0x1p126f && !std::isnan(a))
                 return bits(std::isinf(a)
                                 ? NAN
                                 : std::copysign(0.0f, std::signbit(a) != std::signbit(b) ? -1.0f : 1.0f));
             return bits(a / b);
         },
         2},
    });
}

TEST_CASE("float: the gross f64 approximations work on upper halves") {
    const auto upper = [](double v) { return f64(bits(v) & 0xffffffff00000000); };
    check_instructions({
        // 2^-20 is what 20 bits of fraction give.
        {"rcp.approx.ftz.f64 %d, %a; { .reg .b32 l, h; mov.b64 {l, h}, %d; setp.eq.u32 %p0, l, 0; @!%p0 "
         "mov.f64 %d, 0d0000000000000001; }",
         kF64,
         {kF64},
         [=](const Bits* o) {
             const double a = upper(f64(o[0]));
             const double r = 1 / (std::fabs(a) < 0x1p-1022 ? std::copysign(0.0, a) : a);
             return bits(std::fabs(r) < 0x1p-1022 ? std::copysign(0.0, r) : r);
         },
         0x1p33},
        {"rsqrt.approx.ftz.f64 %d, %a;",
         kF64,
         {kF64},
         [=](const Bits* o) {
             const double a = upper(f64(o[0]));
             return bits(1 / std::sqrt(std::fabs(a) < 0x1p-1022 ? std::copysign(0.0, a) : a));
         },
         0x1p33},
    });
}

}  // namespace
}  // namespace simcuda::testing
