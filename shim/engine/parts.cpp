#include "shim/engine/parts.h"

#include <algorithm>

namespace lms::engine {

void Parts::begins(std::uint64_t kind, std::uint64_t offset, std::uint64_t now) {
    if (kinds_.size() >= kMostKinds && !kinds_.contains(kind)) {
        kinds_.erase(
            std::ranges::min_element(kinds_, {}, [](const auto& each) { return each.second.latest; }));
    }
    Kind& known = kinds_[kind];
    known.latest = now;
    known.seen[offset] = now;
    if (known.seen.size() <= kMostBeginnings) return;
    std::erase_if(known.seen, [&](const auto& each) { return now - each.second > kForgotten / 2; });
    if (known.seen.size() > kMostBeginnings) known.seen = {{offset, now}};
}

std::uint64_t Parts::end_of(std::uint64_t kind, std::uint64_t offset, std::uint64_t bytes,
                            std::uint64_t now) {
    const auto known = kinds_.find(kind);
    if (known == kinds_.end()) return bytes;
    auto& seen = known->second.seen;
    auto next = seen.upper_bound(offset);
    while (next != seen.end() && now - next->second > kForgotten) next = seen.erase(next);
    return next == seen.end() ? bytes : std::min(bytes, next->first);
}

}  // namespace lms::engine
