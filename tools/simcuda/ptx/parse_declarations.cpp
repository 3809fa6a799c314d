// Variables, their initial values, and registers.
#include <fmt/format.h>

#include <cstring>

#include "tools/simcuda/ptx/parser.h"

namespace simcuda::ptx {

std::string Parser::unique_name(std::string_view name) const {
    std::string result;
    for (char c : name) result += c == '%' ? '_' : c;
    // Scope 1 is the body of a function; inner scopes may declare the same names again.
    if (function_ && scope_ > 1) result += fmt::format("_s{}", scope_);
    return result;
}

Parser::DeclarationHead Parser::parse_declaration_head(Space space) {
    DeclarationHead head{space};
    while (token_.kind == Token::Kind::Word && token_.text.starts_with('.')) {
        const std::string_view word = token_.text.substr(1);
        advance();
        if (word == "align") {
            head.alignment = expect_integer();
        } else if (word == "attribute") {
            for (const Operand& attribute : parse_list(Operand::Kind::List, ')').parts)
                head.managed |= attribute.name == ".managed";
        } else if (word == "v2" || word == "v4" || word == "v8") {
            head.vector = static_cast<std::uint64_t>(word[1] - '0');
        } else if (word == "texref" || word == "samplerref" || word == "surfref") {
            head.type = Type::B64;
            head.opaque = true;
        } else if (const Type type = parse_type(word); type != Type::None) {
            // In `.param .u64 .ptr .align 16 name` the alignment is the pointee's.
            head.type = type;
        } else if (word == "ptr") {
            while (token_.kind == Token::Kind::Word && token_.text.starts_with('.')) {
                if (expect_word() == ".align") expect_integer();
            }
        } else {
            fail("unknown attribute of a variable before this");
        }
    }
    if (head.type == Type::None) fail("expected a type");
    return head;
}

void Parser::parse_declarator(const DeclarationHead& head, Declaration& into) {
    into.name = expect_word();
    into.space = head.space;
    into.type = head.type;
    into.external = head.external;
    into.managed = head.managed;
    into.opaque = head.opaque;
    into.bytes = bytes_of(head.type) * head.vector;
    into.alignment = head.alignment ? head.alignment : into.bytes;
    bool unsized = false;
    while (accept('[')) {
        if (token_.is(']'))
            unsized = true;
        else
            into.bytes *= expect_integer();
        expect(']');
    }
    if (accept('=')) parse_initialiser(into);
    if (unsized) into.bytes = into.initial.size();
}

void Parser::parse_variables(Space space, bool external) {
    DeclarationHead head = parse_declaration_head(space);
    head.external = external;
    do {
        const bool module_scope = !function_ || space == Space::Global || space == Space::Const;
        Declaration& variable =
            module_scope ? module_.variables.emplace_back() : function_->declarations.emplace_back();
        parse_declarator(head, variable);
        if (function_ && accept('<')) {
            // `.param .u64 %P<2>` declares %P0 and %P1.
            const std::uint64_t count = expect_integer();
            expect('>');
            const Declaration one = variable;
            function_->declarations.pop_back();
            for (std::uint64_t i = 0; i < count; ++i) {
                Declaration& next = function_->declarations.emplace_back(one);
                next.name = module_.names.emplace_back(fmt::format("{}{}", one.name, i));
                declare(next, false);
            }
        } else {
            declare(variable, module_scope);
        }
    } while (accept(','));
    expect(';');
}

void Parser::declare(Declaration& variable, bool at_module_scope) {
    variable.at_module_scope = at_module_scope;
    variable.c_name = "v_" + unique_name(variable.name);
    // Shared variables of several functions meet in one unit.
    if (function_ && variable.space != Space::Local && variable.space != Space::Param)
        variable.c_name += fmt::format("_f{}", module_.functions.size());
    if (function_) scopes_[static_cast<std::size_t>(scope_)].declarations[variable.name] = &variable;
}

void Parser::parse_initialiser(Declaration& into) {
    std::uint64_t at = 0;
    parse_initial_value(into, at);
    if (into.initial.size() < into.bytes) into.initial.resize(into.bytes);
}

void Parser::parse_initial_value(Declaration& into, std::uint64_t& at) {
    if (accept('{')) {
        while (!token_.is('}')) {
            parse_initial_value(into, at);
            if (!accept(',')) break;
        }
        return expect('}');
    }
    Operand value = parse_operand();
    if (value.kind == Operand::Kind::Name && value.name == "generic" && token_.is('(')) {
        value = parse_list(Operand::Kind::List, ')').parts.at(0);
        value.offset += parse_offset();
    }
    const unsigned bytes = bytes_of(into.type);
    if (into.initial.size() < at + bytes) into.initial.resize(at + bytes);
    std::uint64_t bits = value.integer;
    switch (value.kind) {
        case Operand::Kind::Name:
            if (bytes != 8) fail("expected an 8-byte element for an address before this");
            into.relocations.push_back({at, std::string(value.name), value.offset});
            break;
        case Operand::Kind::Integer:
            if (into.type == Type::F64) {
                const double real = static_cast<double>(static_cast<std::int64_t>(bits));
                std::memcpy(&bits, &real, sizeof real);
            } else if (into.type == Type::F32) {
                const float real = static_cast<float>(static_cast<std::int64_t>(bits));
                std::memcpy(&bits, &real, sizeof real);
            }
            break;
        case Operand::Kind::Real:
            if (value.real_bytes == 8 && bytes == 4) {
                double real;
                std::memcpy(&real, &bits, sizeof real);
                const float single = static_cast<float>(real);
                bits = 0;
                std::memcpy(&bits, &single, sizeof single);
            }
            break;
        default:
            fail("expected an initial value before this");
    }
    std::memcpy(into.initial.data() + at, &bits, std::min<std::size_t>(bytes, sizeof bits));
    at += bytes;
}

void Parser::parse_registers() {
    const DeclarationHead head = parse_declaration_head(Space::Local);
    do {
        const std::string_view name = expect_word();
        Scope& scope = scopes_[static_cast<std::size_t>(scope_)];
        if (head.vector != 1) {
            add_vector(name, head);
        } else if (accept('<')) {
            scope.ranges[name] = {head.type, expect_integer()};
            expect('>');
        } else {
            add_register(scope_, name, head.type);
        }
    } while (accept(','));
    expect(';');
}

// Its elements are registers of their own, each with two names: v.x and v.r, v.y and v.g, ...
void Parser::add_vector(std::string_view name, const DeclarationHead& head) {
    if (head.vector > 4) fail("expected a vector of at most four elements before this");
    Scope& scope = scopes_[static_cast<std::size_t>(scope_)];
    std::vector<int>& elements = scope.vectors[name];
    elements.clear();
    for (std::size_t i = 0; i < head.vector; ++i) {
        const int element = add_register(
            scope_, module_.names.emplace_back(fmt::format("{}.{}", name, "xyzw"[i])), head.type);
        scope.registers[module_.names.emplace_back(fmt::format("{}.{}", name, "rgba"[i]))] = element;
        elements.push_back(element);
    }
}

}  // namespace simcuda::ptx
