// Splits PTX text into tokens.
#include "tools/simcuda/ptx/lexer.h"

#include <algorithm>
#include <cctype>

namespace simcuda::ptx {
namespace {

bool is_word_start(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
bool is_word(char c) {
    return is_word_start(c) || std::isdigit(static_cast<unsigned char>(c)) || c == '.';
}

// A directive ends at the next dot: ".reg.b16" is two.
std::size_t word_length(std::string_view text) {
    const bool directive = text[0] == '.';
    std::size_t n = 1;
    while (n < text.size()) {
        if (is_word(text[n]) && !(directive && text[n] == '.'))
            ++n;
        else if (n + 2 < text.size() && text[n] == ':' && text[n + 1] == ':' && is_word(text[n + 2]))
            n += 2;
        else
            break;
    }
    return n;
}

std::size_t number_length(std::string_view text) {
    const bool radix = text.size() > 1 && text[0] == '0' && std::isalpha(static_cast<unsigned char>(text[1]));
    std::size_t n = 1;
    while (n < text.size()) {
        const char c = text[n];
        const bool exponent_sign =
            !radix && (c == '+' || c == '-') && (text[n - 1] == 'e' || text[n - 1] == 'E');
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && !exponent_sign) break;
        ++n;
    }
    return n;
}

}  // namespace

void Lexer::skip_blanks() {
    while (!rest_.empty()) {
        if (rest_[0] == '\n') {
            ++line_;
            rest_.remove_prefix(1);
        } else if (std::isspace(static_cast<unsigned char>(rest_[0]))) {
            rest_.remove_prefix(1);
        } else if (rest_.starts_with("//")) {
            rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
        } else if (rest_.starts_with("/*")) {
            const std::size_t end = std::min(rest_.find("*/", 2), rest_.size() - 2) + 2;
            line_ +=
                static_cast<int>(std::count(rest_.begin(), rest_.begin() + static_cast<long>(end), '\n'));
            rest_.remove_prefix(end);
        } else {
            return;
        }
    }
}

Token Lexer::take(Token::Kind kind, std::size_t length) {
    const Token token{kind, rest_.substr(0, length), line_};
    rest_.remove_prefix(length);
    return token;
}

Token Lexer::next() {
    skip_blanks();
    // Loaders pass C strings: text may end at a NUL before the end of the view.
    if (rest_.empty() || rest_[0] == '\0') return {Token::Kind::End, {}, line_};
    const char c = rest_[0];
    if (c == '"') {
        const std::size_t end = std::min(rest_.find('"', 1), rest_.size() - 1);
        Token token = take(Token::Kind::String, end + 1);
        token.text = token.text.substr(1, end - 1);
        return token;
    }
    if (std::isdigit(static_cast<unsigned char>(c))) return take(Token::Kind::Number, number_length(rest_));
    const bool directive = c == '.' && rest_.size() > 1 && is_word_start(rest_[1]);
    if (is_word_start(c) || directive) return take(Token::Kind::Word, word_length(rest_));
    return take(Token::Kind::Punctuation, 1);
}

}  // namespace simcuda::ptx
