// The module and its functions. Declarations and instructions have files of their own.
#include "tools/simcuda/ptx/parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace simcuda::ptx {
namespace {

// Of "7.8" 78, of "sm_90a" 90.
unsigned digits_of(std::string_view text) {
    unsigned number = 0;
    for (char c : text)
        if (c >= '0' && c <= '9') number = 10 * number + static_cast<unsigned>(c - '0');
    return number;
}

}  // namespace

std::unique_ptr<Module> Parser::parse(std::string_view source) {
    auto module = std::make_unique<Module>();
    module->source = source;
    Parser(*module).parse_module();
    return module;
}

void Parser::advance() {
    token_ = lexer_.next();
}

Token Parser::peek() const {
    return Lexer(lexer_).next();
}

void Parser::fail(const std::string& what) const {
    throw SyntaxError(fmt::format("PTX line {}: {}, found \"{}\"", token_.line, what, token_.text));
}

bool Parser::accept(char punctuation) {
    if (!token_.is(punctuation)) return false;
    advance();
    return true;
}

void Parser::expect(char punctuation) {
    if (!accept(punctuation)) fail(fmt::format("expected '{}'", punctuation));
}

std::string_view Parser::expect_word() {
    if (token_.kind != Token::Kind::Word) fail("expected a name");
    const std::string_view word = token_.text;
    advance();
    return word;
}

std::uint64_t Parser::expect_integer() {
    std::uint64_t value = 0;
    unsigned real_bytes = 0;
    if (token_.kind != Token::Kind::Number || !parse_number_token(token_.text, value, real_bytes) ||
        real_bytes)
        fail("expected an integer");
    advance();
    return value;
}

void Parser::skip_line() {
    for (const int line = token_.line; token_.kind != Token::Kind::End && token_.line == line;) advance();
}

void Parser::skip_statement() {
    while (token_.kind != Token::Kind::End && !token_.is(';')) advance();
    accept(';');
}

void Parser::skip_braces() {
    while (token_.kind != Token::Kind::End && !token_.is('{')) advance();
    int depth = 0;
    do {
        depth += token_.is('{') - token_.is('}');
        advance();
    } while (depth && token_.kind != Token::Kind::End);
}

void Parser::parse_module() {
    bool external = false;
    while (token_.kind != Token::Kind::End) {
        const Token token = token_;
        advance();
        if (token.is(".version")) module_.version = digits_of(token_.text);
        if (token.is(".target")) module_.target = digits_of(token_.text);
        if (token.is(".version") || token.is(".target") || token.is(".address_size") || token.is(".file") ||
            token.is(".loc")) {
            while (token_.kind != Token::Kind::End && token_.line == token.line) advance();
        } else if (token.is(".visible") || token.is(".weak") || token.is(".common")) {
            external = false;
        } else if (token.is(".extern")) {
            external = true;
        } else if (token.is(".section")) {
            skip_braces();
        } else if (token.is(".pragma") || token.is(".alias") || token.is(".tex")) {
            skip_statement();
        } else if (token.is(".entry") || token.is(".func")) {
            parse_function(token.is(".entry"));
            external = false;
        } else if (token.is(".global") || token.is(".const") || token.is(".shared")) {
            parse_variables(token.is(".global")  ? Space::Global
                            : token.is(".const") ? Space::Const
                                                 : Space::Shared,
                            external);
            external = false;
        } else if (!token.is(';')) {
            token_ = token;
            fail("expected a module-level directive");
        }
    }
}

void Parser::parse_function(bool entry) {
    auto function = std::make_unique<Function>();
    function->entry = entry;
    function_ = function.get();
    scopes_.assign(1, Scope{});
    scope_ = 0;
    while (token_.is(".noreturn") || token_.is(".attribute")) {
        advance();
        if (token_.is('(')) parse_list(Operand::Kind::List, ')');
    }
    if (token_.is('(')) parse_parameters(function->results, function->declarations, false);
    function->name = expect_word();
    if (token_.is('(')) parse_parameters(function->parameters, function->declarations, entry);
    parse_performance_directives(*function);
    if (token_.is('{')) {
        function->defined = true;
        parse_body(*function);
    } else {
        accept(';');
    }
    function_ = nullptr;
    scope_ = -1;
    // A definition takes the place of the declarations that went before it, and they never of it.
    for (auto& known : module_.functions) {
        if (known->name != function->name) continue;
        if (function->defined) known = std::move(function);
        return;
    }
    module_.functions.push_back(std::move(function));
}

void Parser::parse_parameters(std::vector<Declaration*>& into, std::deque<Declaration>& owner, bool entry) {
    expect('(');
    std::uint64_t offset = 0;
    while (!token_.is(')')) {
        const bool in_register = token_.is(".reg");
        if (!in_register && !token_.is(".param")) fail("expected .param");
        advance();
        const DeclarationHead head = parse_declaration_head(Space::Param);
        Declaration& parameter = owner.emplace_back();
        if (in_register) {
            parameter.name = expect_word();
            parameter.bytes = bytes_of(head.type);
            parameter.in_register = true;
            parameter.parameter_register = add_register(0, parameter.name, head.type);
        } else {
            parse_declarator(head, parameter);
            scopes_[0].declarations[parameter.name] = &parameter;
        }
        parameter.type = head.type;
        parameter.opaque = head.opaque;
        parameter.c_name = fmt::format("p{}", owner.size());
        if (entry) {
            offset = (offset + parameter.alignment - 1) / parameter.alignment * parameter.alignment;
            parameter.offset = offset;
            offset += parameter.bytes;
        }
        into.push_back(&parameter);
        if (!accept(',')) break;
    }
    expect(')');
}

void Parser::parse_performance_directives(Function& function) {
    while (token_.kind == Token::Kind::Word && token_.text.starts_with('.')) {
        const std::string_view directive = token_.text;
        advance();
        std::uint32_t product = 1, count = 0, sizes[3] = {1, 1, 1};
        while (token_.kind == Token::Kind::Number || token_.kind == Token::Kind::String || token_.is(',') ||
               token_.is(';')) {
            if (token_.is(';') && directive != ".pragma") return;
            if (token_.kind == Token::Kind::Number) {
                const auto size = static_cast<std::uint32_t>(expect_integer());
                product *= size;
                if (count < 3) sizes[count++] = size;
            } else {
                advance();
            }
        }
        if (directive == ".maxntid" || directive == ".reqntid")
            function.max_threads = std::min(product, 1024u);
        if (directive == ".reqnctapercluster") std::copy_n(sizes, 3, function.cluster);
        if (directive == ".maxclusterrank") function.max_cluster = sizes[0];
        if (directive == ".explicitcluster") function.explicit_cluster = true;
    }
}

void Parser::parse_body(Function& function) {
    function_ = &function;
    parse_block();
    resolve_labels();
}

void Parser::parse_block() {
    expect('{');
    const int outer = scope_;
    scopes_.push_back(Scope{outer, {}, {}, {}, {}});
    scope_ = static_cast<int>(scopes_.size()) - 1;
    while (!token_.is('}')) {
        if (token_.kind == Token::Kind::End) fail("expected '}'");
        parse_statement();
    }
    advance();
    scope_ = outer;
}

void Parser::parse_statement() {
    if (accept(';')) return;
    if (token_.is('{')) return parse_block();
    if (token_.kind == Token::Kind::Word && peek().is(':')) {
        const std::string_view name = expect_word();
        expect(':');
        return parse_labelled(name);
    }
    if (token_.is(".loc") || token_.is(".file")) return skip_line();
    if (token_.is(".pragma")) return skip_statement();
    if (token_.is(".section")) return skip_braces();
    if (token_.is(".reg")) {
        advance();
        return parse_registers();
    }
    static constexpr std::pair<std::string_view, Space> kSpaces[] = {{".local", Space::Local},
                                                                     {".shared", Space::Shared},
                                                                     {".param", Space::Param},
                                                                     {".global", Space::Global},
                                                                     {".const", Space::Const}};
    for (const auto& [name, space] : kSpaces) {
        if (!token_.is(name)) continue;
        advance();
        return parse_variables(space, false);
    }
    parse_instruction();
}

// What follows "name:": a table of branch targets, a prototype, or a place in the code.
void Parser::parse_labelled(std::string_view name) {
    const int index = static_cast<int>(function_->labels.size());
    function_->labels.push_back({fmt::format("L{}", index), {}});
    scopes_[static_cast<std::size_t>(scope_)].labels[name] = index;
    if (token_.is(".branchtargets")) {
        advance();
        do {
            function_->labels.back().targets.push_back(parse_operand());
        } while (accept(','));
        expect(';');
    } else if (token_.is(".callprototype") || token_.is(".calltargets")) {
        skip_statement();
    } else {
        function_->body.push_back({index, {}});
    }
}

void Parser::resolve_labels() {
    for (Statement& statement : function_->body)
        for (Operand& operand : statement.instruction.operands) resolve_labels(operand);
    for (Label& label : function_->labels)
        for (Operand& operand : label.targets) resolve_labels(operand);
}

void Parser::resolve_labels(Operand& operand) {
    for (Operand& part : operand.parts) resolve_labels(part);
    if (operand.kind != Operand::Kind::Name || operand.declaration) return;
    for (int scope = operand.scope; scope >= 0; scope = scopes_[static_cast<std::size_t>(scope)].parent) {
        const auto& labels = scopes_[static_cast<std::size_t>(scope)].labels;
        if (const auto found = labels.find(operand.name); found != labels.end()) {
            operand.label = found->second;
            return;
        }
    }
}

}  // namespace simcuda::ptx
