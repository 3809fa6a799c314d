// What a step of a move waits for when it can get no further: a copy, a fence, a thread; each for a glance.
#include "shim/executor/eviction.h"
#include "shim/executor/migrator.h"
#include "shim/executor/placement.h"
#include "shim/trace/live_page.h"
#include "shim/util/bounds.h"

namespace lms::executor {

using engine::ChunkId;
using engine::Residency;

namespace {

// Moves hold the GPU up where it has had to wait for one so few works ago.
constexpr std::uint64_t kLately = 1000;
// So many fences behind a free: the GPU is kept busy while that is waited for.
constexpr std::uint64_t kKeepsBusy = 16;

}  // namespace

// Nothing of the program's holds a copy up, but a launch may claim its chunk back: then it came to nothing.
Migrator::Step Migrator::await_copy_out(SessionLock& lock) {
    waits_for_ = trace::StallCause::CopyOut;
    const engine::PendingEviction first = core_.engine.pending_evictions().front();
    const auto it = core_.copy_fences.find(first.eviction);
    const FencePtr fence = it == core_.copy_fences.end() ? nullptr : it->second;
    const bool complete = unlocked(lock, [&] { return !fence || wait_for(*fence, bounds::kGlance); });
    poll_completions(core_, lock);
    return complete && core_.engine.leaves(first) ? Step::Moved : Step::Waited;
}

// Copies in wait for nobody.
Migrator::Step Migrator::await_fill(SessionLock& lock) {
    const engine::Use oldest = core_.backing[core_.engine.filling().front()].fill;
    wait_for_uses({oldest}, lock);
    poll_completions(core_, lock);
    return core_.residency.timelines.finished(oldest) ? Step::Moved : Step::Waited;
}

// What streams have yet to free makes room without a move. Where all that was ever live at once fits, the
// program lacks memory only because it runs ahead of the GPU. Elsewhere it is worth the wait where moves hold
// the GPU up, of which this saves two, and much is queued behind the free; what is foretold to go goes in any
// case. Whether it waited.
bool Migrator::await_frees(SessionLock& lock) {
    engine::Engine& engine = core_.engine;
    // Where remaps wait, frees do until the program's work is over.
    if (engine.pending_frees.empty() || core_.remaps_wait) return false;
    const engine::Use oldest = engine.pending_frees.oldest().free;
    const bool all_fits = engine.most_live_bytes() <= engine.budget_bytes();
    const bool saves_moves =
        engine.works_since_wait() <= kLately && core_.fences.behind(oldest) >= kKeepsBusy;
    if (!all_fits && !saves_moves) return false;
    if (!all_fits && engine.next_foretold().is != engine::NextEviction::Is::NoVictims) return false;
    if (oldest == free_in_vain_ || core_.residency.timelines.finished(oldest) || stalled_.includes({oldest}))
        return false;
    if (Clock::now() > frees_until_) {
        free_in_vain_ = oldest;
        return false;
    }
    waits_for_ = trace::StallCause::InUse;
    wait_for_uses({oldest}, lock);
    return true;
}

Migrator::Step Migrator::await_opaque(SessionLock& lock) {
    waits_for_ = trace::StallCause::Opaque;
    if (core_.port.maps_host_memory() && stalled_.includes_opaque()) return Step::Stalled;
    if (!core_.engine.submissions().any_opaque() && !core_.earlier.any()) {
        wait_for_uses(core_.engine.opaque_uses(), lock);
        return Step::Waited;
    }
    // Threads that submit say so; of earlier work nobody does.
    core_.changed.wait_for(lock, core_.earlier.any() ? bounds::kUntold : glance());
    return Step::Waited;
}

Migrator::Step Migrator::await_idle(std::uint64_t bytes, SessionLock& lock) {
    waits_for_ = trace::StallCause::InUse;
    const Residency& residency = core_.residency;
    const auto may_be_waited_for = [&](const engine::Chunk& chunk)
                                       LMS_LOCKED { return !stalled_.includes(chunk.uses); };
    ChunkId busy = core_.engine.busy_victim(bytes, may_be_waited_for);
    if (busy == engine::kNoChunk)
        busy = core_.engine.busy_victim(bytes, [](const engine::Chunk&) { return true; });
    trace::add(trace::counters().victims_overruled, core_.engine.take_overruled());
    std::vector<engine::Use> free;
    if (!core_.engine.pending_frees.empty()) free = {core_.engine.pending_frees.oldest().free};
    // What was submitted first, unless it stands still.
    if (busy != engine::kNoChunk && !free.empty() && !stalled_.includes(free) &&
        core_.fences.entered_before(free.front(), residency.chunk(busy).uses))
        return await(free, lock);
    if (busy != engine::kNoChunk) return await(residency.chunk(busy).uses, lock);
    if (!core_.engine.filling().empty()) {
        wait_for_uses({core_.backing[core_.engine.filling().front()].fill}, lock);
        return Step::Waited;
    }
    if (!free.empty()) return await(free, lock);
    return someone_holds() ? await_holders(lock) : Step::Impossible;
}

bool Migrator::someone_holds() const {
    return core_.holders > 0 || core_.engine.submissions().any();
}

// The next two wait for a while, unless it is of no use and there is something else to do.
Migrator::Step Migrator::await(const std::vector<engine::Use>& uses, SessionLock& lock) {
    if (core_.port.maps_host_memory() && stalled_.includes(uses)) return Step::Stalled;
    wait_for_uses(uses, lock);
    return Step::Waited;
}

Migrator::Step Migrator::await_holders(SessionLock& lock) {
    if (core_.port.maps_host_memory() && stalled_.includes_holders()) return Step::Stalled;
    wait_for_change(lock);
    return Step::Waited;
}

std::chrono::milliseconds Migrator::glance() const {
    return queue_.size() > 1 ? bounds::kQuickGlance : bounds::kGlance;
}

void Migrator::wait_for_uses(const std::vector<engine::Use>& uses, SessionLock& lock) {
    FencePtr fence;
    for (const engine::Use& use : uses) {
        fence = core_.fences.fence_of(use);
        if (fence) break;
    }
    const auto most = glance();  // of the queue, which the lock guards
    unlocked(lock, [&] { return fence && wait_for(*fence, most); });
}

void Migrator::wait_for_change(SessionLock& lock) {
    core_.changed.wait_for(lock, glance());
}

}  // namespace lms::executor
