#include "shim/code/ptx_text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace lms::engine {

namespace {

constexpr std::array<bool, 256> kInName = [] {
    std::array<bool, 256> in{};
    for (int c = 'a'; c <= 'z'; ++c) in[c] = true;
    for (int c = 'A'; c <= 'Z'; ++c) in[c] = true;
    for (int c = '0'; c <= '9'; ++c) in[c] = true;
    for (const char c : {'_', '$', '%', '.'}) in[static_cast<unsigned char>(c)] = true;
    return in;
}();

bool in_name(char c) {
    return kInName[static_cast<unsigned char>(c)];
}

// A name, a number or a directive is one token, with "::" in it; a string is; anything else is one character.
// Empty: the end.
class Tokens {
  public:
    explicit Tokens(std::string_view text) : text_(text) { advance(); }

    std::string_view peek() const { return token_; }
    std::string_view take() {
        const std::string_view token = token_;
        advance();
        return token;
    }
    bool take_if(std::string_view wanted) {
        if (token_ != wanted) return false;
        advance();
        return true;
    }
    bool done() const { return token_.empty(); }
    // Where the next token begins, in the text.
    std::size_t position() const { return at_ - token_.size(); }

    void jump(std::size_t position) {
        at_ = position;
        advance();
    }
    void skip_line() {
        at_ = std::min(text_.find('\n', position()), text_.size());
        advance();
    }
    // Past the next `end` outside of brackets.
    void skip_past(std::string_view end) {
        int depth = 0;
        while (!done() && (depth > 0 || token_ != end)) {
            if (token_ == "{" || token_ == "(" || token_ == "[") ++depth;
            if (token_ == "}" || token_ == ")" || token_ == "]") --depth;
            advance();
        }
        advance();
    }

  private:
    void advance() {
        skip_blanks();
        const std::size_t begin = at_;
        if (begin == text_.size()) {
            token_ = {};
            return;
        }
        if (text_[at_] == '"') {
            at_ = text_.find('"', at_ + 1);
            at_ = at_ == std::string_view::npos ? text_.size() : at_ + 1;
        } else if (in_name(text_[at_])) {
            while (at_ < text_.size() && (in_name(text_[at_]) || double_colon())) {
                at_ += in_name(text_[at_]) ? 1 : 2;
            }
        } else {
            ++at_;
        }
        token_ = text_.substr(begin, at_ - begin);
    }
    bool double_colon() const { return text_.substr(at_, 2) == "::"; }
    void skip_blanks() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
                ++at_;
            } else if (c == '/' && text_.substr(at_, 2) == "//") {
                at_ = std::min(text_.find('\n', at_), text_.size());
            } else if (c == '/' && text_.substr(at_, 2) == "/*") {
                const std::size_t end = text_.find("*/", at_ + 2);
                at_ = end == std::string_view::npos ? text_.size() : end + 2;
            } else {
                return;
            }
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::string_view token_;
};

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

// ".param .u64 .ptr .global .align 8 name[4]", up to its "," or ")".
struct Declared {
    std::string_view name;
    bool is_pointer = false;
    std::size_t bytes = 0;      // 0: not known
    std::size_t alignment = 0;  // bytes
};
Declared declaration(Tokens& tokens) {
    Declared declared;
    while (!tokens.done() && tokens.peek() != "," && tokens.peek() != ")" && tokens.peek() != ";") {
        const std::string_view token = tokens.take();
        if (token == ".ptr") declared.is_pointer = true;
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
        Tokens tokens(source_.body);
        while (!tokens.done()) {
            if (!statement(tokens)) return std::nullopt;
        }
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
                function_.spaces[into.back().name] = PtxSpace::Param;
            }
            // Also past what does not belong here.
            if (tokens.peek() != ")") tokens.take();
        }
    }

    bool statement(Tokens& tokens) {
        if (tokens.take_if("{") || tokens.take_if("}") || tokens.take_if(";")) return true;
        if (tokens.take_if("@")) {
            tokens.take_if("!");
            tokens.take();
        }
        const std::string_view first = tokens.take();
        if (first.empty() || !in_name(first.front())) return false;
        if (first == ".loc" || first == ".file") {
            tokens.skip_line();
            return true;
        }
        if (first.front() == '.') return directive(first, tokens);
        if (tokens.take_if(":")) return true;
        instruction(first, tokens);
        return true;
    }

    bool directive(std::string_view first, Tokens& tokens) {
        const PtxSpace space = space_of(first);
        if (space == PtxSpace::Unknown) {
            tokens.skip_past(";");
            return true;
        }
        do {
            const Declared declared = declaration(tokens);
            if (declared.name.empty()) return false;
            function_.spaces[name(declared.name)] = space;
        } while (tokens.take_if(","));
        tokens.skip_past(";");
        return true;
    }

    void instruction(std::string_view opcode, Tokens& tokens) {
        PtxInstruction instruction{opcode, {}};
        while (!tokens.done() && !tokens.take_if(";")) {
            operand(tokens, instruction);
            tokens.take_if(",");
        }
        function_.body.push_back(std::move(instruction));
    }

    void operand(Tokens& tokens, PtxInstruction& instruction) {
        PtxOperand operand;
        const std::string_view first = tokens.peek();
        if (first == "[") {
            tokens.take();
            operand.is_address = true;
            add(tokens.take(), operand);
            operand.offset = tokens.take_if("+") ? decimal(tokens.take()) : 0;
            if (tokens.peek() != "]") operand.offset.reset();
            tokens.skip_past("]");
        } else if (first == "{" || first == "(") {
            const std::string_view end = first == "{" ? "}" : ")";
            tokens.take();
            while (!tokens.done() && !tokens.take_if(end)) add(tokens.take(), operand);
        } else {
            // "-1", "!%p1", "%p1|%p2", "name+8"
            while (!tokens.done() && tokens.peek() != "," && tokens.peek() != ";") {
                if (tokens.take_if("+")) {
                    tokens.take();
                } else {
                    add(tokens.take(), operand);
                }
            }
        }
        instruction.operands.push_back(std::move(operand));
    }

    void add(std::string_view token, PtxOperand& operand) {
        if (!token.empty() && in_name(token.front())) operand.names.push_back(name(token));
    }

    const PtxModuleText::Function& source_;
    PtxFunction function_;
    std::unordered_map<std::string_view, PtxName> ids_;
};

}  // namespace

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

}  // namespace lms::engine
