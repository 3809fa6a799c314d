// Hands out ranges of one reserved span of addresses. Pure bookkeeping: it maps nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "shim/core/chunk.h"

namespace lms::core {

// Not thread-safe; the session's lock guards it.
class Arena {
  public:
    // `begin` and `bytes` are multiples of `granularity`. Before and after any range given out, `guard_bytes`
    // of the span stay unused: a pointer just before or just past a buffer is the arena's and hits no other
    // buffer.
    Arena(Address begin, std::uint64_t bytes, std::uint64_t granularity, std::uint64_t guard_bytes);

    // The lowest free range of `bytes` (rounded up to granularity), aligned to granularity; nothing when none
    // is left.
    std::optional<Address> take(std::uint64_t bytes);
    // Gives back a range that take() returned, of the same size.
    void give_back(Address address, std::uint64_t bytes);

    Address begin() const { return begin_; }
    Address end() const { return end_; }
    bool contains(Address address) const { return address - begin_ < end_ - begin_; }
    std::uint64_t free_bytes() const;

  private:
    std::uint64_t padded(std::uint64_t bytes) const;

    Address begin_;
    Address end_;
    std::uint64_t granularity_;
    std::uint64_t guard_bytes_;
    std::map<Address, std::uint64_t> free_;  // address -> bytes; neighbours are merged
};

}  // namespace lms::core
