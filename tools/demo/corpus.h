// The text: its alphabet, and characters as the n-grams the model looks up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace demo {

// Order of the longest n-gram: how many characters back the model sees.
inline constexpr int kContext = 6;

class Corpus {
  public:
    // Reads the files one after the other. Tabs become spaces, bytes that are neither newlines nor printable
    // ASCII become '?'. Throws std::runtime_error when a file cannot be read or the text is shorter than
    // 1,000 characters.
    explicit Corpus(const std::vector<std::string>& files);

    int alphabet() const { return static_cast<int>(characters_.size()); }
    std::size_t size() const { return symbols_.size(); }
    char character(int symbol) const { return characters_[static_cast<std::size_t>(symbol)]; }

    // Symbols of any string; a character the text does not have reads as the text's first one.
    std::vector<std::uint8_t> encode(const std::string& text) const;

    // The table rows of the n-grams that end just before position `end` of `symbols`: rows[n - 1] for order
    // n. Order 1 is the character itself, longer ones are hashed into `table_rows` rows. Needs end >=
    // kContext.
    void ngram_rows(const std::vector<std::uint8_t>& symbols, std::size_t end, std::uint32_t table_rows,
                    std::uint32_t* rows) const;

    // Fills one batch: kContext rows and the following character for each of `count` places of the text. The
    // places depend on `step` alone, so every run sees the same batches.
    void batch(std::uint32_t step, int count, std::uint32_t table_rows, std::uint32_t* rows,
               std::uint32_t* targets) const;

  private:
    std::string characters_;               // by symbol
    std::vector<std::uint8_t> symbol_of_;  // by byte
    std::vector<std::uint8_t> symbols_;
};

// Random 64-bit words: the n-th of a sequence, without state (splitmix64).
inline std::uint64_t random_word(std::uint64_t n) {
    std::uint64_t z = (n + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

}  // namespace demo
