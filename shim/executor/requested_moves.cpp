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

bool is_on_device(const Core& core, const ChunkRequest& need) LMS_LOCKED {
    if (gone(need, core.residency)) return false;
    const engine::State where = core.residency.chunk(need.chunk).state;
    return where != engine::State::OnHost && where != engine::State::Empty;
}

}  // namespace

bool Migrator::try_bring_in(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) {
    MigrationTurn turn(*this, lock);
    core_.engine.cancel_stale();
    std::vector<ChunkRequest> missing;
    for (BoundedWait wait(stalled_);;) {
        missing.clear();
        if (core_.engine.hold(needs, hold, missing)) return true;
        const Step result = step(missing, lock);
        drop(core_, hold);
        if (result == Step::Moved) wait.begin_anew();
        if (result == Step::Waited) wait.waited();
        if (result == Step::Impossible || result == Step::Stalled || wait.in_vain()) return false;
        // No work needs it.
        if (result == Step::Waited) turn.give_way(lock);
    }
}

Migrator::Evicted Migrator::evict(std::span<const ChunkRequest> those, SessionLock& lock) {
    const MigrationTurn turn(*this, lock);
    poll_completions(core_, lock);
    look_at_earlier_work(core_, lock);
    Start started = Start::Enough;
    const auto leaves = [&](const ChunkRequest& each) LMS_LOCKED {
        return !gone(each, core_.residency) &&
               core_.residency.chunk(each.chunk).state == engine::State::Evicting;
    };
    // What comes in still is there only then.
    while (!core_.engine.filling().empty()) {
        await_fill(lock);
        poll_completions(core_, lock);
    }
    if (!core_.engine.opaque_busy()) started = start_evictions_of(core_, those, lock);
    while (started != Start::Failed && std::ranges::any_of(those, leaves)) {
        await_copy_out(lock);
        if (complete_evictions(core_, UINT64_MAX, lock) == Finish::Failed) break;
    }
    if (std::ranges::none_of(those,
                             [&](const ChunkRequest& each) LMS_LOCKED { return is_on_device(core_, each); }))
        return Evicted::All;
    return started == Start::NoHostMemory ? Evicted::NoHostMemory : Evicted::Some;
}

bool Migrator::await_unused(engine::AllocationId id, SessionLock& lock) {
    const std::uint64_t serial = core_.residency.allocation(id).serial;
    const auto is_stalled = [&](engine::ChunkId chunk) LMS_LOCKED {
        const engine::Chunk& each = core_.residency.chunk(chunk);
        return stalled_for_long_.includes(each.uses) ||
               (each.pins + each.pins_in_place > 0 && stalled_for_long_.includes_holders());
    };
    for (BoundedWait wait(stalled_for_long_, bounds::kHandOver);; wait.waited()) {
        poll_completions(core_, lock);
        look_at_earlier_work(core_, lock);
        const engine::Allocation& buffer = core_.residency.allocation(id);
        if (!buffer.live || buffer.serial != serial || !core_.engine.is_used(id)) return true;
        if (wait.in_vain() || stalled_for_long_.includes_opaque() ||
            std::ranges::any_of(buffer.chunks, is_stalled))
            return false;
        core_.changed.wait_for(lock, bounds::kQuickGlance);
    }
}

void Migrator::give_back_excess(SessionLock& lock, bool waits_for_copies) {
    if (!queue_.empty() || (core_.engine.works() < excess_stays_until_ && !waits_for_copies)) return;
    const MigrationTurn turn(*this, lock);
    look_at_earlier_work(core_, lock);
    const std::uint64_t works = core_.engine.works();
    bool further = true;
    while (further && excess_bytes(core_) > 0) {
        poll_completions(core_, lock);
        further = core_.device_blocks.trim(excess_bytes(core_), lock) > 0;
        if (further) note_levels(core_);
        const std::uint64_t bytes = excess_bytes(core_);
        if (bytes == 0 || core_.engine.opaque_busy()) break;
        // Work that goes on uses what has not left.
        const std::uint64_t now = waits_for_copies ? bytes : std::min(bytes, core_.engine.way_bytes());
        if (start_evictions(core_, {now}, 0, lock) == Start::Failed) break;
        const Finish finished = complete_evictions(core_, bytes, lock);
        further |= finished == Finish::Moved;
        if (finished != Finish::NothingReady || core_.engine.pending_evictions().empty()) continue;
        if (!waits_for_copies) return;
        // A launch goes first, and one that has come claims back what leaves. What is left goes when the
        // share is looked at again.
        if (core_.share && queue_.size() > 1) return;
        if (core_.granted_bytes > 0 && core_.engine.works() != works) return;
        await_copy_out(lock);
        further = true;
    }
    excess_stays_until_ = core_.engine.works() + kWorks;
}

}  // namespace lms::executor
