// Comparisons, selections, moves and conversions of integers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tests/ptx/integers.h"

namespace simcuda::testing {
namespace {

TEST_CASE("integer compare: integer comparisons") {
    struct Comparison {
        const char* name;
        bool (*model)(Wide, Wide);
    };
    static constexpr Comparison kComparisons[] = {
        {"eq", [](Wide a, Wide b) { return a == b; }}, {"ne", [](Wide a, Wide b) { return a != b; }},
        {"lt", [](Wide a, Wide b) { return a < b; }},  {"le", [](Wide a, Wide b) { return a <= b; }},
        {"gt", [](Wide a, Wide b) { return a > b; }},  {"ge", [](Wide a, Wide b) { return a >= b; }},
    };
    static constexpr Comparison kUnsignedNames[] = {{"lo", [](Wide a, Wide b) { return a < b; }},
                                                    {"ls", [](Wide a, Wide b) { return a <= b; }},
                                                    {"hi", [](Wide a, Wide b) { return a > b; }},
                                                    {"hs", [](Wide a, Wide b) { return a >= b; }}};
    std::vector<InstructionCase> cases;
    const auto add = [&](const Comparison& c, Type type) {
        const auto model = [=, m = c.model](const Bits* o) {
            return m(value(type, o[0]), value(type, o[1]));
        };
        cases.push_back({fmt::format("setp.{}.{} %d, %a, %b;", c.name, ptx::name_of(type)),
                         Type::Pred,
                         {type, type},
                         [=](const Bits* o) { return Bits{model(o)}; }});
        cases.push_back({fmt::format("set.{}.u32.{} %d, %a, %b;", c.name, ptx::name_of(type)),
                         Type::U32,
                         {type, type},
                         [=](const Bits* o) { return model(o) ? 0xffffffff : 0; }});
    };
    for (Type type : arithmetic_types())
        for (const Comparison& c : kComparisons) add(c, type);
    for (Type type : {Type::B16, Type::B32, Type::B64})
        for (const Comparison& c : {kComparisons[0], kComparisons[1]}) add(c, type);
    for (Type type : {Type::U32, Type::U64})
        for (const Comparison& c : kUnsignedNames) add(c, type);
    check_instructions(cases);
}

TEST_CASE("integer compare: moves and selections of every type keep the bits") {
    std::vector<InstructionCase> cases;
    for (Type type : {Type::B16, Type::U16, Type::S16, Type::B32, Type::U32, Type::S32, Type::F32, Type::B64,
                      Type::U64, Type::S64, Type::F64}) {
        const std::string_view name = ptx::name_of(type);
        cases.push_back(
            {fmt::format("mov.{} %d, %a;", name), type, {type}, [](const Bits* o) { return o[0]; }});
        cases.push_back(
            {fmt::format("{{ .reg .pred p; setp.lt.s32 p, %c, 5; selp.{} %d, %a, %b, p; }}", name),
             type,
             {type, type, Type::S32},
             [](const Bits* o) { return static_cast<std::int32_t>(o[2]) < 5 ? o[0] : o[1]; }});
    }
    check_instructions(cases, true);
}

TEST_CASE("integer compare: conversions between integers") {
    static constexpr Type kTypes[] = {Type::U8,  Type::S8,  Type::U16, Type::S16,
                                      Type::U32, Type::S32, Type::U64, Type::S64};
    std::vector<InstructionCase> cases;
    for (Type to : kTypes)
        for (Type from : kTypes) {
            cases.push_back({fmt::format("cvt.{}.{} %d, %a;", ptx::name_of(to), ptx::name_of(from)),
                             to,
                             {from},
                             [=](const Bits* o) { return static_cast<Bits>(value(from, o[0])); }});
            cases.push_back({fmt::format("cvt.sat.{}.{} %d, %a;", ptx::name_of(to), ptx::name_of(from)),
                             to,
                             {from},
                             [=](const Bits* o) {
                                 return static_cast<Bits>(
                                     std::clamp(value(from, o[0]), lowest(to), highest(to)));
                             }});
        }
    // A narrow value fills a wider register: with its sign if it has one.
    cases.push_back(
        {"{ .reg .u32 w; cvt.s32.s8 w, %a; cvt.s64.s32 %d, w; }", Type::S64, {Type::U32}, [](const Bits* o) {
             return static_cast<Bits>(value(Type::S8, o[0] & 0xff));
         }});
    check_instructions(cases);
}

}  // namespace
}  // namespace simcuda::testing
