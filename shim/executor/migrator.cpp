#include "shim/executor/migrator.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "shim/executor/block_allocation.h"
#include "shim/executor/budget.h"
#include "shim/executor/eviction.h"
#include "shim/executor/gpu_share.h"
#include "shim/executor/migration_turn.h"
#include "shim/executor/placement.h"
#include "shim/executor/self_check.h"
#include "shim/telemetry/telemetry.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
#include "shim/util/bounds.h"
#include "shim/util/log.h"

namespace lms::executor {

using engine::ChunkId;
using engine::Residency;

namespace {

std::uint64_t bytes_of(std::span<const ChunkRequest> needs, const Residency& residency) {
    std::uint64_t sum = 0;
    for (const ChunkRequest& need : needs) {
        if (!gone(need, residency) && !need.aside) sum += residency.chunk(need.chunk).bytes;
    }
    return sum;
}

}  // namespace

void let_go(Core& core, const ChunkPins& hold) {
    core.mutex.check_held();
    core.engine.let_go(hold);
    core.changed.notify_all();
}

void drop(Core& core, ChunkPins& hold) {
    core.engine.drop(hold);
    core.changed.notify_all();
}

CUresult Migrator::bring_in(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) {
    const CUresult status = hold_all(needs, hold, lock);
    if (status != CUDA_SUCCESS || !core_.port.missing().any() || restore(hold, lock)) return status;
    drop(core_, hold);
    const CUresult health = unlocked(lock, [&] { return core_.port.health(); });
    return health == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : health;
}

// Whether all that is held is mapped, what the driver had taken away too.
bool Migrator::restore(const ChunkPins& hold, SessionLock& lock) {
    std::vector<MappedAt> addresses;
    for (const auto* const some : {&hold.pinned, &hold.in_place}) {
        for (const ChunkId id : *some)
            std::ranges::move(addresses_of(core_, id), std::back_inserter(addresses));
    }
    // Another's launch is to find what this one is about to map.
    const MigrationTurn turn(*this, lock);
    return unlocked(lock, [&] {
        return std::ranges::all_of(
            addresses, [&](const MappedAt& at) { return core_.port.missing().restore(at.address); });
    });
}

CUresult Migrator::hold_all(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) {
    std::vector<ChunkRequest> missing;
    // Who has all it needs could go on for ever while another waits for some of it to become idle.
    if (starving_ > 0 && !needs.empty())
        core_.changed.wait_for(lock, bounds::kCourtesy, [&] { return starving_ == 0; });
    bool patient = await_turn(needs, lock);
    if (core_.engine.present(needs)) {
        core_.engine.hold(needs, hold, missing);
        return CUDA_SUCCESS;
    }
    if (never_fits(needs, lock)) return CUDA_ERROR_OUT_OF_MEMORY;
    // In a host function, where nothing may be called, what it waits for might come behind it.
    const CUresult health = unlocked(lock, [&] { return core_.port.health(); });
    if (health == CUDA_ERROR_NOT_PERMITTED) return health;

    // What waits its turn holds nothing, or two that wait could starve each other.
    const std::uint64_t since = trace::now_ns();
    std::optional<MigrationTurn> turn(std::in_place, *this, lock);
    std::array<std::uint64_t, trace::kStallCauses> spent{};  // by cause
    std::vector<ChunkRequest> lacked;                        // at first, where a trace is written
    std::uint64_t until = trace::now_ns();
    spent[static_cast<std::size_t>(trace::StallCause::Turn)] = until - since;
    core_.engine.cancel_stale();
    frees_until_ = Clock::now() + bounds::kFrees;
    CUresult status = CUDA_SUCCESS;
    for (BoundedWait wait(stalled_);;) {
        missing.clear();
        if (core_.engine.hold(needs, hold, missing)) break;
        if (lacked.empty() && trace::writer()) lacked = missing;
        waits_for_ = trace::StallCause::Mapping;
        const Step result = step(missing, lock);
        const std::uint64_t from = std::exchange(until, trace::now_ns());
        spent[static_cast<std::size_t>(waits_for_)] += until - from;
        std::erase_if(missing,
                      [&](const ChunkRequest& need) LMS_LOCKED { return gone(need, core_.residency); });
        if (result == Step::Moved) wait.begin_anew();
        if (result == Step::Waited) wait.waited();
        turn->note(result);
        const bool late = wait.in_vain() || result == Step::Stalled;
        if ((result == Step::Impossible || late) && hold_in_place(needs, missing, hold)) {
            trace::add(trace::counters().in_place_launches);
            telemetry::announce_in_place(bytes_of(missing, core_.residency), bytes_of(needs, core_.residency),
                                         late);
            break;
        }
        drop(core_, hold);
        if (result == Step::Impossible && !missing.empty()) {
            turn.reset();
            if (await_grant(needs, lock)) {
                turn.emplace(*this, lock);
                wait.begin_anew();
                continue;
            }
            status = unlocked(lock, [&] { return core_.port.health(); });
            if (status == CUDA_SUCCESS) {
                status = CUDA_ERROR_OUT_OF_MEMORY;
                // The program may have mended what they came from when it tries again.
                core_.engine.forget_refusals();
            } else {
                core_.telemetry.announce_failure(status);
            }
            break;
        }
        if (late) {
            core_.telemetry.announce_wait();
            if (result == Step::Stalled) wait_for_change(lock);
            turn->give_way(lock);
            wait.begin_anew();
        } else if (turn->holds_others_up()) {
            turn->give_way(lock);
        } else if (patient && has_lost_turn()) {
            turn.reset();
            patient = await_turn(needs, lock);
            turn.emplace(*this, lock);
            wait.begin_anew();
        }
    }
    if (status == CUDA_SUCCESS) start_ahead(hold, lock);
    const auto longest = std::ranges::max_element(spent) - spent.begin();
    core_.telemetry.note_stall(hold.kernel, static_cast<trace::StallCause>(longest), lacked, since,
                               trace::now_ns());
    return status;
}

bool Migrator::hold_in_place(std::span<const ChunkRequest> needs, std::span<const ChunkRequest> missing,
                             ChunkPins& hold) {
    return core_.port.maps_host_memory() && !core_.in_place_lost &&
           core_.engine.hold_in_place(needs, missing, hold);
}

bool Migrator::never_fits(std::span<const ChunkRequest> needs, SessionLock& lock) {
    const std::uint64_t bytes = bytes_of(needs, core_.residency);
    if (core_.port.maps_host_memory() || bytes <= core_.engine.budget_bytes()) return false;
    refresh_budget(core_, lock);
    if (bytes <= core_.engine.budget_bytes() || await_grant(needs, lock)) return false;
    core_.telemetry.announce_too_large(bytes);
    return true;
}

// One attempt to get further with `missing`: fills, if there is room for any; else makes room; else waits a
// while.
Migrator::Step Migrator::step(std::span<const ChunkRequest> missing, SessionLock& lock) {
    const Residency& residency = core_.residency;
    GpuShare* const share = core_.share;
    if (share && unlocked(lock, [&] { return share->is_due(); })) {
        refresh_grant(core_, *share, lock);
    } else {
        look_for_room(core_, lock);
    }
    poll_completions(core_, lock);
    if (!must_drain(core_)) free_completed(core_, lock);
    look_at_earlier_work(core_, lock);
    if (core_.engine.opaque_busy()) return await_opaque(lock);
    std::vector<ChunkRequest> able;
    const ChunkRequest* busy = nullptr;
    bool placing = false;  // another thread: the first memory of a new buffer
    for (const ChunkRequest& need : missing) {
        if (gone(need, residency)) continue;
        if (residency.chunk(need.chunk).state == engine::State::Remapping) {
            placing = true;
        } else if (residency.may_come_in(need.chunk)) {
            able.push_back(need);
        } else {
            busy = &need;
        }
    }
    if (able.empty()) {
        waits_for_ = busy ? trace::StallCause::InUse : trace::StallCause::Mapping;
        if (busy && residency.in_flight(busy->chunk)) return await(residency.chunk(busy->chunk).uses, lock);
        if (busy) return await_holders(lock);
        if (placing) wait_for_change(lock);
        return Step::Waited;
    }
    const std::uint64_t start = core_.engine.eviction_start();
    for (const std::uint64_t limit : {start, core_.engine.budget_bytes()}) {
        std::vector<PageIn> fills;
        std::uint64_t taken = 0;  // and not yet counted as on the device
        for (const ChunkRequest& need : able) {
            if (gone(need, residency)) continue;
            const auto block =
                device_block(core_, residency.chunk(need.chunk).bytes, limit - std::min(limit, taken), lock);
            if (!block) continue;
            fills.push_back({need, *block});
            taken += block->bytes;
        }
        if (!fills.empty() && core_.remaps_wait) return page_in_together(std::move(fills), lock);
        if (!fills.empty()) return page_in_now(fills, lock);
        const std::uint64_t next = core_.engine.retained().empty()
                                       ? bytes_of(able, residency)
                                       : residency.chunk(able.front().chunk).bytes;
        const Step made = make_room(next, limit, lock, true);
        if (made != Step::Impossible || limit == core_.engine.budget_bytes()) return made;
    }
    return Step::Impossible;
}

// Gets further with evicting what `bytes` more on the device need. With `limit` at the budget there is no
// more room to be had otherwise, so it then waits for something to become idle.
Migrator::Step Migrator::make_room(std::uint64_t bytes, std::uint64_t limit, SessionLock& lock, bool beside) {
    // One that came to no end is made again.
    if (core_.trial == Core::Trial::Ahead) check_moves(core_, lock);
    if (await_others(lock)) return Step::Moved;
    // Looking for blocks may have dropped the lock.
    if (core_.engine.opaque_busy()) return Step::Waited;
    const std::uint64_t wanted = core_.residency.device_bytes() + bytes;
    // Where there is room, but not a block of the size, others' blocks make one.
    const std::uint64_t out = wanted > limit ? std::min(bytes, wanted - limit) : bytes;
    // What is chosen later is chosen better.
    if (!core_.remaps_wait && core_.engine.filling().size() >= kFewFills &&
        core_.engine.pending_eviction_bytes() < out)
        return await_fill(lock);
    if (beside && limit == core_.engine.budget_bytes() && await_frees(lock)) return Step::Waited;
    // What comes next is copied while this is remapped and filled.
    const Start started = start_evictions(core_, {out}, core_.engine.ahead_bytes(), lock);
    const std::uint64_t together = core_.remaps_wait && beside ? start_for_upcoming(out, lock) : out;
    if (beside && must_drain(core_)) return await_drain(lock);
    if (complete_evictions(core_, together, lock) == Finish::Moved) {
        if (core_.remaps_wait) complete_foretold(core_, lock);
        return Step::Moved;
    }
    if (started == Start::Failed) return Step::Impossible;
    if (!core_.engine.pending_evictions().empty()) return await_copy_out(lock);
    if (started == Start::NoVictims) {
        return limit < core_.engine.budget_bytes() ? Step::Impossible : await_idle(bytes, lock);
    }
    if (started == Start::Enough) return Step::Waited;
    // No host block was to be had; one comes back with the next fill that ends, or from a thread that frees.
    if (!core_.engine.filling().empty()) {
        wait_for_uses({core_.backing[core_.engine.filling().front()].fill}, lock);
        return Step::Waited;
    }
    return someone_holds() ? await_holders(lock) : Step::Impossible;
}

// Keeps the copy engine busy with what will have to go next.
void Migrator::start_ahead(const ChunkPins& hold, SessionLock& lock) {
    // Work that may reach any chunk would cancel it all.
    if (!hold.opaque && !core_.engine.opaque_busy())
        start_evictions(core_, {0}, core_.engine.ahead_bytes(), lock);
}

Migrator::Step Migrator::page_in_now(std::span<const PageIn> fills, SessionLock& lock) {
    switch (page_in(core_, fills, lock)) {
        case Outcome::Moved:
            return Step::Moved;
        case Outcome::Cancelled:
            return Step::Waited;
        default:
            return Step::Impossible;
    }
}

bool Migrator::give_back_soon(SessionLock& lock) {
    if (queue_.empty() && core_.engine.pending_evictions().empty() && core_.engine.filling().empty())
        return false;
    // What nobody has needed yet can wait.
    if (queue_.empty()) core_.engine.cancel_evictions();
    core_.changed.wait_for(lock, bounds::kQuickGlance);
    poll_completions(core_, lock);
    return true;
}

void Migrator::run_quiesced(SessionLock& lock, const std::function<void()>& action) {
    const MigrationTurn turn(*this, lock);
    core_.engine.cancel_evictions();
    for (poll_completions(core_, lock);
         !core_.engine.filling().empty() || !core_.engine.pending_evictions().empty();
         poll_completions(core_, lock)) {
        if (core_.engine.pending_evictions().empty()) {
            wait_for_uses({core_.backing[core_.engine.filling().front()].fill}, lock);
        } else {
            await_copy_out(lock);
        }
    }
    action();
}

void Migrator::hold_anywhere(std::span<const ChunkRequest> needs, ChunkPins& hold, SessionLock& lock) {
    std::vector<ChunkRequest> anywhere(needs.begin(), needs.end());
    for (ChunkRequest& need : anywhere) need.may_stay = true;
    for (std::vector<ChunkRequest> missing; !core_.engine.hold(anywhere, hold, missing); missing.clear()) {
        drop(core_, hold);
        poll_completions(core_, lock);
        wait_for_change(lock);
    }
    if (!hold.in_place.empty()) trace::add(trace::counters().in_place_launches);
}

std::uint64_t Migrator::reclaim(std::uint64_t bytes, SessionLock& lock) {
    MigrationTurn turn(*this, lock);
    core_.engine.cancel_stale();
    poll_completions(core_, lock);
    free_completed(core_, lock);
    std::uint64_t given = core_.device_blocks.recover(lock);
    given += core_.device_blocks.trim(bytes - std::min(given, bytes), lock);
    for (BoundedWait wait(stalled_); given < bytes && !wait.in_vain();) {
        poll_completions(core_, lock);
        look_at_earlier_work(core_, lock);
        const Step made = core_.engine.opaque_busy()
                              ? await_opaque(lock)
                              : make_room(bytes - given, core_.engine.budget_bytes(), lock, false);
        if (made == Step::Impossible || made == Step::Stalled) break;
        given += core_.device_blocks.trim(bytes - given, lock);
        if (made == Step::Moved) wait.begin_anew();
        if (made == Step::Waited) wait.waited();
        turn.note(made);
        if (turn.holds_others_up()) turn.give_way(lock);
    }
    refresh_budget(core_, lock);
    return given;
}

}  // namespace lms::executor
