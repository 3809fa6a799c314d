// An opcode of PTX with its modifiers.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string_view>

#include "shim/code/ptx_opcodes.h"

namespace lms::code {

// The words of an opcode between its dots.
class Opcode {
  public:
    explicit Opcode(std::string_view text) {
        while (!text.empty() && count_ < words_.size()) {
            const std::size_t dot = std::min(text.find('.'), text.size());
            words_[count_++] = text.substr(0, dot);
            text.remove_prefix(std::min(dot + 1, text.size()));
        }
        facts_ = &facts_of(words_[0]);
    }
    Operation operation() const { return facts_->operation; }
    bool is(Operation operation) const { return facts_->operation == operation; }
    bool also(std::uint8_t what) const { return (facts_->also & what) != 0; }
    bool has(std::string_view word) const {
        return std::find(words_.begin(), words_.begin() + count_, word) != words_.begin() + count_;
    }
    // "shared::cta" counts as "shared".
    bool in_space(std::string_view space) const {
        return std::any_of(words_.begin() + 1, words_.begin() + count_, [&](std::string_view word) {
            return word.starts_with(space) &&
                   (word.size() == space.size() || word.substr(space.size()).starts_with("::"));
        });
    }
    bool is_wide() const { return bits(words_[count_ - 1]) == 64; }
    // "cvt.u64.u32"
    bool widens() const {
        return count_ >= 3 && bits(words_[count_ - 2]) == 64 && bits(words_[count_ - 1]) < 64;
    }
    std::string_view last() const { return words_[count_ - 1]; }
    // Values that a "v2" moves at once.
    std::size_t elements() const { return has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 1; }

  private:
    static int bits(std::string_view type) {
        const std::size_t digits = type.find_first_of("0123456789");
        if (digits == std::string_view::npos) return 0;
        int value = 0;
        std::from_chars(type.data() + digits, type.data() + type.size(), value);
        return value;
    }

    std::array<std::string_view, 16> words_;
    std::size_t count_ = 0;
    const OpcodeFacts* facts_;
};

}  // namespace lms::code
