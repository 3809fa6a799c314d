// A set of the words of a kernel's parameter block: those that may hold the address of memory it writes.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>

namespace lms::code {

// Words are of 8 bytes. Those beyond the first 1 KiB of the block are one.
class ParameterWords {
  public:
    static ParameterWords all() {
        ParameterWords words;
        words.words_.set();
        return words;
    }

    void add(std::size_t offset, std::size_t bytes) {
        each(offset, bytes, [&](std::size_t word) { words_.set(word); });
    }
    void add(const ParameterWords& more) { words_ |= more.words_; }
    // Whether [offset, offset + bytes) of the block has a part in one of them.
    bool touch(std::size_t offset, std::size_t bytes) const {
        bool any = false;
        each(offset, bytes, [&](std::size_t word) { any |= words_[word]; });
        return any;
    }
    bool none() const { return words_.none(); }

    friend bool operator==(const ParameterWords&, const ParameterWords&) = default;

  private:
    static constexpr std::size_t kWordBytes = 8;
    static constexpr std::size_t kWords = 128;

    template <typename Visit>
    static void each(std::size_t offset, std::size_t bytes, Visit&& visit) {
        if (bytes == 0) return;
        const std::size_t last = std::min((offset + bytes - 1) / kWordBytes, kWords - 1);
        for (std::size_t word = std::min(offset / kWordBytes, kWords - 1); word <= last; ++word) visit(word);
    }

    std::bitset<kWords> words_;
};

}  // namespace lms::code
