// The table of value instructions.
#include "tools/simcuda/ptx/instruction_set.h"

#include <string>
#include <unordered_map>

namespace simcuda::ptx {
namespace {

using enum Type;

constexpr TypeSet kI16to64 = types_of(U16, S16, U32, S32, U64, S64);
constexpr TypeSet kI32to64 = types_of(U32, S32, U64, S64);
constexpr TypeSet kI32 = types_of(U32, S32);
constexpr TypeSet kB16to64 = types_of(B16, B32, B64);
constexpr TypeSet kF32F64 = types_of(F32, F64);
constexpr TypeSet kF32 = types_of(F32);
constexpr TypeSet kF64 = types_of(F64);
constexpr TypeSet kHalf = types_of(F16, F16x2);
constexpr TypeSet kBf = types_of(Bf16, Bf16x2);
constexpr TypeSet kHalves = kHalf | kBf;
constexpr TypeSet kSelectable = kB16to64 | kI16to64 | kF32F64 | kHalves;
constexpr unsigned kF = kRounds | kFlushes | kSaturates;

constexpr Rule kRules[] = {
    // Integer arithmetic
    {"add", kI16to64, "t=tt", "$1 + $2"},
    {"add.sat", types_of(S32), "t=tt", "sc_add_sat($1, $2)"},
    {"add.cc", kI32to64, "t=tt", "sc_add_cc_$t($1, $2, 0, &carry)"},
    {"addc", kI32to64, "t=tt", "$1 + $2 + carry"},
    {"addc.cc", kI32to64, "t=tt", "sc_add_cc_$t($1, $2, carry, &carry)"},
    {"sub", kI16to64, "t=tt", "$1 - $2"},
    {"sub.sat", types_of(S32), "t=tt", "sc_sub_sat($1, $2)"},
    // A difference is a sum with the complement: what it leaves in the flag is a carry, the borrow's
    // opposite.
    {"sub.cc", kI32to64, "t=tt", "sc_add_cc_$t($1, ~$2, 1, &carry)"},
    {"subc", kI32to64, "t=tt", "$1 + ~$2 + carry"},
    {"subc.cc", kI32to64, "t=tt", "sc_add_cc_$t($1, ~$2, carry, &carry)"},
    {"mul.lo", kI16to64, "t=tt", "$1 * $2"},
    {"mul.hi", kI16to64, "t=tt", "sc_mul_hi_$t($1, $2)"},
    {"mul.wide", types_of(U16, S16, U32, S32), "w=tt", "($w)$1 * ($w)$2"},
    {"mad.lo", kI16to64, "t=ttt", "$1 * $2 + $3"},
    {"mad.hi", kI16to64, "t=ttt", "sc_mul_hi_$t($1, $2) + $3"},
    {"mad.hi.sat", types_of(S32), "t=ttt", "sc_add_sat(sc_mul_hi_s32($1, $2), $3)"},
    {"mad.wide", types_of(U16, S16, U32, S32), "w=ttw", "($w)$1 * ($w)$2 + $3"},
    {"mad.lo.cc", kI32to64, "t=ttt", "sc_add_cc_$t($1 * $2, $3, 0, &carry)"},
    {"mad.hi.cc", kI32to64, "t=ttt", "sc_add_cc_$t(sc_mul_hi_$t($1, $2), $3, 0, &carry)"},
    {"madc.lo", kI32to64, "t=ttt", "$1 * $2 + $3 + carry"},
    {"madc.hi", kI32to64, "t=ttt", "sc_mul_hi_$t($1, $2) + $3 + carry"},
    {"madc.lo.cc", kI32to64, "t=ttt", "sc_add_cc_$t($1 * $2, $3, carry, &carry)"},
    {"madc.hi.cc", kI32to64, "t=ttt", "sc_add_cc_$t(sc_mul_hi_$t($1, $2), $3, carry, &carry)"},
    {"mul24.lo", kI32, "t=tt", "sc_mul24_lo_$t($1, $2)"},
    {"mul24.hi", kI32, "t=tt", "sc_mul24_hi_$t($1, $2)"},
    {"mad24.lo", kI32, "t=ttt", "sc_mul24_lo_$t($1, $2) + $3"},
    {"mad24.hi", kI32, "t=ttt", "sc_mul24_hi_$t($1, $2) + $3"},
    {"mad24.hi.sat", types_of(S32), "t=ttt", "sc_add_sat(sc_mul24_hi_s32($1, $2), $3)"},
    {"sad", kI16to64, "t=ttt", "$3 + ($1 < $2 ? $2 - $1 : $1 - $2)"},
    {"div", kI16to64, "t=tt", "sc_div_$t($1, $2)"},
    {"rem", kI16to64, "t=tt", "sc_rem_$t($1, $2)"},
    {"abs", kSigned, "t=t", "$1 < 0 ? -$1 : $1"},
    {"neg", kSigned, "t=t", "-$1"},
    {"min", kI16to64, "t=tt", "$1 < $2 ? $1 : $2"},
    {"max", kI16to64, "t=tt", "$1 > $2 ? $1 : $2"},
    {"min.relu", types_of(S32), "t=tt", "sc_relu_s32($1 < $2 ? $1 : $2)"},
    {"max.relu", types_of(S32), "t=tt", "sc_relu_s32($1 > $2 ? $1 : $2)"},
    // Without .sat the signs of the operands make no difference to 32 bits of the result.
    {"vadd", kI32, "u=uu", "$1 + $2", kThreeTypes},
    {"vadd.add", kI32, "u=uuu", "$1 + $2 + $3", kThreeTypes},
    {"vsub", kI32, "u=uu", "$1 - $2", kThreeTypes},
    {"vsub.add", kI32, "u=uuu", "$1 - $2 + $3", kThreeTypes},
    {"dp4a", kI32, "u=uuu", "sc_dp4a_$t_$s($1, $2, $3)"},
    {"dp2a.lo", kI32, "u=uuu", "sc_dp2a_$t_$s($1, $2, $3)"},
    {"dp2a.hi", kI32, "u=uuu", "sc_dp2a_$t_$s($1, $2 >> 16, $3)"},

    // Bits
    {"popc", types_of(B32, B64), "u=t", "__builtin_popcountl($1)"},
    {"clz", types_of(B32, B64), "u=t", "sc_clz_$t($1)"},
    {"bfind", kI32to64, "u=t", "sc_bfind_$t($1)"},
    {"bfind.shiftamt", kI32to64, "u=t", "sc_bfind_shift_$t($1)"},
    {"brev", types_of(B32, B64), "t=t", "sc_brev_$t($1)"},
    {"fns", types_of(B32), "u=uui", "sc_fns($1, $2, $3)"},
    {"bfe", kI32to64, "t=tuu", "sc_bfe_$t($1, $2, $3)"},
    {"bfi", types_of(B32, B64), "t=ttuu", "sc_bfi_$t($1, $2, $3, $4)"},
    {"szext.wrap", kI32, "t=tu", "sc_szext_$t($1, $2 & 31)"},
    {"szext.clamp", kI32, "t=tu", "sc_szext_$t($1, $2)"},
    {"bmsk.wrap", types_of(B32), "u=uu", "sc_bmsk($1 & 31, $2 & 31)"},
    {"bmsk.clamp", types_of(B32), "u=uu", "sc_bmsk($1, $2)"},
    {"and", kB16to64 | types_of(Pred), "t=tt", "$1 & $2"},
    {"or", kB16to64 | types_of(Pred), "t=tt", "$1 | $2"},
    {"xor", kB16to64 | types_of(Pred), "t=tt", "$1 ^ $2"},
    {"not", kB16to64, "t=t", "~$1"},
    {"not", types_of(Pred), "t=t", "!$1"},
    {"cnot", kB16to64, "t=t", "$1 == 0"},
    {"lop3", types_of(B32), "t=tttu", "sc_lop3($1, $2, $3, $4)"},
    {"shl", kB16to64, "t=tu", "sc_shl_$t($1, $2)"},
    {"shr", kB16to64 | kI16to64, "t=tu", "sc_shr_$t($1, $2)"},
    {"shf.l.wrap", types_of(B32), "t=ttu", "sc_shf_l($1, $2, $3 & 31)"},
    {"shf.l.clamp", types_of(B32), "t=ttu", "sc_shf_l($1, $2, $3 > 32 ? 32 : $3)"},
    {"shf.r.wrap", types_of(B32), "t=ttu", "sc_shf_r($1, $2, $3 & 31)"},
    {"shf.r.clamp", types_of(B32), "t=ttu", "sc_shf_r($1, $2, $3 > 32 ? 32 : $3)"},
    {"prmt", types_of(B32), "t=ttu", "sc_prmt($1, $2, $3)"},
    {"prmt.f4e", types_of(B32), "t=ttu", "sc_prmt($1, $2, 0x3210 + 0x1111 * ($3 & 3))"},
    {"prmt.b4e", types_of(B32), "t=ttu", "sc_prmt($1, $2, sc_prmt_b4e($3))"},
    {"prmt.rc8", types_of(B32), "t=ttu", "sc_prmt($1, $2, 0x1111 * ($3 & 3))"},
    {"prmt.ecl", types_of(B32), "t=ttu", "sc_prmt($1, $2, sc_prmt_ecl($3))"},
    {"prmt.ecr", types_of(B32), "t=ttu", "sc_prmt($1, $2, sc_prmt_ecr($3))"},
    {"prmt.rc16", types_of(B32), "t=ttu", "sc_prmt($1, $2, $3 & 1 ? 0x3232 : 0x1010)"},
    {"selp", kSelectable, "t=ttp", "$3 ? $1 : $2"},
    {"slct", kSelectable, "t=tts", "$3 >= 0 ? $1 : $2", kFlushes},

    // Floating point
    {"add", kF32F64 | kHalves, "t=tt", "sc_add_$t$r($1, $2)", kF},
    {"sub", kF32F64 | kHalves, "t=tt", "sc_sub_$t$r($1, $2)", kF},
    {"mul", kF32F64 | kHalves, "t=tt", "sc_mul_$t$r($1, $2)", kF},
    {"fma", kF32F64 | kHalves, "t=ttt", "sc_fma_$t$r($1, $2, $3)", kF},
    {"fma.relu", kHalves, "t=ttt", "sc_relu_$t(sc_fma_$t$r($1, $2, $3))", kRounds | kFlushes},
    {"mad", kF32F64, "t=ttt", "sc_fma_$t$r($1, $2, $3)", kF},
    {"div", kF32F64, "t=tt", "sc_div_$t$r($1, $2)", kRounds | kFlushes},
    {"div.approx", kF32, "t=tt", "sc_div_approx($1, $2)", kFlushes},
    {"div.full", kF32, "t=tt", "sc_div_f32($1, $2)", kFlushes},
    {"rcp", kF32F64, "t=t", "sc_div_$t$r(1, $1)", kRounds | kFlushes},
    {"rcp.approx", kF32, "t=t", "1 / $1", kFlushes},
    {"rcp.approx.ftz", kF64, "t=t", "sc_rcp_approx_f64($1)"},
    {"sqrt", kF32F64, "t=t", "sc_sqrt_$t$r($1)", kRounds | kFlushes},
    {"sqrt.approx", kF32, "t=t", "sc_sqrt_f32($1)", kFlushes},
    {"rsqrt.approx", kF32, "t=t", "sc_rsqrt_f32($1)", kFlushes},
    {"rsqrt.approx.ftz", kF64, "t=t", "sc_rsqrt_approx_f64($1)"},
    {"rsqrt.approx", kF64, "t=t", "1 / __builtin_sqrt($1)"},
    {"sin.approx", kF32, "t=t", "__builtin_sinf($1)", kFlushes},
    {"cos.approx", kF32, "t=t", "__builtin_cosf($1)", kFlushes},
    {"lg2.approx", kF32, "t=t", "__builtin_log2f($1)", kFlushes},
    {"ex2.approx", kF32, "t=t", "__builtin_exp2f($1)", kFlushes},
    {"ex2.approx", kHalves, "t=t", "sc_ex2_$t($1)", kFlushes},
    {"tanh.approx", kF32, "t=t", "__builtin_tanhf($1)"},
    {"tanh.approx", kHalves, "t=t", "sc_tanh_$t($1)"},
    {"abs", kF32F64 | kHalves, "t=t", "sc_abs_$t($1)", kFlushes},
    {"neg", kF32F64 | kHalves, "t=t", "sc_neg_$t($1)", kFlushes},
    {"min", kF32F64 | kHalves, "t=tt", "sc_min_$t($1, $2)", kFlushes},
    {"max", kF32F64 | kHalves, "t=tt", "sc_max_$t($1, $2)", kFlushes},
    {"min", kF32, "t=ttt", "sc_min_f32(sc_min_f32($1, $2), $3)", kFlushes},
    {"max", kF32, "t=ttt", "sc_max_f32(sc_max_f32($1, $2), $3)", kFlushes},
    {"min.NaN", kF32 | kHalves, "t=tt", "sc_min_nan_$t($1, $2)", kFlushes},
    {"max.NaN", kF32 | kHalves, "t=tt", "sc_max_nan_$t($1, $2)", kFlushes},
    {"copysign", kF32F64, "t=tt", "sc_copysign_$t($1, $2)"},
    {"testp.finite", kF32F64, "p=t", "__builtin_isfinite($1)"},
    {"testp.infinite", kF32F64, "p=t", "__builtin_isinf($1) != 0"},
    {"testp.number", kF32F64, "p=t", "!__builtin_isnan($1)"},
    {"testp.notanumber", kF32F64, "p=t", "__builtin_isnan($1) != 0"},
    {"testp.normal", kF32F64, "p=t", "__builtin_isnormal($1)"},
    {"testp.subnormal", kF32F64, "p=t", "$1 != 0 && __builtin_isfinite($1) && !__builtin_isnormal($1)"},

};

// True when the row's name asks for nothing the instruction lacks, and the instruction for nothing beside it
// that the row's flags do not allow.
bool matches(const Rule& rule, const Instruction& instruction) {
    if (!contains(rule.types, instruction.type())) return false;
    if (rule.signature.size() - 1 != instruction.operands.size()) return false;
    const bool second =
        rule.signature.find('s') != std::string_view::npos || rule.code.find("$s") != std::string_view::npos;
    if (instruction.types.size() != (rule.flags & kThreeTypes ? 3 : second ? 2 : 1)) return false;
    if (rule.flags & kThreeTypes)
        for (const Type type : instruction.types)
            if (!contains(rule.types, type)) return false;
    std::string_view wanted = rule.name.substr(instruction.opcode.size());
    std::size_t selected = 0;
    while (!wanted.empty()) {
        const std::size_t end = wanted.find('.', 1);
        if (!instruction.has(wanted.substr(1, end - 1))) return false;
        wanted = end == std::string_view::npos ? std::string_view() : wanted.substr(end);
        ++selected;
    }
    std::size_t allowed = 0;
    for (std::string_view m : instruction.modifiers) {
        const bool named =
            ("." + std::string(rule.name) + ".").find("." + std::string(m) + ".") != std::string::npos;
        if (named) continue;
        const bool rounds = m == "rn" || m == "rz" || m == "rm" || m == "rp";
        if ((rounds && rule.flags & kRounds) || (m == "ftz" && rule.flags & kFlushes) ||
            (m == "sat" && rule.flags & kSaturates))
            ++allowed;
    }
    return selected + allowed == instruction.modifiers.size();
}

}  // namespace

const Rule* find_rule(const Instruction& instruction) {
    static const auto* by_opcode = [] {
        auto* map = new std::unordered_multimap<std::string_view, const Rule*>;
        for (const Rule& rule : kRules) map->emplace(rule.name.substr(0, rule.name.find('.')), &rule);
        return map;
    }();
    const auto [begin, end] = by_opcode->equal_range(instruction.opcode);
    for (auto row = begin; row != end; ++row)
        if (matches(*row->second, instruction)) return row->second;
    return nullptr;
}

}  // namespace simcuda::ptx
