// setp, set and cvt.
#include <algorithm>
#include <array>

#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {
namespace {

constexpr std::string_view kComparisons =
    "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz";

constexpr bool is_half(Type type) {
    return type == Type::F16 || type == Type::Bf16;
}
constexpr bool is_packed(Type type) {
    return type == Type::F16x2 || type == Type::Bf16x2;
}
constexpr bool is_eighths(Type type) {
    return type == Type::E4m3x2 || type == Type::E5m2x2;
}
constexpr Type element_of(Type type) {
    return type == Type::F16x2 ? Type::F16 : Type::Bf16;
}

}  // namespace

// The C comparison for the instruction's operator. `a` and `b` are plain names or literals, used more than
// once.
std::string FunctionEmitter::comparison(const Instruction& instruction, Type type, const std::string& a,
                                        const std::string& b) {
    struct Operator {
        std::string_view name;
        std::string_view floating;
        std::string_view integer;
    };
    // The unordered forms are true when an operand is NaN: the negation of the opposite ordered one.
    static constexpr Operator kOperators[] = {
        {"eq", "{0} == {1}", "{0} == {1}"},
        {"ne", "__builtin_islessgreater({0}, {1})", "{0} != {1}"},
        {"lt", "{0} < {1}", "{0} < {1}"},
        {"le", "{0} <= {1}", "{0} <= {1}"},
        {"gt", "{0} > {1}", "{0} > {1}"},
        {"ge", "{0} >= {1}", "{0} >= {1}"},
        {"lo", "", "{0} < {1}"},
        {"ls", "", "{0} <= {1}"},
        {"hi", "", "{0} > {1}"},
        {"hs", "", "{0} >= {1}"},
        {"equ", "!__builtin_islessgreater({0}, {1})", ""},
        {"neu", "{0} != {1}", ""},
        {"ltu", "!({0} >= {1})", ""},
        {"leu", "!({0} > {1})", ""},
        {"gtu", "!({0} <= {1})", ""},
        {"geu", "!({0} < {1})", ""},
        {"num", "!__builtin_isunordered({0}, {1})", ""},
        {"nan", "__builtin_isunordered({0}, {1})", ""},
    };
    for (const Operator& op : kOperators) {
        if (!instruction.has(op.name)) continue;
        const std::string_view form = is_float(type) ? op.floating : op.integer;
        if (form.empty()) break;
        return fmt::format(fmt::runtime(form), a, b);
    }
    refuse(instruction);
}

// The result combined with the predicate that some forms have as last operand.
std::string FunctionEmitter::combined(const Instruction& instruction, const std::string& value) {
    for (const auto& [name, symbol] :
         {std::pair<std::string_view, char>{"and", '&'}, {"or", '|'}, {"xor", '^'}}) {
        if (!instruction.has(name)) continue;
        expect_operands(instruction, 4, 4);
        return fmt::format("({}) {} {}", value, symbol, read(instruction.operands[3], Type::Pred));
    }
    expect_operands(instruction, 3, 3);
    return value;
}

void FunctionEmitter::emit_set_predicate(const Instruction& instruction) {
    allow(instruction, kComparisons);
    if (instruction.types.size() != 1 || instruction.operands.size() < 3) refuse(instruction);
    const Type type = instruction.type();
    if (is_packed(type)) return emit_packed_comparison(instruction);
    const bool ftz = instruction.has("ftz") && type != Type::F64;
    const auto operand = [&](std::size_t index) {
        std::string value = read(instruction.operands[index], type);
        if (ftz) value = fmt::format("sc_ftz_{}({})", name_of(type), value);
        return is_half(type) ? fmt::format("sc_wide_{}({})", name_of(type), value) : value;
    };
    line("    {{ const _Bool result = {};", comparison(instruction, type, operand(1), operand(2)));
    const Operand& target = instruction.operands[0];
    const Operand* first = target.kind == Operand::Kind::Pair ? &target.parts[0] : &target;
    // Both results before either is written: the combining predicate may be one of the targets.
    line("    const _Bool direct = {};", combined(instruction, "result"));
    if (target.kind == Operand::Kind::Pair) {
        line("    const _Bool inverse = {};", combined(instruction, "!result"));
        write(target.parts[1], Type::Pred, "inverse");
    }
    write(*first, Type::Pred, "direct");
    line("    }}");
}

// setp on packed halves: p|q get the results of the low and the high element.
void FunctionEmitter::emit_packed_comparison(const Instruction& instruction) {
    const Operand& target = instruction.operands[0];
    if (target.kind != Operand::Kind::Pair || target.parts.size() != 2) refuse(instruction);
    const Type packed = instruction.type();
    const Type type = element_of(packed);
    for (std::size_t half = 0; half < 2; ++half) {
        const auto operand = [&](std::size_t index) {
            std::string value =
                fmt::format("(u16)({} >> {})", read(instruction.operands[index], packed), half * 16);
            if (instruction.has("ftz")) value = fmt::format("sc_ftz_{}({})", name_of(type), value);
            return fmt::format("sc_wide_{}({})", name_of(type), value);
        };
        line("    {{ const _Bool result = {};", comparison(instruction, type, operand(1), operand(2)));
        write(target.parts[half], Type::Pred, combined(instruction, "result"));
        line("    }}");
    }
}

void FunctionEmitter::emit_set(const Instruction& instruction) {
    allow(instruction, kComparisons);
    if (instruction.types.size() != 2 || instruction.operands.size() < 3) refuse(instruction);
    const Type to = instruction.types[0];
    const Type from = instruction.types[1];
    const bool packed = is_packed(from);
    const Type element = packed ? element_of(from) : from;
    const auto truth = [&](unsigned shift) {
        const auto operand = [&](std::size_t index) {
            std::string value = read(instruction.operands[index], from);
            if (packed) value = fmt::format("(u16)({} >> {})", value, shift);
            if (instruction.has("ftz") && from != Type::F64)
                value = fmt::format("sc_ftz_{}({})", name_of(element), value);
            return is_half(element) ? fmt::format("sc_wide_{}({})", name_of(element), value) : value;
        };
        return fmt::format("({})",
                           combined(instruction, comparison(instruction, element, operand(1), operand(2))));
    };
    std::string value;
    switch (to) {
        case Type::F32:
            value = truth(0) + " ? 1.0f : 0.0f";
            break;
        case Type::F16:
            value = truth(0) + " ? 0x3c00 : 0";
            break;
        case Type::Bf16:
            value = truth(0) + " ? 0x3f80 : 0";
            break;
        case Type::F16x2:
            value = fmt::format("({} ? 0x3c00u : 0) | ({} ? 0x3c000000u : 0)", truth(0), truth(16));
            break;
        case Type::Bf16x2:
            value = fmt::format("({} ? 0x3f80u : 0) | ({} ? 0x3f800000u : 0)", truth(0), truth(16));
            break;
        case Type::U32:
        case Type::S32:
            value = packed ? fmt::format("({} ? 0xffffu : 0) | ({} ? 0xffff0000u : 0)", truth(0), truth(16))
                           : truth(0) + " ? -1 : 0";
            break;
        case Type::U16:
        case Type::S16:
            value = truth(0) + " ? -1 : 0";
            break;
        default:
            refuse(instruction);
    }
    if (packed && bytes_of(to) != 4) refuse(instruction);
    write(instruction.operands[0], to, value);
}

void FunctionEmitter::emit_convert(const Instruction& instruction) {
    if (instruction.types.size() != 2) refuse(instruction);
    const Type to = instruction.types[0];
    const Type from = instruction.types[1];
    if (to == Type::Tf32) return emit_convert_to_tf32(instruction);
    if (is_eighths(to) || is_eighths(from)) return emit_convert_eighths(instruction);
    allow(instruction, "rn rz rm rp rni rzi rmi rpi ftz sat relu");
    if (is_packed(to)) {
        // Two floats to a pair: the first operand is the upper half.
        if (from != Type::F32) refuse(instruction);
        expect_operands(instruction, 3, 3);
        const Type element = element_of(to);
        line("    {{ const u16 high = {};",
             convert(instruction, element, from, read(instruction.operands[1], from)));
        line("    const u16 low = {};",
             convert(instruction, element, from, read(instruction.operands[2], from)));
        write(instruction.operands[0], to, "(u32)high << 16 | low");
        line("    }}");
        return;
    }
    expect_operands(instruction, 2, 2);
    write(instruction.operands[0], to, convert(instruction, to, from, read(instruction.operands[1], from)));
}

// cvt.{rna rn rz}{.relu}{.satfinite}.tf32.f32 d, a
void FunctionEmitter::emit_convert_to_tf32(const Instruction& instruction) {
    allow(instruction, "rna rn rz relu satfinite");
    expect_operands(instruction, 2, 2);
    if (instruction.types[1] != Type::F32) refuse(instruction);
    std::string value = fmt::format("sc_tf32_{}({})",
                                    instruction.has("rna")  ? "rna"
                                    : instruction.has("rn") ? "rn"
                                                            : "rz",
                                    read(instruction.operands[1], Type::F32));
    if (instruction.has("satfinite")) value = fmt::format("sc_sat_tf32({})", value);
    if (instruction.has("relu")) value = fmt::format("sc_relu_tf32({})", value);
    write(instruction.operands[0], Type::B32, value);
}

// cvt.rn.satfinite{.relu}.{e4m3x2 e5m2x2}.f32 d, high, low; ....f16x2 d, a; cvt.rn.f16x2{.relu}.{e4m3x2
// e5m2x2} d, a
void FunctionEmitter::emit_convert_eighths(const Instruction& instruction) {
    allow(instruction, "rn satfinite relu");
    const Type to = instruction.types[0];
    const Type from = instruction.types[1];
    const bool widens = to == Type::F16x2;
    if (!widens && from != Type::F32 && from != Type::F16x2) refuse(instruction);
    if (widens == instruction.has("satfinite") || !instruction.has("rn")) refuse(instruction);
    const std::size_t sources = from == Type::F32 ? 2 : 1;
    expect_operands(instruction, 1 + sources, 1 + sources);
    const std::string_view name = name_of(widens ? from : to).substr(0, 4);
    const auto half = [&](unsigned which) {
        if (from == Type::F32) return read(instruction.operands[2 - which], from);
        const std::string whole = read(instruction.operands[1], from);
        if (widens) return fmt::format("(u8)({} >> {})", whole, which * 8);
        return fmt::format("(float)sc_wide_f16((u16)({} >> {}))", whole, which * 16);
    };
    std::string convert = fmt::format("sc_{}_{}", widens ? "f16" : "narrow", name);
    if (instruction.has("relu")) convert = fmt::format("sc_relu_{}({}", widens ? "f16" : name, convert);
    const std::string_view close = instruction.has("relu") ? "))" : ")";
    line("    {{ const u32 high = {}({}{};", convert, half(1), close);
    line("    const u32 low = {}({}{};", convert, half(0), close);
    write(instruction.operands[0], widens ? Type::B32 : Type::B16,
          fmt::format("high << {} | low", widens ? 16 : 8));
    line("    }}");
}

std::string FunctionEmitter::convert(const Instruction& instruction, Type to, Type from,
                                     const std::string& value) {
    std::string rounding;  // of the result: "", "_rz" ...
    std::string integral;  // to an integral value: "rni" ...
    for (std::string_view mode : {"rz", "rm", "rp"})
        if (instruction.has(mode)) rounding = fmt::format("_{}", mode);
    for (std::string_view mode : {"rni", "rzi", "rmi", "rpi"})
        if (instruction.has(mode)) integral = mode;
    const bool ftz = instruction.has("ftz");
    const bool real_to = to == Type::F32 || to == Type::F64;
    const bool real_from = from == Type::F32 || from == Type::F64;
    if (!(real_to || is_half(to) || is_integer(to)) || !(real_from || is_half(from) || is_integer(from)))
        refuse(instruction);
    if (instruction.has("relu") && !is_half(to)) refuse(instruction);

    if (is_integer(from) && is_integer(to)) {
        if (!instruction.has("sat")) return value;
        return fmt::format("sc_sat_{}({})", c_type(to), value);
    }
    if (is_integer(from)) {
        std::string result =
            real_to ? (rounding.empty() ? fmt::format("({}){}", c_type(to), value)
                                        : fmt::format("sc_{}_int{}({})", name_of(to), rounding, value))
                    : fmt::format("sc_narrow_{}{}((double){})", name_of(to), rounding, value);
        if (instruction.has("sat")) result = fmt::format("sc_sat_{}({})", name_of(to), result);
        return result;
    }
    if (from == Type::Bf16 && to == Type::F32 && instruction.modifiers.empty())
        return fmt::format("sc_f32((u32){} << 16)", value);
    // From a float: halves are computed with as doubles, which hold them exactly.
    std::string source = value;
    if (ftz && from == Type::F32) source = fmt::format("sc_ftz_f32({})", source);
    if (is_half(from)) source = fmt::format("sc_wide_{}({})", name_of(from), source);
    const Type computed = is_half(from) ? Type::F64 : from;
    if (!integral.empty()) source = fmt::format("sc_{}_{}({})", integral, name_of(computed), source);
    if (is_integer(to)) {
        if (integral.empty()) refuse(instruction);
        // NaN becomes zero from a half as from f32.
        if (is_half(from) && bytes_of(to) < 8) source = fmt::format("(float){}", source);
        return fmt::format("sc_{}_{}({})", name_of(to),
                           is_half(from) && bytes_of(to) < 8 ? "f32" : name_of(computed), source);
    }
    std::string result;
    if (is_half(to))
        result = from == to && integral.empty() && !instruction.has("sat")
                     ? value
                     : fmt::format("sc_narrow_{}{}({})", name_of(to), rounding, source);
    else if (to == Type::F64 && from == Type::F32 && integral.empty())
        result = fmt::format("sc_f64_f32({})", source);
    else if (to == Type::F32 && computed == Type::F64)
        result = fmt::format("sc_f32_f64{}({})", rounding, source);
    else
        result = to == computed ? source : fmt::format("({}){}", c_type(to), source);
    if (ftz && to == Type::F32) result = fmt::format("sc_ftz_f32({})", result);
    if (instruction.has("relu")) result = fmt::format("sc_relu_{}({})", name_of(to), result);
    if (instruction.has("sat")) result = fmt::format("sc_sat_{}({})", name_of(to), result);
    return result;
}

}  // namespace simcuda::ptx
