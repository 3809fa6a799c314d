#include "shim/migration/eviction.h"

#include <algorithm>
#include <vector>

#include "shim/core/chunking.h"
#include "shim/migration/block_allocation.h"
#include "shim/migration/guards.h"
#include "shim/migration/page_in.h"
#include "shim/migration/placement.h"
#include "shim/migration/retained_copies.h"
#include "shim/migration/telemetry.h"
#include "shim/migration/user_warnings.h"
#include "shim/migration/victim_facts.h"

namespace lms::engine {

using core::ChunkId;

namespace {

bool leaves(const State& state, const PendingEviction& each) {
    return state.residency.chunk(each.chunk).state == core::State::Evicting &&
           state.backing[each.chunk].eviction == each.eviction;
}

bool complete(const State& state, const PendingEviction& each) {
    return each.enqueued && state.residency.timelines.finished(each.copied);
}

// Behind work that is unfinished, as far as anybody has looked; null: there is none.
FencePtr unfinished_work(const State& state) {
    FencePtr fence;
    for (const core::Use& use : state.fences.latest()) {
        if (!fence || !fence->event()) fence = state.fences.fence_of(use);
    }
    // An open one may be held up by work that was given later.
    return fence && fence->event() ? fence : nullptr;
}

void give_back(State& state, const PendingEviction& each) {
    if (each.copies) state.host_blocks.put(each.host);
    if (each.orphan) state.device_blocks.put(each.device);
}

void list(State& state, ChunkId victim, const Block& host, bool copies) {
    state.backing[victim].eviction = ++state.evictions;
    state.pending_evictions.push_back(
        {victim, state.evictions, state.backing[victim].device, host, trace::now_ns(), state.works, nullptr});
    state.pending_evictions.back().copies = copies;
    state.pending_evictions.back().enqueued = !copies;
}

// Puts a chunk into the list, its copy, if it needs one, about to be enqueued. NoVictims: it cannot go now.
Start begin_eviction(State& state, ChunkId victim, SessionLock& lock) {
    core::Residency& residency = state.residency;
    if (needs_no_copy(state, victim)) {
        if (opaque_busy(state) || !residency.begin_out(victim)) return Start::NoVictims;
        list(state, victim, state.backing[victim].host, false);
        return Start::Enough;
    }
    const std::uint64_t serial = residency.chunk(victim).serial;
    const auto host = host_block(state, residency.chunk(victim).bytes, lock);
    if (!host) return Start::NoHostMemory;
    // Making the block may have dropped the lock: look again.
    if (!opaque_busy(state) && residency.chunk(victim).serial == serial && residency.begin_out(victim)) {
        list(state, victim, *host, true);
        return Start::Enough;
    }
    state.host_blocks.put(*host);
    return Start::NoVictims;
}

// The same of one that the policy chooses. Where `ready` is given, one that needs no copy stays, and sets it.
Start choose(State& state, const core::VictimRequest& wanted, bool* ready, SessionLock& lock) {
    core::Residency& residency = state.residency;
    for (;;) {
        const ChunkId victim = residency.next_victim(
            wanted, [&](ChunkId id) { return !residency.in_flight(id) && may_leave(state, id); });
        if (victim == core::kNoChunk) return Start::NoVictims;
        const bool clean = needs_no_copy(state, victim);
        if (clean && ready) {
            *ready = true;
            return Start::Enough;
        }
        const Start begun = begin_eviction(state, victim, lock);
        if (begun != Start::NoVictims || clean || opaque_busy(state)) return begun;
    }
}

// Enqueues the copies of what stands in the list; false: the driver refused.
bool enqueue_copies(State& state, SessionLock& lock) {
    struct Job {
        Block device;
        Block host;
        FencePtr fence;
        bool enqueued;
    };
    std::vector<Job> jobs;
    for (const PendingEviction& each : state.pending_evictions) {
        if (!each.enqueued) jobs.push_back({each.device, each.host, nullptr, false});
    }
    if (jobs.empty()) return true;
    bool ok = true;
    bool unfenced = false;
    unlocked(lock, [&] {
        device::Port& port = state.port;
        for (Job& job : jobs) {
            ok = ok && port.copy(job.host.alias, job.device.alias, job.host.bytes, device::Direction::Out) ==
                           CUDA_SUCCESS;
            job.enqueued = ok;
            // One each: room is there when the first copy is complete, not the last.
            if (ok) job.fence = state.fences.record(port.stream(device::Direction::Out));
            unfenced |= ok && !job.fence;
        }
        // Without a fence nobody could tell when the copy ends: wait for it here.
        if (unfenced) ok = port.wait_for_stream(port.stream(device::Direction::Out)) == CUDA_SUCCESS && ok;
    });
    auto job = jobs.begin();
    for (PendingEviction& each : state.pending_evictions) {
        if (each.enqueued) continue;
        each.enqueued = true;
        // What was not copied is of no use, and complete: the next sweep gives its memory back.
        if (!job->enqueued || (unfenced && !ok)) state.residency.cancel_out(each.chunk);
        if (job->fence) each.copied = state.fences.add(job->fence);
        each.fence = std::move(job->fence);
        ++job;
    }
    sweep_evictions(state);
    return ok;
}

}  // namespace

namespace {

// Such as come up once are over by the next try.
constexpr unsigned kRefusals = 3;

void note_refusal(State& state, ChunkId id) {
    Backing& backing = state.backing[id];
    backing.refusals = std::min(backing.refusals + 1, kRefusals);
    backing.refused_at = state.works;
}

}  // namespace

bool may_leave(const State& state, ChunkId id) {
    constexpr std::uint64_t kWorks = 256;
    const Backing& backing = state.backing[id];
    return backing.refusals < kRefusals || state.works - backing.refused_at > kWorks;
}

void forget_refusals(State& state) {
    for (Backing& backing : state.backing) backing.refusals = 0;
}

bool needs_no_copy(const State& state, ChunkId id) {
    return state.residency.chunk(id).clean && !state.settings.check;
}

std::uint64_t pending_eviction_bytes(const State& state) {
    std::uint64_t sum = 0;
    for (const PendingEviction& each : state.pending_evictions) {
        if (leaves(state, each)) sum += each.device.bytes;
    }
    return sum;
}

void cancel_evictions(State& state) {
    state.mutex.check_held();
    for (const PendingEviction& each : state.pending_evictions) {
        if (state.residency.cancel_out(each.chunk)) state.disturbed = state.evictions;
    }
}

void cancel_stale(State& state) {
    // Those that pass while moves follow one another; on steady work each copy is used within a few launches.
    constexpr std::uint64_t kWorks = 64;
    for (const PendingEviction& each : state.pending_evictions) {
        if (leaves(state, each) && state.works - each.since_work > kWorks)
            state.residency.cancel_out(each.chunk);
    }
}

std::uint64_t ahead_bytes(const State& state) {
    // While one chunk is remapped and filled, the next is copied.
    constexpr std::uint64_t kChunks = 2;
    // So many must have been let be.
    constexpr std::uint64_t kUndisturbed = 32;
    if (state.settings.safety == Safety::Strict) return 0;
    if (state.disturbed > 0 && state.evictions < state.disturbed + kUndisturbed) return 0;
    return kChunks * core::largest_chunk(state.budget_bytes, state.granularity);
}

void sweep_evictions(State& state) {
    state.mutex.check_held();
    std::erase_if(state.pending_evictions, [&](const PendingEviction& each) {
        if (!complete(state, each) || leaves(state, each)) return false;
        give_back(state, each);
        return true;
    });
}

Start start_evictions(State& state, const core::VictimRequest& wanted, std::uint64_t ahead,
                      SessionLock& lock) {
    if (state.trial == State::Trial::Distrusted) return Start::Failed;
    Start result = Start::Enough;
    // The next needs no copy. What comes after it is not begun before it is gone, or it would never go.
    bool ready = false;
    const std::uint64_t all = wanted.need_bytes + ahead;
    VictimFacts facts(state);
    for (std::uint64_t now = pending_eviction_bytes(state); now < all && result == Start::Enough && !ready;
         now = pending_eviction_bytes(state)) {
        result = choose(state, {all - now, wanted.purpose, wanted.sooner, &facts},
                        now < wanted.need_bytes ? nullptr : &ready, lock);
    }
    return enqueue_copies(state, lock) ? result : Start::Failed;
}

Start start_evictions_of(State& state, std::span<const ChunkRequest> those, SessionLock& lock) {
    if (state.trial == State::Trial::Distrusted) return Start::Failed;
    Start result = Start::Enough;
    for (const ChunkRequest& each : those) {
        if (gone(each, state.residency) || state.residency.chunk(each.chunk).state != core::State::Resident ||
            state.residency.in_flight(each.chunk))
            continue;
        if (begin_eviction(state, each.chunk, lock) == Start::NoHostMemory) result = Start::NoHostMemory;
    }
    return enqueue_copies(state, lock) ? result : Start::Failed;
}

Finish complete_evictions(State& state, std::uint64_t bytes, SessionLock& lock) {
    core::Residency& residency = state.residency;
    struct Job {
        PendingEviction eviction;
        std::vector<Remap> remaps;
        bool remapped;
        std::optional<Block> kept = std::nullopt;  // a host copy that was made a second time
        std::optional<std::uint64_t> digest = std::nullopt;
    };
    std::vector<Job> jobs;
    std::uint64_t sum = 0;
    for (auto it = state.pending_evictions.begin(); it != state.pending_evictions.end() && sum < bytes;) {
        const core::Chunk& chunk = residency.chunk(it->chunk);
        if (!complete(state, *it) || !leaves(state, *it)) {
            ++it;
        } else if (residency.allocation(chunk.allocation).dead) {
            residency.cancel_out(it->chunk);
        } else {
            residency.begin_remap(it->chunk);
            sum += chunk.bytes;
            // What was the copy is the chunk's memory from here on, or nobody's.
            const auto kept = take_copy(state, it->chunk);
            jobs.push_back({*it, remaps_of(state, it->chunk, it->device, it->host), false,
                            it->copies ? kept : std::nullopt});
            it = state.pending_evictions.erase(it);
        }
    }
    if (jobs.empty()) return Finish::NothingReady;
    state.remapping += static_cast<std::uint32_t>(jobs.size());
    const FencePtr beside = state.remaps_beside_work ? nullptr : unfinished_work(state);
    std::uint64_t until = 0;
    bool ran_on = false;
    unlocked(lock, [&] {
        for (Job& job : jobs) {
            // A fence passes too when nothing runs any more.
            const bool copied =
                !job.eviction.fence || state.port.query(job.eviction.fence->event()) == CUDA_SUCCESS;
            if (copied) job.digest = digest_of(state.settings, job.eviction.host);
            if (copied && job.kept)
                compare_clean(state.settings, address_of(job.remaps), *job.kept, job.digest);
            job.remapped = copied && remap(state.port, job.remaps) == CUDA_SUCCESS;
        }
        until = trace::now_ns();
        ran_on = beside && state.port.query(beside->event()) == CUDA_ERROR_NOT_READY;
    });
    state.remaps_beside_work |= ran_on;

    state.remapping -= static_cast<std::uint32_t>(jobs.size());
    bool moved = false;
    for (const Job& job : jobs) {
        const ChunkId id = job.eviction.chunk;
        if (job.kept) state.host_blocks.put(*job.kept);
        if (!job.remapped) {
            residency.undo_remap(id);
            state.host_blocks.put(job.eviction.host);
            note_refusal(state, id);
            continue;
        }
        moved = true;
        residency.out(id);
        state.backing[id].refusals = 0;
        state.backing[id].host = job.eviction.host;
        state.backing[id].digest = job.digest;
        state.device_blocks.put(job.eviction.device);
        note_move(state, trace::Direction::Out, id, trace::MoveReason::MakeRoom, job.eviction.since_ns, until,
                  job.eviction.copies);
    }
    note_levels(state);
    state.changed.notify_all();
    if (moved) announce_eviction(state);
    return moved ? Finish::Moved : Finish::Failed;
}

}  // namespace lms::engine
