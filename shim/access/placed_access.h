// The accesses of a kernel (code/kernel_access.h) with their words found among its parameters, once for each
// kernel. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shim/code/ptx_bounds.h"

namespace lms::access {

// Bytes of a parameter.
struct Place {
    std::size_t parameter;  // which
    std::size_t offset;     // bytes from its start
};

struct PlacedAccess {
    struct Word {
        Place at;  // 8 bytes
        bool in_sum;
    };
    struct Term {
        Place at;
        code::LinearTerm term;
    };
    std::vector<Word> words;
    std::vector<Term> sum;  // empty: where it begins does not show
    std::int64_t constant = 0;
    bool written = true;
    bool loaded = false;  // something that was loaded had a part in it
};

// Where in these parameters the bytes of the block are; nothing where no one of them has them all.
std::optional<Place> place_of(std::span<const code::Parameter> layout, std::size_t offset, std::size_t bytes);

std::vector<PlacedAccess> place(std::span<const code::KernelAccess> accesses,
                                std::span<const code::Parameter> layout);

// Where such an access begins, by `read(place, to, bytes)`.
template <typename Read>
std::uint64_t begin_of(const PlacedAccess& access, Read&& read) {
    auto address = static_cast<std::uint64_t>(access.constant);
    for (const PlacedAccess::Term& each : access.sum) {
        std::uint64_t value = 0;
        if (each.term.bytes == sizeof(std::uint32_t)) {
            std::uint32_t half = 0;
            read(each.at, &half, sizeof half);
            value = half;
            if (each.term.is_signed)
                value = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(half)});
        } else {
            read(each.at, &value, sizeof value);
        }
        address += value * static_cast<std::uint64_t>(each.term.factor);
    }
    return access.sum.empty() ? 0 : address;
}

}  // namespace lms::access
