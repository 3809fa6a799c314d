// Instructions and their operands.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "tools/simcuda/ptx/parser.h"

namespace simcuda::ptx {

bool parse_number_token(std::string_view text, std::uint64_t& bits, unsigned& real_bytes) {
    real_bytes = 0;
    const auto integer = [&bits](std::string_view digits, int base) {
        if (!digits.empty() && (digits.back() == 'U' || digits.back() == 'u')) digits.remove_suffix(1);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, base);
        return error == std::errc() && end == digits.data() + digits.size();
    };
    if (text.size() > 2 && text[0] == '0') {
        switch (text[1]) {
            case 'f':
            case 'F':
                real_bytes = 4;
                return integer(text.substr(2), 16);
            case 'd':
            case 'D':
                real_bytes = 8;
                return integer(text.substr(2), 16);
            case 'x':
            case 'X':
                return integer(text.substr(2), 16);
            case 'b':
            case 'B':
                return integer(text.substr(2), 2);
            default:
                break;
        }
    }
    if (text.find_first_of(".eE") != std::string_view::npos) {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size()) return false;
        real_bytes = 8;
        std::memcpy(&bits, &value, sizeof value);
        return true;
    }
    return integer(text, text.size() > 1 && text[0] == '0' ? 8 : 10);
}

int Parser::add_register(int scope, std::string_view name, Type type) {
    const int index = static_cast<int>(function_->registers.size());
    std::string c_name = "r" + unique_name(name);
    for (char& c : c_name)
        if (c == '.') c = '_';
    function_->registers.push_back(
        {scope > 1 ? fmt::format("{}_{}", c_name, index) : std::move(c_name), type});
    scopes_[static_cast<std::size_t>(scope)].registers[name] = index;
    return index;
}

int Parser::find_register(std::string_view name) {
    std::string_view prefix = name;
    while (!prefix.empty() && prefix.back() >= '0' && prefix.back() <= '9') prefix.remove_suffix(1);
    for (int at = scope_; at >= 0; at = scopes_[static_cast<std::size_t>(at)].parent) {
        const Scope& scope = scopes_[static_cast<std::size_t>(at)];
        if (const auto found = scope.registers.find(name); found != scope.registers.end())
            return found->second;
        if (const auto range = scope.ranges.find(prefix); range != scope.ranges.end() && prefix != name)
            return add_register(at, name, range->second.type);
    }
    return -1;
}

const std::vector<int>* Parser::find_vector(std::string_view name) const {
    for (int at = scope_; at >= 0; at = scopes_[static_cast<std::size_t>(at)].parent) {
        const Scope& scope = scopes_[static_cast<std::size_t>(at)];
        if (const auto found = scope.vectors.find(name); found != scope.vectors.end()) return &found->second;
        if (scope.registers.contains(name)) return nullptr;
    }
    return nullptr;
}

Declaration* Parser::find_declaration(std::string_view name) const {
    for (int at = scope_; at >= 0; at = scopes_[static_cast<std::size_t>(at)].parent) {
        const auto& declarations = scopes_[static_cast<std::size_t>(at)].declarations;
        if (const auto found = declarations.find(name); found != declarations.end()) return found->second;
    }
    for (Declaration& variable : module_.variables)
        if (variable.name == name) return &variable;
    return nullptr;
}

// What the assembler refuses where the module is for something older.
void Parser::check_target(const Instruction& instruction) const {
    constexpr unsigned kTarget = 90, kVersion = 78;
    if (instruction.opcode != "griddepcontrol") return;
    const auto require = [&](bool fits, std::string_view what) {
        if (!fits)
            throw SyntaxError(fmt::format("PTX line {}: instruction '{}' requires {}", instruction.line,
                                          instruction.text, what));
    };
    require(module_.target >= kTarget, ".target sm_90 or higher");
    require(module_.version >= kVersion, "PTX ISA .version 7.8 or later");
}

void Parser::parse_instruction() {
    Statement statement;
    Instruction& instruction = statement.instruction;
    instruction.line = token_.line;
    if (accept('@')) {
        instruction.predicate_negated = accept('!');
        instruction.predicate = find_register(expect_word());
        if (instruction.predicate < 0) fail("expected a declared predicate before this");
    }
    instruction.text = expect_word();
    std::string_view rest = instruction.text;
    for (bool first = true; !rest.empty(); first = false) {
        const std::size_t dot = rest.find('.');
        const std::string_view part = rest.substr(0, dot);
        rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
        if (first)
            instruction.opcode = part;
        else if (const Type type = parse_type(part); type != Type::None)
            instruction.types.push_back(type);
        else
            instruction.modifiers.push_back(part);
    }
    check_target(instruction);
    try {
        while (!token_.is(';')) {
            instruction.operands.push_back(parse_operand());
            if (!accept(',') && !token_.is(';')) fail("expected ',' or ';'");
        }
        advance();
    } catch (const SyntaxError&) {
        if (token_.kind == Token::Kind::End) throw;
        instruction.malformed = true;
        skip_statement();
    }
    function_->body.push_back(std::move(statement));
}

Operand Parser::parse_operand() {
    Operand operand = parse_primary();
    if (!token_.is('|')) return operand;
    Operand pair;
    pair.kind = Operand::Kind::Pair;
    pair.parts.push_back(std::move(operand));
    while (accept('|')) pair.parts.push_back(parse_primary());
    return pair;
}

Operand Parser::parse_primary() {
    if (token_.is('{')) return parse_list(Operand::Kind::Vector, '}');
    if (token_.is('(')) return parse_list(Operand::Kind::List, ')');
    if (token_.is('[')) return parse_address();
    if (accept('!')) {
        Operand operand = parse_primary();
        operand.negated = true;
        return operand;
    }
    const bool negative = accept('-');
    if (token_.kind == Token::Kind::Number) return parse_number(negative);
    if (negative || token_.kind != Token::Kind::Word) fail("expected an operand");
    return parse_word();
}

Operand Parser::parse_list(Operand::Kind kind, char end) {
    Operand list;
    list.kind = kind;
    advance();
    while (!token_.is(end)) {
        list.parts.push_back(parse_operand());
        if (!accept(',')) break;
    }
    expect(end);
    return list;
}

Operand Parser::parse_number(bool negative) {
    Operand number;
    if (!parse_number_token(token_.text, number.integer, number.real_bytes)) fail("expected a number");
    advance();
    number.kind = number.real_bytes ? Operand::Kind::Real : Operand::Kind::Integer;
    if (negative) {
        if (number.real_bytes)
            number.integer ^= number.real_bytes == 4 ? 0x8000'0000u : 0x8000'0000'0000'0000u;
        else
            number.integer = 0 - number.integer;
    }
    return number;
}

std::int64_t Parser::parse_offset() {
    std::int64_t offset = 0;
    while (token_.is('+') || token_.is('-')) {
        bool negative = token_.is('-');
        advance();
        if (accept('-')) negative = !negative;
        const auto value = static_cast<std::int64_t>(expect_integer());
        offset += negative ? -value : value;
    }
    return offset;
}

Operand Parser::parse_word() {
    Operand operand;
    operand.scope = scope_ < 0 ? 0 : scope_;
    operand.name = expect_word();
    if (operand.name == "_") return operand;
    if (operand.name == "WARP_SZ") {
        operand.kind = Operand::Kind::Integer;
        operand.integer = 32;
        return operand;
    }
    if (const std::vector<int>* elements = function_ ? find_vector(operand.name) : nullptr) {
        for (const int element : *elements) {
            Operand& part = operand.parts.emplace_back();
            part.kind = Operand::Kind::Register;
            part.reg = element;
        }
        operand.kind = Operand::Kind::Vector;
        return operand;
    }
    if (function_) operand.reg = find_register(operand.name);
    if (operand.reg >= 0) {
        operand.kind = Operand::Kind::Register;
        return operand;
    }
    operand.kind = Operand::Kind::Name;
    operand.declaration = find_declaration(operand.name);
    operand.offset = parse_offset();
    return operand;
}

Operand Parser::parse_address() {
    expect('[');
    Operand base = parse_primary();
    Operand address = base;
    address.kind = Operand::Kind::Address;
    address.offset = base.offset + parse_offset();
    while (accept(',')) address.parts.push_back(parse_operand());
    expect(']');
    // An address of a form of its own ([{a, b}], say) belongs to an instruction that is not translated.
    if (base.kind != Operand::Kind::Register && base.kind != Operand::Kind::Name &&
        base.kind != Operand::Kind::Integer)
        fail("expected an address before this");
    return address;
}

}  // namespace simcuda::ptx
