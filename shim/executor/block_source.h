// Blocks of physical memory, from the driver and back to it. Which are free is engine::BlockPool's to know.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shim/device/port.h"
#include "shim/engine/arena.h"
#include "shim/engine/engine.h"
#include "shim/executor/session_lock.h"
#include "shim/util/clock.h"

namespace lms::executor {

using engine::Block;

class BlockSource {
  public:
    // Blocks of `place`, which are free in `pool`. Aliases come from `aliases`, guarded by the session's lock
    // like everything here; where the device cannot map host memory, host blocks are pinned memory instead
    // and have no handle.
    BlockSource(device::Port& port, engine::BlockPool& pool, engine::Place place, engine::Arena& aliases)
        : port_(port), pool_(pool), place_(place), aliases_(aliases) {}

    // Makes a new block; drops `lock`, the session's, around the driver calls. Whether it may be made is the
    // caller's to decide first: from here on it counts as held. What the driver took long to refuse it is not
    // asked for again at once.
    CUresult create(std::uint64_t bytes, Block& block, SessionLock& lock) LMS_LOCKED;
    // Gives free blocks back to the driver until at least `bytes` are, or none is left; returns how many
    // bytes were. `at_most`: no more than `bytes` are. Drops `lock` around the driver calls. What the driver
    // does not take back stays held until recover() finds that it has.
    std::uint64_t trim(std::uint64_t bytes, SessionLock& lock, bool at_most = false) LMS_LOCKED;

    // Gives back what can be of blocks that are mapped somewhere still; they stay held likewise.
    void lose(std::span<const Block> blocks, SessionLock& lock) LMS_LOCKED;
    // The bytes that have been the driver's again since; drops `lock` if there may be any.
    std::uint64_t recover(SessionLock& lock) LMS_LOCKED;

    // The context that memory is pinned in is another from now on: what was pinned before is not given out
    // any more. It may be used until end_earlier_eras(); until pins_before_era() is false, more of it may
    // come.
    void begin_era();
    bool pins_before_era() const { return pins_before_era_ > 0; }
    // That context goes, and with it what was pinned there. All of these are for pinned memory.
    void end_earlier_eras();
    // Frees host memory that was never the driver's.
    void free_unpinned();

    std::uint64_t held_bytes() const { return pool_.held_bytes(); }  // created and not given back
    std::uint64_t free_bytes() const { return pool_.free_bytes(); }  // of those, in no use

  private:
    using Clock = util::Clock;
    CUresult make(Block& block) LMS_UNLOCKED;
    bool destroy(const Block& block) LMS_UNLOCKED;
    std::uint64_t note_gone(std::span<const Block> gone);
    void note_refusal(Clock::duration took);
    bool pinned() const { return place_ == engine::Place::Host && !port_.maps_host_memory(); }

    device::Port& port_;
    engine::BlockPool& pool_;
    engine::Place place_;
    engine::Arena& aliases_;
    std::size_t pins_ = 0;             // under way in the driver
    std::size_t pins_before_era_ = 0;  // the same, of earlier eras
    std::vector<Block> lost_;          // which the driver did not take back whole
    // For what comes to hold as many, or more, the driver is not asked before then: given back, they make
    // room for as much as they were and no more.
    std::uint64_t refused_at_bytes_ = 0;
    Clock::time_point refused_until_{};
};

}  // namespace lms::executor
