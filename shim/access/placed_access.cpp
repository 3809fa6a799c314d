#include "shim/access/placed_access.h"

#include <algorithm>
#include <optional>

namespace lms::access {

namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

PlacedAccess placed(const code::KernelAccess& access, std::span<const code::Parameter> layout) {
    PlacedAccess result;
    result.written = access.written;
    result.loaded = access.loaded;
    result.constant = access.begins.constant;
    for (const code::LinearTerm& term : access.begins.terms) {
        const auto at = place_of(layout, term.offset, term.bytes);
        if (at) result.sum.push_back({*at, term});
    }
    if (result.sum.size() < access.begins.terms.size()) result.sum.clear();
    for (std::size_t i = 0; i < layout.size(); ++i) {
        for (std::size_t at = 0; at + kWord <= layout[i].bytes; at += kWord) {
            const std::size_t offset = layout[i].offset + at;
            if (!access.words.touch(offset, kWord)) continue;
            const bool in_sum = std::ranges::any_of(result.sum, [&](const PlacedAccess::Term& each) {
                return each.term.offset == offset && each.term.bytes == kWord;
            });
            result.words.push_back({{i, at}, in_sum});
        }
    }
    return result;
}

}  // namespace

std::optional<Place> place_of(std::span<const code::Parameter> layout, std::size_t offset,
                              std::size_t bytes) {
    for (std::size_t i = 0; i < layout.size(); ++i) {
        if (offset >= layout[i].offset && offset + bytes <= layout[i].offset + layout[i].bytes)
            return Place{i, offset - layout[i].offset};
    }
    return std::nullopt;
}

std::vector<PlacedAccess> place(std::span<const code::KernelAccess> accesses,
                                std::span<const code::Parameter> layout) {
    std::vector<PlacedAccess> result;
    for (const code::KernelAccess& access : accesses) result.push_back(placed(access, layout));
    return result;
}

}  // namespace lms::access
