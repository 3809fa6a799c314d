#include "tools/simcuda/driver/gaps.h"

#include <algorithm>
#include <iterator>

namespace simcuda::driver {

Gaps::Gaps(std::uint64_t begin, std::uint64_t bytes)
    : begin_(begin), end_(begin + bytes), gaps_{{begin, bytes}}, next_(begin), free_(bytes) {}

std::uint64_t Gaps::search(std::uint64_t from, std::uint64_t to, std::uint64_t bytes,
                           std::uint64_t alignment) const {
    auto gap = gaps_.upper_bound(from);
    if (gap != gaps_.begin()) --gap;
    for (; gap != gaps_.end() && gap->first < to; ++gap) {
        const std::uint64_t start = (std::max(gap->first, from) + alignment - 1) & ~(alignment - 1);
        const std::uint64_t end = gap->first + gap->second;
        if (start < end && end - start >= bytes) return start;
    }
    return 0;
}

std::uint64_t Gaps::take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint) {
    if (bytes == 0 || bytes > free_ || alignment > end_ - begin_) return 0;
    std::uint64_t address = 0;
    if (hint >= begin_ && hint < end_ && hint % alignment == 0)
        address = search(hint, hint + 1, bytes, alignment);
    if (address == 0) address = search(next_, end_, bytes, alignment);
    if (address == 0) address = search(begin_, next_, bytes, alignment);
    if (address == 0) return 0;

    auto gap = std::prev(gaps_.upper_bound(address));
    const std::uint64_t first = gap->first, last = gap->first + gap->second;
    gaps_.erase(gap);
    if (address != first) gaps_.emplace(first, address - first);
    if (address + bytes != last) gaps_.emplace(address + bytes, last - address - bytes);
    next_ = address + bytes;
    free_ -= bytes;
    return address;
}

void Gaps::give_back(std::uint64_t address, std::uint64_t bytes) {
    free_ += bytes;
    auto next = gaps_.lower_bound(address);
    if (next != gaps_.end() && address + bytes == next->first) {
        bytes += next->second;
        next = gaps_.erase(next);
    }
    if (next != gaps_.begin()) {
        auto previous = std::prev(next);
        if (previous->first + previous->second == address) {
            previous->second += bytes;
            return;
        }
    }
    gaps_.emplace(address, bytes);
}

}  // namespace simcuda::driver
