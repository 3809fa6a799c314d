// Integer arithmetic and bit instructions against exact models.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <string>

#include "tests/ptx/integers.h"

namespace simcuda::testing {
namespace {

InstructionCase binary(std::string_view opcode, Type type, Wide (*model)(Wide, Wide)) {
    return {
        fmt::format("{}.{} %d, %a, %b;", opcode, ptx::name_of(type)), type, {type, type}, [=](const Bits* o) {
            return static_cast<Bits>(model(value(type, o[0]), value(type, o[1])));
        }};
}

InstructionCase unary(std::string_view opcode, Type type, Type result, std::function<Bits(Bits)> model) {
    return {fmt::format("{}.{} %d, %a;", opcode, ptx::name_of(type)), result, {type}, [=](const Bits* o) {
                return model(o[0]);
            }};
}

TEST_CASE("integer: integer arithmetic wraps to its width") {
    std::vector<InstructionCase> cases;
    for (Type type : arithmetic_types()) {
        cases.push_back(binary("add", type, [](Wide a, Wide b) { return a + b; }));
        cases.push_back(binary("sub", type, [](Wide a, Wide b) { return a - b; }));
        cases.push_back(binary("min", type, [](Wide a, Wide b) { return std::min(a, b); }));
        cases.push_back(binary("max", type, [](Wide a, Wide b) { return std::max(a, b); }));
        // Modulo 2^128 the low half of a product does not depend on overflow.
        cases.push_back(binary("mul.lo", type, [](Wide a, Wide b) {
            return static_cast<Wide>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
        }));
        cases.push_back({fmt::format("mad.lo.{} %d, %a, %b, %c;", ptx::name_of(type)),
                         type,
                         {type, type, type},
                         [](const Bits* o) { return o[0] * o[1] + o[2]; }});
        cases.push_back({fmt::format("sad.{} %d, %a, %b, %c;", ptx::name_of(type)),
                         type,
                         {type, type, type},
                         [=](const Bits* o) {
                             const Wide a = value(type, o[0]), b = value(type, o[1]);
                             return static_cast<Bits>((a > b ? a - b : b - a) + static_cast<Wide>(o[2]));
                         }});
        const auto high = [=](Bits a, Bits b) {
            if (width(type) < 64) return static_cast<Bits>(value(type, a) * value(type, b) >> width(type));
            const auto product = static_cast<unsigned __int128>(value(type, a)) *
                                 static_cast<unsigned __int128>(value(type, b));
            return static_cast<Bits>(product >> 64);
        };
        cases.push_back({fmt::format("mul.hi.{} %d, %a, %b;", ptx::name_of(type)),
                         type,
                         {type, type},
                         [=](const Bits* o) { return high(o[0], o[1]); }});
        cases.push_back({fmt::format("mad.hi.{} %d, %a, %b, %c;", ptx::name_of(type)),
                         type,
                         {type, type, type},
                         [=](const Bits* o) { return high(o[0], o[1]) + o[2]; }});
        if (width(type) == 64) continue;
        const Type wide = ptx::widened(type);
        cases.push_back(
            {fmt::format("mul.wide.{} %d, %a, %b;", ptx::name_of(type)),
             wide,
             {type, type},
             [=](const Bits* o) { return static_cast<Bits>(value(type, o[0]) * value(type, o[1])); }});
        cases.push_back(
            {fmt::format("mad.wide.{} %d, %a, %b, %c;", ptx::name_of(type)),
             wide,
             {type, type, wide},
             [=](const Bits* o) { return static_cast<Bits>(value(type, o[0]) * value(type, o[1])) + o[2]; }});
    }
    check_instructions(cases);
}

TEST_CASE("division: by zero, and where it overflows") {
    std::vector<InstructionCase> cases;
    for (Type type : arithmetic_types()) {
        cases.push_back(binary("div", type, [](Wide a, Wide b) { return b == 0 ? Wide{-1} : a / b; }));
        cases.push_back(binary("rem", type, [](Wide a, Wide b) { return b == 0 ? a : a % b; }));
    }
    check_instructions(cases);
}

TEST_CASE("integer: saturating and 24-bit arithmetic, sign") {
    const auto clamp = [](Wide v) {
        return static_cast<Bits>(std::clamp(v, lowest(Type::S32), highest(Type::S32)));
    };
    const auto s = [](Bits v) { return value(Type::S32, v); };
    const auto s24 = [](Bits v) { return Wide{static_cast<std::int64_t>(v << 40) >> 40}; };
    std::vector<InstructionCase> cases = {
        {"add.sat.s32 %d, %a, %b;",
         Type::S32,
         {Type::S32, Type::S32},
         [=](const Bits* o) { return clamp(s(o[0]) + s(o[1])); }},
        {"sub.sat.s32 %d, %a, %b;",
         Type::S32,
         {Type::S32, Type::S32},
         [=](const Bits* o) { return clamp(s(o[0]) - s(o[1])); }},
        {"mad.hi.sat.s32 %d, %a, %b, %c;",
         Type::S32,
         {Type::S32, Type::S32, Type::S32},
         [=](const Bits* o) { return clamp((s(o[0]) * s(o[1]) >> 32) + s(o[2])); }},
        {"mul24.lo.s32 %d, %a, %b;",
         Type::S32,
         {Type::S32, Type::S32},
         [=](const Bits* o) { return static_cast<Bits>(s24(o[0]) * s24(o[1])); }},
        {"mul24.hi.s32 %d, %a, %b;",
         Type::S32,
         {Type::S32, Type::S32},
         [=](const Bits* o) { return static_cast<Bits>(s24(o[0]) * s24(o[1]) >> 16); }},
        {"mul24.lo.u32 %d, %a, %b;",
         Type::U32,
         {Type::U32, Type::U32},
         [](const Bits* o) { return (o[0] & 0xffffff) * (o[1] & 0xffffff); }},
        {"mad24.lo.u32 %d, %a, %b, %c;",
         Type::U32,
         {Type::U32, Type::U32, Type::U32},
         [](const Bits* o) { return (o[0] & 0xffffff) * (o[1] & 0xffffff) + o[2]; }},
    };
    for (Type type : {Type::S16, Type::S32, Type::S64}) {
        cases.push_back(unary("abs", type, type, [=](Bits a) {
            const Wide v = value(type, a);
            return static_cast<Bits>(v < 0 ? -v : v);
        }));
        cases.push_back(unary("neg", type, type, [=](Bits a) { return static_cast<Bits>(-value(type, a)); }));
    }
    check_instructions(cases);
}

TEST_CASE("integer: carry chains") {
    // 128-bit sums and products in 32-bit pieces come out as the hardware's 64-bit ones.
    check_instructions({
        {"{ .reg .u32 al, ah, bl, bh; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b;"
         " add.cc.u32 al, al, bl; addc.u32 ah, ah, bh; mov.b64 %d, {al, ah}; }",
         Type::U64,
         {Type::U64, Type::U64},
         [](const Bits* o) { return o[0] + o[1]; }},
        {"{ .reg .u32 al, ah, bl, bh; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b;"
         " sub.cc.u32 al, al, bl; subc.u32 ah, ah, bh; mov.b64 %d, {al, ah}; }",
         Type::U64,
         {Type::U64, Type::U64},
         [](const Bits* o) { return o[0] - o[1]; }},
        {"{ .reg .u64 low, high; add.cc.u64 low, %a, %b; addc.cc.u64 high, %a, %b; addc.u64 %d, high, 0; }",
         Type::U64,
         {Type::U64, Type::U64},
         [](const Bits* o) {
             unsigned __int128 sum = static_cast<unsigned __int128>(o[0]) + o[1];
             unsigned __int128 next =
                 static_cast<unsigned __int128>(o[0]) + o[1] + static_cast<Bits>(sum >> 64);
             return static_cast<Bits>(next) + static_cast<Bits>(next >> 64);
         }},
        {"{ .reg .u32 al, ah, bl, bh, r0, r1, r2, r3; .reg .u64 low; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, "
         "%b;"
         " mul.lo.u32 r0, al, bl; mul.hi.u32 r1, al, bl;"
         " mad.lo.cc.u32 r1, ah, bl, r1; madc.hi.u32 r2, ah, bl, 0;"
         " mad.lo.cc.u32 r1, al, bh, r1; madc.hi.cc.u32 r2, al, bh, r2; addc.u32 r3, 0, 0;"
         " mad.lo.cc.u32 r2, ah, bh, r2; madc.hi.u32 r3, ah, bh, r3; mov.b64 %d, {r2, r3}; }",
         Type::U64,
         {Type::U64, Type::U64},
         [](const Bits* o) { return static_cast<Bits>(static_cast<unsigned __int128>(o[0]) * o[1] >> 64); }},
        // 96 bits in three words: the middle one takes a carry and gives one.
        {"{ .reg .u32 al, ah, bl, bh, t; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b;"
         " add.cc.u32 t, al, bl; addc.cc.u32 t, ah, bh; addc.u32 %d, 0, 0; }",
         Type::U32,
         {Type::U64, Type::U64},
         [](const Bits* o) { return static_cast<Bits>(o[0] + o[1] < o[0]); }},
        {"{ .reg .u32 al, ah, bl, bh, t; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b;"
         " sub.cc.u32 t, al, bl; subc.cc.u32 t, ah, bh; subc.u32 %d, 0, 0; }",
         Type::U32,
         {Type::U64, Type::U64},
         [](const Bits* o) { return o[0] < o[1] ? 0xffffffff : 0; }},
        {"{ .reg .u32 t, high; add.cc.u32 t, %a, %b; madc.lo.cc.u32 t, %a, %b, %c; addc.u32 high, 0, 0;"
         " mov.b64 %d, {t, high}; }",
         Type::U64,
         {Type::U32, Type::U32, Type::U32},
         [](const Bits* o) { return (o[0] * o[1] & 0xffffffff) + o[2] + ((o[0] + o[1]) >> 32); }},
        // nvcc's division of 128 bits reads the flag of a subtraction by an addition: set where nothing was
        // borrowed.
        {"{ .reg .u32 t; sub.cc.u32 t, %a, %b; addc.u32 %d, 0, 0; }",
         Type::U32,
         {Type::U32, Type::U32},
         [](const Bits* o) { return static_cast<Bits>(o[0] >= o[1]); }},
        {"{ .reg .u32 t; add.cc.u32 t, %a, %b; subc.u32 %d, %c, 5; }",
         Type::U32,
         {Type::U32, Type::U32, Type::U32},
         [](const Bits* o) { return o[2] - 6 + (o[0] + o[1] > 0xffffffff ? 1 : 0); }},
        {"{ .reg .u32 t; sub.cc.u32 t, %a, %b; subc.u32 %d, 0, 0; }",
         Type::U32,
         {Type::U32, Type::U32},
         [](const Bits* o) { return o[0] < o[1] ? 0xffffffff : 0; }},
    });
}

TEST_CASE("integer: logic and shifts, by more than the width too") {
    std::vector<InstructionCase> cases;
    for (Type type : {Type::B16, Type::B32, Type::B64}) {
        const unsigned w = width(type);
        const std::string_view name = ptx::name_of(type);
        const auto logic = [&](std::string_view op, Bits (*model)(Bits, Bits)) {
            cases.push_back(
                {fmt::format("{}.{} %d, %a, %b;", op, name), type, {type, type}, [=](const Bits* o) {
                     return model(o[0], o[1]);
                 }});
        };
        logic("and", [](Bits a, Bits b) { return a & b; });
        logic("or", [](Bits a, Bits b) { return a | b; });
        logic("xor", [](Bits a, Bits b) { return a ^ b; });
        cases.push_back(unary("not", type, type, [](Bits a) { return ~a; }));
        cases.push_back(unary("cnot", type, type, [](Bits a) { return Bits{a == 0}; }));
        cases.push_back(
            {fmt::format("shl.{} %d, %a, %b;", name), type, {type, Type::U32}, [=](const Bits* o) {
                 return o[1] >= w ? 0 : o[0] << o[1];
             }});
        cases.push_back(
            {fmt::format("shr.{} %d, %a, %b;", name), type, {type, Type::U32}, [=](const Bits* o) {
                 return o[1] >= w ? 0 : o[0] >> o[1];
             }});
        const Type with_sign = w == 16 ? Type::S16 : w == 32 ? Type::S32 : Type::S64;
        const Type without = w == 16 ? Type::U16 : w == 32 ? Type::U32 : Type::U64;
        cases.push_back(
            {fmt::format("shr.s{} %d, %a, %b;", w), with_sign, {with_sign, Type::U32}, [=](const Bits* o) {
                 return static_cast<Bits>(value(with_sign, o[0]) >> std::min<Bits>(o[1], 64));
             }});
        cases.push_back(
            {fmt::format("shr.u{} %d, %a, %b;", w), without, {without, Type::U32}, [=](const Bits* o) {
                 return o[1] >= w ? 0 : o[0] >> o[1];
             }});
        cases.push_back(
            {fmt::format("selp.b{} %d, %a, %b, %c;", w), type, {type, type, Type::Pred}, [](const Bits* o) {
                 return o[2] ? o[0] : o[1];
             }});
        cases.push_back({fmt::format("slct.b{}.s32 %d, %a, %b, %c;", w),
                         type,
                         {type, type, Type::S32},
                         [](const Bits* o) { return value(Type::S32, o[2]) >= 0 ? o[0] : o[1]; }});
    }
    for (auto [op, model] :
         {std::pair<const char*, Bits (*)(Bits, Bits)>{"and", [](Bits a, Bits b) { return a & b; }},
          {"or", [](Bits a, Bits b) { return a | b; }},
          {"xor", [](Bits a, Bits b) { return a ^ b; }}}) {
        auto f = model;
        cases.push_back({fmt::format("{}.pred %d, %a, %b;", op),
                         Type::Pred,
                         {Type::Pred, Type::Pred},
                         [f](const Bits* o) { return f(o[0], o[1]); }});
    }
    cases.push_back(
        {"not.pred %d, %a;", Type::Pred, {Type::Pred}, [](const Bits* o) { return Bits{!o[0]}; }});
    cases.push_back({"mov.pred %d, %a;", Type::Pred, {Type::Pred}, [](const Bits* o) { return o[0]; }});
    cases.push_back(
        {"setp.ne.or.u32 %d, %a, 0, !%b;", Type::Pred, {Type::U32, Type::Pred}, [](const Bits* o) {
             return Bits{o[0] != 0 || !o[1]};
         }});
    cases.push_back({"setp.lt.and.s32 %p0|%p1, %a, 7, %b; xor.pred %d, %p0, %p1;",
                     Type::Pred,
                     {Type::S32, Type::Pred},
                     [](const Bits* o) { return o[1]; }});
    for (unsigned table : {0x00u, 0x96u, 0xe8u, 0xcau, 0x01u, 0xffu, 0x3cu})
        cases.push_back({fmt::format("lop3.b32 %d, %a, %b, %c, {};", table),
                         Type::B32,
                         {Type::B32, Type::B32, Type::B32},
                         [=](const Bits* o) {
                             Bits r = 0;
                             for (int i = 0; i < 32; ++i) {
                                 const Bits index =
                                     (o[0] >> i & 1) << 2 | (o[1] >> i & 1) << 1 | (o[2] >> i & 1);
                                 r |= Bits{table >> index & 1} << i;
                             }
                             return r;
                         }});
    const auto funnel = [](const Bits* o) { return static_cast<unsigned __int128>(o[1] << 32 | o[0]); };
    cases.push_back(
        {"shf.l.wrap.b32 %d, %a, %b, %c;", Type::B32, {Type::B32, Type::B32, Type::U32}, [=](const Bits* o) {
             return static_cast<Bits>(funnel(o) << (o[2] & 31) >> 32);
         }});
    cases.push_back(
        {"shf.l.clamp.b32 %d, %a, %b, %c;", Type::B32, {Type::B32, Type::B32, Type::U32}, [=](const Bits* o) {
             return static_cast<Bits>(funnel(o) << std::min<Bits>(o[2], 32) >> 32);
         }});
    cases.push_back(
        {"shf.r.wrap.b32 %d, %a, %b, %c;", Type::B32, {Type::B32, Type::B32, Type::U32}, [=](const Bits* o) {
             return static_cast<Bits>(funnel(o) >> (o[2] & 31));
         }});
    cases.push_back(
        {"shf.r.clamp.b32 %d, %a, %b, %c;", Type::B32, {Type::B32, Type::B32, Type::U32}, [=](const Bits* o) {
             return static_cast<Bits>(funnel(o) >> std::min<Bits>(o[2], 32));
         }});
    check_instructions(cases);
}

TEST_CASE("integer: counting, finding and moving bits") {
    std::vector<InstructionCase> cases;
    for (Type type : {Type::B32, Type::B64}) {
        const unsigned w = width(type);
        const auto top = [](Bits a) {
            int n = -1;
            for (; a; a >>= 1) ++n;
            return n;
        };
        cases.push_back(unary("popc", type, Type::U32, [](Bits a) { return std::bitset<64>(a).count(); }));
        cases.push_back(unary("clz", type, Type::U32,
                              [=](Bits a) { return static_cast<Bits>(static_cast<int>(w) - 1 - top(a)); }));
        cases.push_back(unary("brev", type, type, [=](Bits a) {
            Bits r = 0;
            for (unsigned i = 0; i < w; ++i) r |= (a >> i & 1) << (w - 1 - i);
            return r;
        }));
        for (bool with_sign : {false, true}) {
            const Type integer =
                w == 32 ? (with_sign ? Type::S32 : Type::U32) : (with_sign ? Type::S64 : Type::U64);
            const auto find = [=](Bits a) {
                return top(value(integer, a) < 0 ? static_cast<Bits>(~value(integer, a)) : a);
            };
            cases.push_back(
                unary("bfind", integer, Type::U32, [=](Bits a) { return static_cast<Bits>(find(a)); }));
            cases.push_back(unary("bfind.shiftamt", integer, Type::U32, [=](Bits a) {
                const int n = find(a);
                return n < 0 ? ~Bits{0} : w - 1 - static_cast<unsigned>(n);
            }));
            // Bit by bit, as the specification's pseudo-code has it.
            cases.push_back(
                {fmt::format("bfe.{} %d, %a, %b, %c;", ptx::name_of(integer)),
                 integer,
                 {integer, Type::U32, Type::U32},
                 [=](const Bits* o) {
                     const unsigned position = o[1] & 255, length = o[2] & 255, msb = w - 1;
                     const bool sign =
                         with_sign && length ? o[0] >> std::min(position + length - 1, msb) & 1 : false;
                     Bits r = 0;
                     for (unsigned i = 0; i <= msb; ++i)
                         r |= Bits{i < length && position + i <= msb ? (o[0] >> (position + i) & 1) : sign}
                              << i;
                     return r;
                 }});
        }
        cases.push_back({fmt::format("bfi.{} %d, %a, %b, %c, %e;", ptx::name_of(type)),
                         type,
                         {type, type, Type::U32, Type::U32},
                         [=](const Bits* o) {
                             Bits r = o[1];
                             const unsigned position = o[2] & 255, length = o[3] & 255;
                             for (unsigned i = 0; i < length && position + i < w; ++i)
                                 r = (r & ~(Bits{1} << (position + i))) | (o[0] >> i & 1) << (position + i);
                             return r;
                         }});
    }
    cases.push_back({"bmsk.clamp.b32 %d, %a, %b;", Type::B32, {Type::U32, Type::U32}, [](const Bits* o) {
                         Bits r = 0;
                         for (Bits i = 0; i < 32; ++i) r |= Bits{i >= o[0] && i - o[0] < o[1]} << i;
                         return r;
                     }});
    cases.push_back({"bmsk.wrap.b32 %d, %a, %b;", Type::B32, {Type::U32, Type::U32}, [](const Bits* o) {
                         Bits r = 0;
                         for (Bits i = 0; i < 32; ++i)
                             r |= Bits{i >= (o[0] & 31) && i - (o[0] & 31) < (o[1] & 31)} << i;
                         return r;
                     }});
    const auto byte_of = [](const Bits* o, Bits selector) {
        const Bits byte = (o[1] << 32 | o[0]) >> (selector & 7) * 8 & 0xff;
        return selector & 8 ? (byte & 0x80 ? 0xff : 0) : byte;
    };
    const auto permuted = [&](const char* mode, std::function<Bits(Bits selector, unsigned byte)> selection) {
        cases.push_back({fmt::format("prmt.b32{} %d, %a, %b, %c;", mode),
                         Type::B32,
                         {Type::B32, Type::B32, Type::B32},
                         [=](const Bits* o) {
                             Bits r = 0;
                             for (unsigned i = 0; i < 4; ++i) r |= byte_of(o, selection(o[2], i)) << 8 * i;
                             return r;
                         }});
    };
    permuted("", [](Bits s, unsigned i) { return s >> 4 * i & 15; });
    permuted(".f4e", [](Bits s, unsigned i) { return (s & 3) + i; });
    permuted(".b4e", [](Bits s, unsigned i) { return ((s & 3) - i) & 7; });
    permuted(".rc8", [](Bits s, unsigned) { return s & 3; });
    permuted(".ecl", [](Bits s, unsigned i) { return std::max<Bits>(s & 3, i); });
    permuted(".ecr", [](Bits s, unsigned i) { return std::min<Bits>(s & 3, i); });
    permuted(".rc16", [](Bits s, unsigned i) { return (s & 1) * 2 + (i & 1); });
    check_instructions(cases);
}

TEST_CASE("integer: dot products of bytes") {
    std::vector<InstructionCase> cases;
    for (Type a : {Type::U32, Type::S32})
        for (Type b : {Type::U32, Type::S32}) {
            const auto part = [](Type type, Bits word, unsigned index, unsigned size) {
                const Bits field = word >> index * size & ((1u << size) - 1);
                return static_cast<std::int64_t>(ptx::is_signed(type) && field >> (size - 1)
                                                     ? static_cast<std::int64_t>(field) - (1 << size)
                                                     : static_cast<std::int64_t>(field));
            };
            const std::string types = fmt::format("{}.{}", ptx::name_of(a), ptx::name_of(b));
            cases.push_back({fmt::format("dp4a.{} %d, %a, %b, %c;", types),
                             Type::U32,
                             {Type::B32, Type::B32, Type::B32},
                             [=](const Bits* o) {
                                 std::int64_t sum = static_cast<std::int64_t>(o[2]);
                                 for (unsigned i = 0; i < 4; ++i)
                                     sum += part(a, o[0], i, 8) * part(b, o[1], i, 8);
                                 return static_cast<Bits>(sum);
                             }});
            for (unsigned high : {0u, 1u})
                cases.push_back({fmt::format("dp2a.{}.{} %d, %a, %b, %c;", high ? "hi" : "lo", types),
                                 Type::U32,
                                 {Type::B32, Type::B32, Type::B32},
                                 [=](const Bits* o) {
                                     std::int64_t sum = static_cast<std::int64_t>(o[2]);
                                     for (unsigned i = 0; i < 2; ++i)
                                         sum += part(a, o[0], i, 16) * part(b, o[1], 2 * high + i, 8);
                                     return static_cast<Bits>(sum);
                                 }});
        }
    check_instructions(cases);
}

TEST_CASE("integer: sums and differences of the video unit") {
    std::vector<InstructionCase> cases;
    const Type types[] = {Type::U32, Type::S32};
    for (Type result : types)
        for (Type a : types)
            for (Type b : types) {
                const std::string names =
                    fmt::format("{}.{}.{}", ptx::name_of(result), ptx::name_of(a), ptx::name_of(b));
                const auto exact = [=](const Bits* o, Wide sign) {
                    return value(a, o[0]) + sign * value(b, o[1]);
                };
                for (const int sign : {1, -1}) {
                    const char* const opcode = sign > 0 ? "vadd" : "vsub";
                    cases.push_back(
                        {fmt::format("{}.{} %d, %a, %b;", opcode, names), result, {a, b}, [=](const Bits* o) {
                             return static_cast<Bits>(exact(o, sign));
                         }});
                    cases.push_back({fmt::format("{}.{}.add %d, %a, %b, %c;", opcode, names),
                                     result,
                                     {a, b, result},
                                     [=](const Bits* o) {
                                         return static_cast<Bits>(exact(o, sign) + value(result, o[2]));
                                     }});
                }
            }
    check_instructions(cases);
}

}  // namespace
}  // namespace simcuda::testing
