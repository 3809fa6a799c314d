#include "shim/code/ptx_text.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "shim/code/ptx_tokens.h"

namespace lms::code {

namespace {

PtxSpace space_of(std::string_view directive) {
    if (directive == ".global") return PtxSpace::Global;
    if (directive == ".const") return PtxSpace::Const;
    if (directive == ".shared") return PtxSpace::Shared;
    if (directive == ".local") return PtxSpace::Local;
    if (directive == ".param") return PtxSpace::Param;
    return PtxSpace::Unknown;
}

// Past the "}" that matches a "{" already taken; its place in the text, or npos.
std::size_t skip_body(std::string_view text, std::size_t at) {
    for (int depth = 1; at < text.size(); ++at) {
        switch (text[at]) {
            case '{':
                ++depth;
                break;
            case '}':
                if (--depth == 0) return at;
                break;
            case '"':
                at = text.find('"', at + 1);
                break;
            case '/':
                if (text.substr(at, 2) == "//") {
                    at = text.find('\n', at);
                } else if (text.substr(at, 2) == "/*") {
                    at = text.find("*/", at + 2);
                }
                break;
            default:
                break;
        }
        if (at == std::string_view::npos) break;
    }
    return std::string_view::npos;
}

std::optional<std::size_t> decimal(std::string_view token) {
    if (token.size() > 1 && token.front() == '0') return std::nullopt;  // octal
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    return error == std::errc() && end == token.data() + token.size() ? std::optional(value) : std::nullopt;
}

// 0 for what is no decimal number.
std::size_t number(std::string_view token) {
    return decimal(token).value_or(0);
}

// Bytes of a value of a type; 0 for other directives.
std::size_t bytes_of_type(std::string_view directive) {
    if (directive == ".texref" || directive == ".samplerref" || directive == ".surfref") return 8;
    if (directive.size() < 3 || std::string_view("busf").find(directive[1]) == std::string_view::npos)
        return 0;
    const std::size_t bits = number(directive.substr(2));
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? bits / 8 : 0;
}

bool is_number_of_threads(std::string_view name) {
    return name == "%tid" || name == "%ntid" || name == "%ctaid" || name == "%nctaid";
}

// ".param .u64 .ptr .global .align 8 name[4]", up to its "," or ")".
struct Declared {
    std::string_view name;
    bool is_pointer = false;
    bool is_register = false;
    std::size_t bytes = 0;      // 0: not known
    std::size_t alignment = 0;  // bytes
};
Declared declaration(Tokens& tokens) {
    Declared declared;
    while (!tokens.done() && tokens.peek() != "," && tokens.peek() != ")" && tokens.peek() != ";") {
        const std::string_view token = tokens.take();
        if (token == ".ptr") declared.is_pointer = true;
        if (token == ".reg") declared.is_register = true;
        if (const std::size_t bytes = bytes_of_type(token)) {
            declared.bytes = bytes;
            declared.alignment = std::max(declared.alignment, bytes);
        }
        if (token == ".align") {
            const std::size_t bytes = number(tokens.take());
            // After .ptr it is that of what the pointer points to.
            if (!declared.is_pointer) declared.alignment = std::max(declared.alignment, bytes);
        } else if (token == "[") {
            declared.bytes *= number(tokens.peek());
            tokens.skip_past("]");
        } else if (token == "(") {
            tokens.skip_past(")");
        } else if (token == "=") {
            break;
        } else if (in_name(token.front()) && token.front() != '.') {
            declared.name = token;
        }
    }
    return declared;
}

// In a header, to the function's name: past attributes, and past what it returns by `returns`.
template <typename Returns>
bool skip_to_name(Tokens& tokens, Returns&& returns) {
    while (!tokens.done() && tokens.peek() != "{" && tokens.peek() != ";") {
        const std::string_view token = tokens.peek();
        if (token == "(") {
            returns();
        } else if (token == ".attribute") {
            tokens.take();
            tokens.take();
            tokens.skip_past(")");
        } else if (token.front() == '.') {
            tokens.take();
        } else {
            return in_name(token.front());
        }
    }
    return false;
}

class FunctionParser {
  public:
    explicit FunctionParser(const PtxModuleText::Function& function) : source_(function) {}

    std::optional<PtxFunction> parse_header() {
        if (!header()) return std::nullopt;
        return std::move(function_);
    }
    std::optional<PtxFunction> parse() {
        if (!header()) return std::nullopt;
        scopes_.emplace_back();
        Tokens tokens(source_.body);
        while (!tokens.done()) {
            if (!statement(tokens)) return std::nullopt;
        }
        measure_registers();
        return std::move(function_);
    }

  private:
    bool header() {
        Tokens tokens(source_.header);
        if (!skip_to_name(tokens, [&] { parameters(tokens, function_.returns); })) return false;
        tokens.take();
        parameters(tokens, function_.parameters);
        return true;
    }

    PtxName name(std::string_view text) {
        if (!is_digit(text.front())) {
            const std::string_view whole = text.substr(0, text.find('.', 1));
            const bool is_element = whole.size() < text.size();
            if (is_element && is_number_of_threads(whole)) return intern(text);
            function_.is_flat &= !is_element;
            text = whole;
        }
        return intern(text);
    }

    PtxName intern(std::string_view text) {
        const auto [it, is_new] = ids_.try_emplace(text, static_cast<PtxName>(function_.names.size()));
        if (is_new) {
            function_.names.push_back(text);
            function_.spaces.push_back(PtxSpace::Unknown);
        }
        return it->second;
    }

    void parameters(Tokens& tokens, std::vector<PtxParameter>& into) {
        if (!tokens.take_if("(")) return;
        while (!tokens.done() && !tokens.take_if(")")) {
            const Declared declared = declaration(tokens);
            if (!declared.name.empty()) {
                into.push_back(
                    {name(declared.name), declared.is_pointer, declared.bytes, declared.alignment});
                if (!declared.is_register) function_.spaces[into.back().name] = PtxSpace::Param;
                variables_.push_back({declared.name, true});
            }
            // Also past what does not belong here.
            if (tokens.peek() != ")") tokens.take();
        }
    }

    bool statement(Tokens& tokens) {
        if (tokens.take_if(";")) return true;
        if (tokens.take_if("{")) return scopes_.emplace_back(), true;
        if (tokens.take_if("}")) return leave_scope(), true;
        std::optional<PtxGuard> guard;
        if (tokens.take_if("@")) {
            const bool negated = tokens.take_if("!");
            const std::string_view predicate = tokens.take();
            if (predicate.empty()) return false;
            guard = PtxGuard{name(predicate), !negated};
        }
        const std::string_view first = tokens.take();
        if (first.empty() || !in_name(first.front())) return false;
        if (first == ".loc" || first == ".file") {
            return tokens.skip_line().find(';') == std::string_view::npos;  // else there is more on it
        }
        if (first.front() == '.') return directive(first, tokens);
        if (tokens.take_if(":")) {
            function_.is_flat &= function_.labels.try_emplace(name(first), function_.body.size()).second;
            return true;
        }
        const bool read = instruction(first, tokens);
        function_.body.back().guard = guard;
        return read;
    }

    bool directive(std::string_view first, Tokens& tokens) {
        if (first == ".reg") return registers(tokens);
        const PtxSpace space = space_of(first);
        if (space == PtxSpace::Unknown) {
            tokens.skip_past(";");
            return true;
        }
        do {
            const Declared declared = declaration(tokens);
            if (declared.name.empty() || !declare(declared.name, space)) return false;
        } while (tokens.take_if(","));
        tokens.skip_past(";");
        return true;
    }

    // False where that name is known to mean something else.
    bool declare(std::string_view variable, PtxSpace space) {
        const bool is_new = !ids_.contains(variable);
        PtxSpace& known = function_.spaces[name(variable)];
        if (is_new) {
            known = space;
            variables_.push_back({variable, false});
        }
        const auto same = [&](const Variable& each) { return each.name == variable && !each.in_header; };
        return known == space && std::ranges::any_of(variables_, same);
    }

    // ".b64 %x, %rd<9>;": %rd0 to %rd8.
    bool registers(Tokens& tokens) {
        unsigned bits = 0;
        while (!tokens.done() && !tokens.take_if(";")) {
            const std::string_view name = tokens.take();
            if (name.front() == '.')
                bits = name == ".pred" ? 1 : 8 * static_cast<unsigned>(bytes_of_type(name));
            if (name.front() == '.' || !in_name(name.front())) continue;
            const bool many = tokens.peek() == "<";
            if (many) tokens.skip_past(">");
            note_registers({name, many});
            const auto [known, is_new] = (many ? bits_of_many_ : bits_of_one_).try_emplace(name, bits);
            if (known->second != bits) known->second = 0;
            for (const Variable& each : variables_) {
                if (!each.name.starts_with(name)) continue;
                const std::string_view rest = each.name.substr(name.size());
                if (many ? !rest.empty() && std::ranges::all_of(rest, is_digit) : rest.empty()) return false;
            }
        }
        return true;
    }

    // ".reg .b32 %r<9>;" within a block hides others of that name.
    struct Registers {
        std::string_view name;
        bool many;
        bool contains(std::string_view other) const {
            if (!many) return other == name;
            return other.size() > name.size() && other.starts_with(name) &&
                   std::ranges::all_of(other.substr(name.size()), is_digit);
        }
    };
    struct Scope {
        std::vector<Registers> own;
        std::vector<Registers> within;  // of blocks in it that are closed
    };
    void note_registers(const Registers& declared) {
        const auto keep_apart = [&](std::span<const Registers> others) {
            for (const Registers& other : others) {
                const bool same = other.name == declared.name && other.many == declared.many;
                function_.is_flat &=
                    !same && !other.contains(declared.name) && !declared.contains(other.name);
            }
        };
        for (const Scope& scope : scopes_) keep_apart(scope.own);
        // A block before it had that name to itself.
        keep_apart(scopes_.back().within);
        scopes_.back().own.push_back(declared);
    }
    void leave_scope() {
        if (scopes_.size() < 2) return;
        const Scope closed = std::move(scopes_.back());
        scopes_.pop_back();
        for (const auto* const each : {&closed.own, &closed.within})
            scopes_.back().within.insert(scopes_.back().within.end(), each->begin(), each->end());
    }

    void measure_registers() {
        for (const std::string_view name : function_.names) {
            std::optional<unsigned> bits;
            const auto look = [&](const auto& declared, std::string_view as) {
                const auto it = declared.find(as);
                if (it != declared.end()) bits = bits.value_or(it->second) == it->second ? it->second : 0;
            };
            look(bits_of_one_, name);
            for (std::string_view of = name; of.size() > 1 && is_digit(of.back());) {
                of.remove_suffix(1);
                look(bits_of_many_, of);
            }
            function_.bits.push_back(bits.value_or(0));
        }
    }

    // False where it is not read: compilers write "st.global [a]", people may write "st .global [a]" and
    // "8+8".
    bool instruction(std::string_view opcode, Tokens& tokens) {
        PtxInstruction instruction{opcode, {}};
        bool read = true;
        while (!tokens.done() && !tokens.take_if(";")) {
            if (tokens.peek().front() == '.') {
                tokens.take();
                read = false;
                continue;
            }
            read &= operand(tokens, instruction);
            tokens.take_if(",");
        }
        function_.body.push_back(std::move(instruction));
        return read;
    }

    bool operand(Tokens& tokens, PtxInstruction& instruction) {
        PtxOperand operand;
        bool read = true;
        const std::string_view first = tokens.peek();
        if (first == "[") {
            tokens.take();
            operand.is_address = true;
            add(tokens.take(), operand);
            operand.offset = tokens.take_if("+") ? offset(tokens) : 0;
            if (tokens.peek() != "]") operand.offset.reset();
            tokens.skip_past("]");
        } else if (first == "{" || first == "(") {
            const std::string_view end = first == "{" ? "}" : ")";
            tokens.take();
            while (!tokens.done() && !tokens.take_if(end)) add(tokens.take(), operand);
            // "{%r1, %r2}|%p1"
            if (tokens.take_if("|")) add(tokens.take(), operand);
        } else {
            // "-1", "!%p1", "%p1|%p2", "name+8"
            operand.offset = 0;
            const bool begins_with_number = is_digit(first.front());
            while (!tokens.done() && tokens.peek() != "," && tokens.peek() != ";") {
                if (tokens.take_if("+")) {
                    read &= !begins_with_number && !operand.is_negative;
                    operand.offset = operand.offset == 0 ? offset(tokens) : std::nullopt;
                } else if (tokens.take_if("-")) {
                    read &= !operand.is_negative && operand.names.empty();
                    operand.is_negative = true;
                } else if (tokens.take_if("!")) {
                    read &= !tokens.done() && !is_digit(tokens.peek().front());
                    operand.is_negated = true;
                } else if (in_name(tokens.peek().front()) || tokens.peek() == "|") {
                    add(tokens.take(), operand);
                } else {
                    read &= tokens.peek() != "[";
                    operand.offset.reset();
                    tokens.take();
                }
            }
        }
        instruction.operands.push_back(std::move(operand));
        return read;
    }

    static std::optional<std::int64_t> offset(Tokens& tokens) {
        const bool negative = tokens.take_if("-");
        const auto bytes = ptx_integer(tokens.take());
        return bytes && negative ? std::optional(-*bytes) : bytes;
    }

    void add(std::string_view token, PtxOperand& operand) {
        if (!token.empty() && in_name(token.front())) operand.names.push_back(name(token));
    }

    const PtxModuleText::Function& source_;
    PtxFunction function_;
    std::unordered_map<std::string_view, PtxName> ids_;
    struct Variable {
        std::string_view name;
        bool in_header;  // a parameter, or what is returned
    };
    std::vector<Variable> variables_;
    std::vector<Scope> scopes_;  // blocks that are open, the outermost first
    // By their names, or what these begin with; 0: blocks have others of that name.
    std::unordered_map<std::string_view, unsigned> bits_of_one_, bits_of_many_;
};

}  // namespace

std::optional<std::int64_t> ptx_integer(std::string_view text) {
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    if (text.ends_with('U')) text.remove_suffix(1);
    const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    if (hexadecimal) text.remove_prefix(2);
    const bool octal = !hexadecimal && text.size() > 1 && text.front() == '0';
    if (octal) return std::nullopt;
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number, hexadecimal ? 16 : 10);
    if (error != std::errc() || stopped != end) return std::nullopt;
    return static_cast<std::int64_t>(number);
}

std::optional<PtxModuleText> index_ptx(std::string_view text) {
    PtxModuleText module;
    Tokens tokens(text);
    const auto skip_braces = [&] {
        const std::size_t begin = tokens.position() + 1;
        const std::size_t end = skip_body(text, begin);
        if (end == std::string_view::npos) return std::string_view();
        tokens.jump(end + 1);
        // Never empty, not even of an empty body.
        return text.substr(begin, end + 1 - begin);
    };
    while (!tokens.done()) {
        const std::string_view first = tokens.take();
        if (first == ".entry" || first == ".func") {
            const std::size_t begin = tokens.position();
            if (!skip_to_name(tokens, [&] {
                    tokens.take();
                    tokens.skip_past(")");
                })) {
                return std::nullopt;
            }
            const std::string_view name = tokens.take();
            while (!tokens.done() && tokens.peek() != "{" && tokens.peek() != ";") tokens.take();
            PtxModuleText::Function function{text.substr(begin, tokens.position() - begin), {}, false};
            function.is_entry = first == ".entry";
            if (!tokens.take_if(";")) {
                function.body = skip_braces();
                if (function.body.empty()) return std::nullopt;
                function.body.remove_suffix(1);
            }
            auto& known = module.functions[name];
            if (known.body.data() == nullptr) known = function;
        } else if (const PtxSpace space = space_of(first); space != PtxSpace::Unknown) {
            const std::string_view name = declaration(tokens).name;
            if (name.empty()) return std::nullopt;
            module.variables[name] = space;
            tokens.skip_past(";");
        } else if (first == ".section") {
            while (!tokens.done() && tokens.peek() != "{") tokens.take();
            if (tokens.done() || skip_braces().empty()) return std::nullopt;
        } else if (first == ".pragma" || first == ".alias") {
            tokens.skip_past(";");
        } else if (first == ".version" || first == ".target" || first == ".address_size" ||
                   first == ".file") {
            tokens.skip_line();
        } else if (first != ".visible" && first != ".extern" && first != ".weak" && first != ".common") {
            return std::nullopt;
        }
    }
    return module;
}

std::optional<PtxFunction> parse_ptx_header(const PtxModuleText::Function& function) {
    return FunctionParser(function).parse_header();
}

std::optional<PtxFunction> parse_ptx_function(const PtxModuleText::Function& function) {
    return FunctionParser(function).parse();
}

}  // namespace lms::code
