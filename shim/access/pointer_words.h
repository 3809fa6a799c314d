// Which words of device memory hold addresses, as far as the host wrote them. Pure bookkeeping: it reads no
// memory.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "shim/engine/chunk.h"

namespace lms::access {

// One aligned 8-byte word of device memory, and the address it holds.
struct PointerWord {
    engine::Address at;
    engine::Address value;
    bool operator==(const PointerWord&) const = default;
};

// A range of device addresses, [begin, end): one buffer, one variable.
struct Extent {
    engine::Address begin;
    engine::Address end;
    bool operator==(const Extent&) const = default;
};

// Not thread-safe. Words and their values are kept exactly: host memory of 8 bytes a word, so less than the
// tables themselves take. A word of which only a part is overwritten stays.
class PointerWords {
  public:
    // [begin, begin + bytes) was written; these are the words with addresses there now, in address order.
    void overwrite(engine::Address begin, std::uint64_t bytes, std::span<const PointerWord> words);
    // These words may hold these addresses from now on. A word that held another one before counts as
    // holding the new one.
    void add(std::span<const PointerWord> words);
    // [from, from + bytes) was copied to `to`. Words that are not aligned after it are lost.
    void copy(engine::Address to, engine::Address from, std::uint64_t bytes);
    // The words such a copy makes.
    std::vector<PointerWord> copied(engine::Address to, engine::Address from, std::uint64_t bytes) const;

    bool empty() const { return pages_.empty(); }
    bool any_in(engine::Address begin, std::uint64_t bytes) const;
    std::vector<PointerWord> words_in(engine::Address begin, std::uint64_t bytes) const;

    // The buffer or variable that an address names, if any.
    using ExtentOf = std::function<std::optional<Extent>(engine::Address)>;
    // Adds to `addresses` what can be reached from them through known words: an address into each further
    // extent, once. An extent is reached whole. Costs little where the same tables are asked about again.
    void close_over(std::pmr::vector<engine::Address>& addresses, const ExtentOf& extent_of);

  private:
    // 4 KiB of addresses: which of its words hold addresses, and those, in order.
    static constexpr std::uint64_t kPageBytes = 4096;
    static constexpr std::size_t kPageWords = kPageBytes / sizeof(engine::Address);
    struct Page {
        std::bitset<kPageWords> set;
        std::vector<engine::Address> values;
    };
    struct Targets {
        engine::Address end;
        std::vector<engine::Address> addresses;  // distinct, ascending
    };

    const std::vector<engine::Address>& targets_of(Extent extent);
    void changed(engine::Address begin, engine::Address end);
    void erase_whole_words(engine::Address begin, engine::Address end);

    std::map<engine::Address, Page> pages_;       // by the page's first address
    std::map<engine::Address, Targets> targets_;  // of extents asked about, by their begin
};

}  // namespace lms::access
