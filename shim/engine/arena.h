// Hands out ranges of one reserved span of addresses. Pure bookkeeping: it maps nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "shim/engine/chunk.h"

namespace lms::engine {

// Not thread-safe; the session's lock guards it.
class Arena {
  public:
    // `begin` and `bytes` are multiples of `granularity`. Before and after any range given out, `guard_bytes`
    // of the span stay unused: a pointer just before or just past a buffer is the arena's and hits no other
    // buffer.
    Arena(Address begin, std::uint64_t bytes, std::uint64_t granularity, std::uint64_t guard_bytes);

    // The beginning of the smallest free range that holds `bytes` (rounded up to granularity), of equals the
    // lowest; aligned to granularity; nothing when none is left. Takes the logarithm of how many there are.
    std::optional<Address> take(std::uint64_t bytes);
    // Gives back a range that take() returned, of the same size.
    void give_back(Address address, std::uint64_t bytes);

    Address begin() const { return begin_; }
    Address end() const { return end_; }
    bool contains(Address address) const { return address - begin_ < end_ - begin_; }
    std::uint64_t free_bytes() const;

  private:
    using Free = std::map<Address, std::uint64_t>;  // address -> bytes

    std::uint64_t padded(std::uint64_t bytes) const;
    void add(Address address, std::uint64_t bytes);
    void remove(Free::iterator it);

    Address begin_;
    Address end_;
    std::uint64_t granularity_;
    std::uint64_t guard_bytes_;
    Free free_;  // neighbours are merged
    std::set<std::pair<std::uint64_t, Address>> by_size_;
};

}  // namespace lms::engine
