// Physical memory that is in no use. Creating a block costs several times a remap, so a block freed by one
// chunk serves the next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "shim/engine/block.h"

namespace lms::engine {

// Blocks of one place. Pure bookkeeping: the executor creates and destroys blocks, and says so here. Not
// thread-safe; the session's lock guards it.
class BlockPool {
  public:
    // A free block of exactly `bytes`.
    std::optional<Block> take(std::uint64_t bytes);
    // Returns a block that no work uses any more. One that is not pinned is of no pool: take_unpinned().
    void put(const Block& block);

    // The driver is about to be asked for `bytes`, which count as held from here on.
    void begin_create(std::uint64_t bytes) { held_bytes_ += bytes; }
    void create_failed(std::uint64_t bytes) { held_bytes_ -= bytes; }

    // Takes out free blocks until they have `bytes`, or none is left, the largest first: fewest calls. They
    // stay held until given_back(). `at_most`: they have no more than that.
    std::vector<Block> take_for_driver(std::uint64_t bytes, bool at_most = false);
    void given_back(std::uint64_t bytes) { held_bytes_ -= bytes; }

    // Pinned memory goes with the context that it was pinned in. From here on no block that was pinned before
    // is given out; what of these comes back waits for take_for_driver().
    void begin_era();
    // The driver takes away what was pinned before, wherever it is: what comes back of it is forgotten.
    void end_earlier_eras();
    std::uint32_t era() const { return era_; }
    bool has_ended(const Block& block) const {
        return block.pinned && !block.unpinned && block.era < first_era_;
    }

    // The blocks put here whose memory was never the driver's: the caller frees it.
    std::vector<Block> take_unpinned() { return std::exchange(unpinned_, {}); }

    std::uint64_t held_bytes() const { return held_bytes_; }  // created and not given back
    std::uint64_t free_bytes() const { return free_bytes_; }  // of those, in no use
    // The bytes that were in no use at any time since the last call.
    std::uint64_t take_idle_bytes() { return std::exchange(idle_bytes_, free_bytes_); }
    const std::map<std::uint64_t, std::vector<Block>>& free_blocks() const { return free_; }

  private:
    std::map<std::uint64_t, std::vector<Block>> free_;  // by size
    std::vector<Block> unpinned_;
    std::vector<Block> of_earlier_eras_;
    std::uint32_t era_ = 0;
    std::uint32_t first_era_ = 0;  // whose memory there is still
    std::uint64_t held_bytes_ = 0;
    std::uint64_t free_bytes_ = 0;
    std::uint64_t idle_bytes_ = 0;  // the least that was free since take_idle_bytes()
};

}  // namespace lms::engine
