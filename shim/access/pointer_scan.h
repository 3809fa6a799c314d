// Which addresses a launch's arguments hold. Pure: bytes in, addresses out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/session/working_set.h"

namespace lms::access {

// Positions that are looked at at once.
inline constexpr std::size_t kScanStep = 16;

// Whether one of the words that begin at `at` and the fifteen bytes behind may be an address within `bounds`,
// which are not empty: by the upper halves of the words. Most of a large struct is told apart so.
inline bool may_begin_address(const char* at, session::Bounds bounds) {
    using Lanes = std::uint32_t __attribute__((vector_size(kScanStep)));
    const auto first = static_cast<std::uint32_t>(bounds.begin >> 32);
    const std::uint32_t span = static_cast<std::uint32_t>((bounds.end - 1) >> 32) - first;
    Lanes hits{};
    for (std::size_t phase = 0; phase < sizeof first; ++phase) {
        Lanes upper;
        std::memcpy(&upper, at + sizeof first + phase, sizeof upper);
        hits |= reinterpret_cast<Lanes>(upper - first <= span);
    }
    std::array<std::uint64_t, kScanStep / 8> any;
    std::memcpy(any.data(), &hits, sizeof hits);
    return (any[0] | any[1]) != 0;
}

// Calls found(at, address) for each word of `data`, one parameter or a block of them, that is an address
// within `bounds`. The words begin at any byte: in packed structs pointers do too. What is an address by
// chance names a buffer too many, no more.
template <typename Found>
void scan(const void* data, std::size_t bytes, session::Bounds bounds, Found&& found) {
    constexpr std::size_t kAhead = sizeof(engine::Address) - 1;  // of a word, behind its first byte
    if (bytes <= kAhead || bounds.begin == bounds.end) return;
    const char* block = static_cast<const char*>(data);
    if (bytes == sizeof(engine::Address)) {  // most parameters
        engine::Address word;
        std::memcpy(&word, block, sizeof word);
        if (in(bounds, word)) found(std::size_t{0}, word);
        return;
    }
    for (std::size_t at = 0; at + kAhead < bytes;) {
        std::size_t end = bytes - kAhead;
        if (at + kScanStep <= end) {
            end = at + kScanStep;
            if (!may_begin_address(block + at, bounds)) at = end;
        }
        for (; at < end; ++at) {
            engine::Address word;
            std::memcpy(&word, block + at, sizeof word);
            if (in(bounds, word)) found(at, word);
        }
    }
}

}  // namespace lms::access
