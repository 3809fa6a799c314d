#include "shim/core/arena.h"

#include <iterator>

namespace lms::core {

Arena::Arena(Address begin, std::uint64_t bytes, std::uint64_t granularity, std::uint64_t guard_bytes)
    : begin_(begin), end_(begin + bytes), granularity_(granularity), guard_bytes_(guard_bytes) {
    if (bytes > guard_bytes) free_.emplace(begin + guard_bytes, bytes - guard_bytes);
}

std::uint64_t Arena::padded(std::uint64_t bytes) const {
    return (bytes + granularity_ - 1) / granularity_ * granularity_ + guard_bytes_;
}

std::optional<Address> Arena::take(std::uint64_t bytes) {
    if (bytes > end_ - begin_) return std::nullopt;
    const std::uint64_t need = padded(bytes);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        const auto [address, size] = *it;
        if (size < need) continue;
        free_.erase(it);
        if (size > need) free_.emplace(address + need, size - need);
        return address;
    }
    return std::nullopt;
}

void Arena::give_back(Address address, std::uint64_t bytes) {
    auto it = free_.emplace(address, padded(bytes)).first;
    const auto next = std::next(it);
    if (next != free_.end() && it->first + it->second == next->first) {
        it->second += next->second;
        free_.erase(next);
    }
    if (it == free_.begin()) return;
    const auto previous = std::prev(it);
    if (previous->first + previous->second == it->first) {
        previous->second += it->second;
        free_.erase(it);
    }
}

std::uint64_t Arena::free_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [address, bytes] : free_) sum += bytes;
    return sum;
}

}  // namespace lms::core
