#include "shim/engine/arena.h"

#include <iterator>

namespace lms::engine {

Arena::Arena(Address begin, std::uint64_t bytes, std::uint64_t granularity, std::uint64_t guard_bytes)
    : begin_(begin), end_(begin + bytes), granularity_(granularity), guard_bytes_(guard_bytes) {
    if (bytes > guard_bytes) add(begin + guard_bytes, bytes - guard_bytes);
}

std::uint64_t Arena::padded(std::uint64_t bytes) const {
    return (bytes + granularity_ - 1) / granularity_ * granularity_ + guard_bytes_;
}

void Arena::add(Address address, std::uint64_t bytes) {
    free_.emplace(address, bytes);
    by_size_.emplace(bytes, address);
}

void Arena::remove(Free::iterator it) {
    by_size_.erase({it->second, it->first});
    free_.erase(it);
}

std::optional<Address> Arena::take(std::uint64_t bytes) {
    if (bytes > end_ - begin_) return std::nullopt;
    const std::uint64_t need = padded(bytes);
    const auto smallest = by_size_.lower_bound({need, 0});
    if (smallest == by_size_.end()) return std::nullopt;
    const auto [size, address] = *smallest;
    remove(free_.find(address));
    if (size > need) add(address + need, size - need);
    return address;
}

void Arena::give_back(Address address, std::uint64_t bytes) {
    std::uint64_t size = padded(bytes);
    const auto next = free_.find(address + size);
    if (next != free_.end()) {
        size += next->second;
        remove(next);
    }
    const auto after = free_.lower_bound(address);
    if (after != free_.begin()) {
        const auto previous = std::prev(after);
        if (previous->first + previous->second == address) {
            address = previous->first;
            size += previous->second;
            remove(previous);
        }
    }
    add(address, size);
}

std::uint64_t Arena::free_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [address, bytes] : free_) sum += bytes;
    return sum;
}

}  // namespace lms::engine
