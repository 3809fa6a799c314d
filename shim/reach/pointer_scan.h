// Which addresses a launch's arguments hold. Pure: bytes in, addresses out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/session/working_set.h"

namespace lms::engine {

// Positions that are looked at at once.
inline constexpr std::size_t kScanStep = 16;

// Of the words that begin at `at` and the fifteen bytes behind: which may be addresses within `bounds`, which
// are not empty, by their upper halves. By the position they begin at; false: none. Most of a large struct is
// told apart so.
inline bool may_begin_address(const char* at, Bounds bounds, std::array<bool, kScanStep>& which) {
    using Lanes = std::uint32_t __attribute__((vector_size(kScanStep)));
    const auto first = static_cast<std::uint32_t>(bounds.begin >> 32);
    const std::uint32_t span = static_cast<std::uint32_t>((bounds.end - 1) >> 32) - first;
    Lanes hits{};  // of byte n of lane m: the word at 4 * m + n
    for (std::size_t phase = 0; phase < sizeof first; ++phase) {
        Lanes upper;
        std::memcpy(&upper, at + sizeof first + phase, sizeof upper);
        hits |= reinterpret_cast<Lanes>(upper - first <= span) & (1u << 8 * phase);
    }
    static_assert(sizeof hits == sizeof which);
    std::memcpy(which.data(), &hits, sizeof which);
    std::array<std::uint64_t, kScanStep / 8> any;
    std::memcpy(any.data(), &hits, sizeof any);
    return (any[0] | any[1]) != 0;
}

// Calls found(at, address) for each word of `data`, one parameter or a block of them, that is an address
// within `bounds`. The words begin at any byte: in packed structs pointers do too. What is an address by
// chance names a buffer too many, no more.
template <typename Found>
void scan(const void* data, std::size_t bytes, Bounds bounds, Found&& found) {
    if (bounds.begin == bounds.end) return;
    const char* block = static_cast<const char*>(data);
    constexpr std::size_t kAhead = sizeof(core::Address) - 1;  // of a word, behind its first byte
    const auto look = [&](std::size_t at) {
        core::Address word;
        std::memcpy(&word, block + at, sizeof word);
        if (in(bounds, word)) found(at, word);
    };
    std::size_t at = 0;
    for (std::array<bool, kScanStep> which; at + kScanStep + kAhead <= bytes; at += kScanStep) {
        if (!may_begin_address(block + at, bounds, which)) continue;
        for (std::size_t i = 0; i < kScanStep; ++i) {
            if (which[i]) look(at + i);
        }
    }
    for (; at + kAhead < bytes; ++at) look(at);
}

}  // namespace lms::engine
