// Splits PTX text into tokens.
#pragma once

#include <string_view>

namespace simcuda::ptx {

struct Token {
    enum class Kind { End, Word, Number, String, Punctuation };
    Kind kind = Kind::End;
    std::string_view text;  // a slice of the source; a string without its quotes
    int line = 0;

    bool is(char punctuation) const { return kind == Kind::Punctuation && text[0] == punctuation; }
    bool is(std::string_view word) const { return kind == Kind::Word && text == word; }
};

// A word keeps its dots and double colons, so "ld.shared::cta.v2.f32", ".reg" and "%tid.x" are one token
// each.
class Lexer {
  public:
    explicit Lexer(std::string_view source) : rest_(source) {}
    Token next();

  private:
    void skip_blanks();
    Token take(Token::Kind kind, std::size_t length);

    std::string_view rest_;
    int line_ = 1;
};

}  // namespace simcuda::ptx
