// Physical memory, pooled: creating a block costs several times a remap, so a block freed by one chunk serves
// the next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "shim/core/arena.h"
#include "shim/device/port.h"
#include "shim/migration/session_lock.h"
#include "shim/util/clock.h"

namespace lms::engine {

// A piece of device or host memory. Copies go through `alias`, its own permanent address, never through the
// app's, so the app's address can be remapped while a copy runs.
struct Block {
    device::Place place = device::Place::Device;
    // Pinned host memory that cannot be mapped behind an address: `alias` is its host pointer, and it has no
    // handle.
    bool pinned = false;
    // The same of memory that is not pinned now, for there is no context to pin it in; it is of no pool.
    bool unpinned = false;
    CUmemGenericAllocationHandle handle = 0;
    device::Address alias = 0;
    std::uint64_t bytes = 0;
};

class BlockPool {
  public:
    // Blocks of `place`. Aliases come from `aliases`, guarded by the session's lock like everything here;
    // where the device cannot map host memory, host blocks are pinned memory instead and have no handle.
    BlockPool(device::Port& port, device::Place place, core::Arena& aliases)
        : port_(port), place_(place), aliases_(aliases) {}

    // A free block of exactly `bytes`. Needs the session's lock.
    std::optional<Block> take(std::uint64_t bytes);
    // Returns a block nobody's work uses any more. Needs the session's lock.
    void put(const Block& block);

    // Makes a new block; drops `lock`, the session's, around the driver calls. Whether it may be made is the
    // caller's to decide first: from here on it counts as held. What the driver took long to refuse it is not
    // asked for again at once.
    CUresult create(std::uint64_t bytes, Block& block, SessionLock& lock);
    // Gives free blocks back to the driver until at least `bytes` are, or none is left; returns how many
    // bytes were. Drops `lock` around the driver calls. What the driver does not take back stays held until
    // recover() finds that it has.
    std::uint64_t trim(std::uint64_t bytes, SessionLock& lock);

    // Gives back what can be of blocks that are mapped somewhere still; they stay held likewise.
    void lose(std::span<const Block> blocks, SessionLock& lock);
    // The bytes that have been the driver's again since; drops `lock` if there may be any.
    std::uint64_t recover(SessionLock& lock);

    // Forgets the free blocks, which the driver has taken away itself.
    void abandon();

    std::uint64_t held_bytes() const { return held_bytes_; }  // created and not given back
    std::uint64_t free_bytes() const { return free_bytes_; }  // of those, in no use

  private:
    using Clock = util::Clock;
    CUresult make(Block& block);
    bool destroy(const Block& block);
    std::uint64_t note_gone(std::span<const Block> gone);
    void note_refusal(Clock::duration took);
    bool pinned() const { return place_ == device::Place::Host && !port_.maps_host_memory(); }

    device::Port& port_;
    device::Place place_;
    core::Arena& aliases_;
    std::map<std::uint64_t, std::vector<Block>> free_;  // by size
    std::vector<Block> lost_;                           // which the driver did not take back whole
    std::uint64_t held_bytes_ = 0;
    std::uint64_t free_bytes_ = 0;
    // For what comes to hold as many, or more, the driver is not asked before then: given back, they make
    // room for as much as they were and no more.
    std::uint64_t refused_at_bytes_ = 0;
    Clock::time_point refused_until_{};
};

}  // namespace lms::engine
