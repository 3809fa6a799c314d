// The tokens of PTX text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace lms::code {

inline constexpr std::array<bool, 256> kInName = [] {
    std::array<bool, 256> in{};
    for (int c = 'a'; c <= 'z'; ++c) in[c] = true;
    for (int c = 'A'; c <= 'Z'; ++c) in[c] = true;
    for (int c = '0'; c <= '9'; ++c) in[c] = true;
    for (const char c : {'_', '$', '%', '.'}) in[static_cast<unsigned char>(c)] = true;
    return in;
}();

inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

inline bool in_name(char c) {
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
    // What was left of it.
    std::string_view skip_line() {
        const std::size_t begin = position();
        at_ = std::min(text_.find('\n', begin), text_.size());
        const std::string_view line = text_.substr(begin, at_ - begin);
        advance();
        return line;
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
            // ".reg.b32" is two directives, and "mov.u32%r1" an opcode and a register.
            const bool is_directive = text_[at_] == '.';
            for (++at_; at_ < text_.size() && (in_name(text_[at_]) || double_colon());) {
                if (text_[at_] == '%' || (is_directive && text_[at_] == '.')) break;
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

}  // namespace lms::code
