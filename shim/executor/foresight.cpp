// What is foretold is brought in before it is needed, by whichever thread has just submitted work or waits
// for some.
#include <algorithm>
#include <array>

#include "shim/executor/block_allocation.h"
#include "shim/executor/eviction.h"
#include "shim/executor/migration_turn.h"
#include "shim/executor/placement.h"
#include "shim/trace/live_page.h"

namespace lms::executor {

using engine::ChunkId;

namespace {

constexpr int kMostStepsAhead = 64;  // of one submission or wait

}  // namespace

bool Migrator::move_ahead(SessionLock& lock) {
    // Before, work that was let through has not been looked at.
    if (!core_.under_pressure.load()) return false;
    if (!queue_.empty() || core_.settings.safety == Safety::Strict) return false;
    if (has_lost_turn()) return false;
    std::array<ChunkId, 8> next{};
    const bool in = core_.engine.upcoming(next) != 0;
    if (!in && core_.engine.next_foretold().is == engine::NextEviction::Is::NoVictims) return false;
    const MigrationTurn turn(*this, lock);
    if (!in) poll_completions(core_, lock);
    const bool more_in = in && bring_in_ahead(lock);
    return evict_ahead(lock) || more_in;
}

bool Migrator::evict_ahead(SessionLock& lock) {
    if (others_want_memory()) return true;
    // Copies hold nobody up.
    if (!may_remap_now() && !core_.remaps_wait) return false;
    if (may_remap_now()) complete_foretold(core_, lock);
    return start_foretold(core_, lock) == Start::Enough;
}

bool Migrator::bring_in_ahead(SessionLock& lock) {
    std::array<ChunkId, 8> next{};
    bool more = true;
    // A policy that takes back what it has just asked for is not to keep the thread.
    for (int steps = 0; more && steps < kMostStepsAhead; ++steps) {
        poll_completions(core_, lock);
        if (!may_remap_now()) return false;
        if (core_.engine.opaque_busy() || others_want_memory() || core_.engine.filling().size() >= kFewFills)
            return true;
        const std::size_t count = core_.engine.upcoming(next);
        if (count == 0) return false;
        more = core_.remaps_wait ? page_in_together({}, lock) == Step::Moved
                                 : step_ahead(std::span(next).first(count), lock);
    }
    return true;
}

// A driver that lets a remap wait for all work is not to hold a thread up that may be who that work waits
// for: it asked for no move.
bool Migrator::may_remap_now() const {
    return core_.remaps_beside_work || !program_works(core_);
}

// Gets further with the first of `next` that can come in; false if that is not possible now.
bool Migrator::step_ahead(std::span<const ChunkId> next, SessionLock& lock) {
    const engine::Residency& residency = core_.residency;
    const auto able = std::find_if(next.begin(), next.end(), [&](ChunkId id) LMS_LOCKED {
        const engine::Chunk& chunk = residency.chunk(id);
        return chunk.state == engine::State::OnHost && !residency.allocation(chunk.allocation).dead &&
               residency.may_come_in(id);
    });
    if (able == next.end()) return false;
    const ChunkRequest need{*able, residency.chunk(*able).serial, false, false};
    const std::uint64_t bytes = residency.chunk(*able).bytes;
    const std::uint64_t limit = core_.engine.eviction_start();
    if (const auto block = device_block(core_, bytes, limit, lock)) {
        const PageIn fill{need, *block};
        if (page_in_now(std::span(&fill, 1), lock) != Step::Moved) return false;
        trace::add(trace::counters().fills_ahead);
        return true;
    }
    if (core_.engine.opaque_busy()) return false;
    start_evictions(core_, {bytes, engine::Purpose::Ahead, *able}, 0, lock);
    return complete_evictions(core_, bytes, lock) == Finish::Moved;
}

}  // namespace lms::executor
