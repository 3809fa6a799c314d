// Moves that no work needs: the program, or its user, has asked for them (<lms/lms.h>).
#include <algorithm>

#include "shim/executor/budget.h"
#include "shim/executor/eviction.h"
#include "shim/executor/migration_turn.h"
#include "shim/executor/placement.h"
#include "shim/util/bounds.h"

namespace lms::executor {

namespace {

// Works before what is in excess and in use is looked at again.
constexpr std::uint64_t kWorks = 8;

bool is_on_device(const State& state, const ChunkRequest& need) LMS_LOCKED {
    if (gone(need, state.residency)) return false;
    const engine::State where = state.residency.chunk(need.chunk).state;
    return where != engine::State::OnHost && where != engine::State::Empty;
}

}  // namespace

bool Migrator::try_bring_in(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) {
    MigrationTurn turn(*this, lock);
    state_.engine.cancel_stale();
    std::vector<ChunkRequest> missing;
    for (BoundedWait wait(stalled_);;) {
        missing.clear();
        if (state_.engine.hold(needs, hold, missing)) return true;
        const Step result = step(missing, lock);
        drop(state_, hold);
        if (result == Step::Moved) wait.begin_anew();
        if (result == Step::Waited) wait.waited();
        if (result == Step::Impossible || result == Step::Stalled || wait.in_vain()) return false;
        // No work needs it.
        if (result == Step::Waited) turn.give_way(lock);
    }
}

Migrator::Evicted Migrator::evict(std::span<const ChunkRequest> those, SessionLock& lock) {
    const MigrationTurn turn(*this, lock);
    poll_completions(state_, lock);
    look_at_earlier_work(state_, lock);
    Start started = Start::Enough;
    const auto leaves = [&](const ChunkRequest& each) LMS_LOCKED {
        return !gone(each, state_.residency) &&
               state_.residency.chunk(each.chunk).state == engine::State::Evicting;
    };
    // What comes in still is there only then.
    while (!state_.engine.filling().empty()) {
        await_fill(lock);
        poll_completions(state_, lock);
    }
    if (!state_.engine.opaque_busy()) started = start_evictions_of(state_, those, lock);
    while (started != Start::Failed && std::ranges::any_of(those, leaves)) {
        await_copy_out(lock);
        if (complete_evictions(state_, UINT64_MAX, lock) == Finish::Failed) break;
    }
    if (std::ranges::none_of(those,
                             [&](const ChunkRequest& each) LMS_LOCKED { return is_on_device(state_, each); }))
        return Evicted::All;
    return started == Start::NoHostMemory ? Evicted::NoHostMemory : Evicted::Some;
}

bool Migrator::await_unused(engine::AllocationId id, SessionLock& lock) {
    const std::uint64_t serial = state_.residency.allocation(id).serial;
    const auto is_stalled = [&](engine::ChunkId chunk) LMS_LOCKED {
        const engine::Chunk& each = state_.residency.chunk(chunk);
        return stalled_for_long_.includes(each.uses) ||
               (each.pins + each.pins_in_place > 0 && stalled_for_long_.includes_holders());
    };
    for (BoundedWait wait(stalled_for_long_, bounds::kHandOver);; wait.waited()) {
        poll_completions(state_, lock);
        look_at_earlier_work(state_, lock);
        const engine::Allocation& buffer = state_.residency.allocation(id);
        if (!buffer.live || buffer.serial != serial || !state_.engine.is_used(id)) return true;
        if (wait.in_vain() || stalled_for_long_.includes_opaque() ||
            std::ranges::any_of(buffer.chunks, is_stalled))
            return false;
        state_.changed.wait_for(lock, bounds::kQuickGlance);
    }
}

void Migrator::give_back_excess(SessionLock& lock, bool waits_for_copies) {
    if (!queue_.empty() || (state_.engine.works() < excess_stays_until_ && !waits_for_copies)) return;
    const MigrationTurn turn(*this, lock);
    look_at_earlier_work(state_, lock);
    const std::uint64_t works = state_.engine.works();
    bool further = true;
    while (further && excess_bytes(state_) > 0) {
        poll_completions(state_, lock);
        further = state_.device_blocks.trim(excess_bytes(state_), lock) > 0;
        if (further) note_levels(state_);
        const std::uint64_t bytes = excess_bytes(state_);
        if (bytes == 0 || state_.engine.opaque_busy()) break;
        // Work that goes on uses what has not left.
        const std::uint64_t now = waits_for_copies ? bytes : std::min(bytes, state_.engine.way_bytes());
        if (start_evictions(state_, {now}, 0, lock) == Start::Failed) break;
        const Finish finished = complete_evictions(state_, bytes, lock);
        further |= finished == Finish::Moved;
        if (finished != Finish::NothingReady || state_.engine.pending_evictions().empty()) continue;
        if (!waits_for_copies) return;
        // A launch goes first, and one that has come claims back what leaves. What is left goes when the
        // share is looked at again.
        if (state_.share && queue_.size() > 1) return;
        if (state_.granted_bytes > 0 && state_.engine.works() != works) return;
        await_copy_out(lock);
        further = true;
    }
    excess_stays_until_ = state_.engine.works() + kWorks;
}

}  // namespace lms::executor
