// What is free of a range of addresses.
#pragma once

#include <cstdint>
#include <map>

namespace simcuda::driver {

class Gaps {
  public:
    // [begin, begin + bytes) is free; `begin` is not 0.
    Gaps(std::uint64_t begin, std::uint64_t bytes);

    // Next fit: an address is reused as late as can be, so that a stale pointer is noticed. A free `hint` is
    // honoured. 0 if there is no such gap. `alignment` is a power of two.
    std::uint64_t take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint = 0);
    void give_back(std::uint64_t address, std::uint64_t bytes);

    std::uint64_t free_bytes() const { return free_; }
    bool all_free() const { return free_ == end_ - begin_; }

  private:
    std::uint64_t search(std::uint64_t from, std::uint64_t to, std::uint64_t bytes,
                         std::uint64_t alignment) const;

    const std::uint64_t begin_, end_;
    std::map<std::uint64_t, std::uint64_t> gaps_;  // address -> bytes
    std::uint64_t next_, free_;
};

}  // namespace simcuda::driver
