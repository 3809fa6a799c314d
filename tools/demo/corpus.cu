#include "corpus.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace demo {

namespace {

constexpr std::size_t kSmallestText = 1000;
constexpr std::uint8_t kNoSymbol = 0xff;

char printable(char c) {
    if (c == '\t') return ' ';
    return c == '\n' || (c >= ' ' && c <= '~') ? c : '?';
}

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw std::runtime_error("cannot read " + path);
    return text;
}

}  // namespace

Corpus::Corpus(const std::vector<std::string>& files) : symbol_of_(256, kNoSymbol) {
    std::string text;
    for (const std::string& path : files) text += read(path);
    if (text.size() < kSmallestText) {
        throw std::runtime_error("the text has " + std::to_string(text.size()) + " characters; at least " +
                                 std::to_string(kSmallestText) + " are needed");
    }
    symbols_.reserve(text.size());
    for (char raw : text) {
        const char c = printable(raw);
        std::uint8_t& symbol = symbol_of_[static_cast<unsigned char>(c)];
        if (symbol == kNoSymbol) {
            symbol = static_cast<std::uint8_t>(characters_.size());
            characters_ += c;
        }
        symbols_.push_back(symbol);
    }
}

std::vector<std::uint8_t> Corpus::encode(const std::string& text) const {
    std::vector<std::uint8_t> symbols;
    for (char c : text) {
        const std::uint8_t symbol = symbol_of_[static_cast<unsigned char>(printable(c))];
        symbols.push_back(symbol == kNoSymbol ? 0 : symbol);
    }
    return symbols;
}

void Corpus::ngram_rows(const std::vector<std::uint8_t>& symbols, std::size_t end, std::uint32_t table_rows,
                        std::uint32_t* rows) const {
    std::uint64_t ngram = 0;
    for (int order = 1; order <= kContext; ++order) {
        ngram = ngram << 8 | symbols[end - static_cast<std::size_t>(order)];
        rows[order - 1] = order == 1 ? static_cast<std::uint32_t>(ngram)
                                     : static_cast<std::uint32_t>(random_word(ngram) % table_rows);
    }
}

void Corpus::batch(std::uint32_t step, int count, std::uint32_t table_rows, std::uint32_t* rows,
                   std::uint32_t* targets) const {
    for (int b = 0; b < count; ++b) {
        const std::uint64_t word =
            random_word(static_cast<std::uint64_t>(step) << 32 | static_cast<std::uint32_t>(b));
        const std::size_t place = kContext + word % (symbols_.size() - kContext);
        ngram_rows(symbols_, place, table_rows, rows + b * kContext);
        targets[b] = symbols_[place];
    }
}

}  // namespace demo
