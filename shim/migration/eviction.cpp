#include "shim/migration/eviction.h"

#include <algorithm>
#include <vector>

#include "shim/core/chunking.h"
#include "shim/migration/block_allocation.h"
#include "shim/migration/guards.h"
#include "shim/migration/page_in.h"
#include "shim/migration/placement.h"
#include "shim/migration/telemetry.h"
#include "shim/migration/user_warnings.h"

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
        if (!fence) fence = state.fences.fence_of(use);
    }
    return fence;
}

void give_back(State& state, const PendingEviction& each) {
    state.host_blocks.put(each.host);
    if (each.orphan) state.device_blocks.put(each.device);
}

// A chunk that stands in the list from now on, its copy about to be enqueued.
Start choose(State& state, const core::VictimRequest& wanted, SessionLock& lock) {
    core::Residency& residency = state.residency;
    for (;;) {
        const ChunkId victim = residency.next_victim(wanted, core::Residency::InFlight::Refuse);
        if (victim == core::kNoChunk) return Start::NoVictims;
        const std::uint64_t serial = residency.chunk(victim).serial;
        const auto host = host_block(state, residency.chunk(victim).bytes, lock);
        if (!host) return Start::NoHostMemory;
        // Making the block may have dropped the lock: look again.
        if (!opaque_busy(state) && residency.chunk(victim).serial == serial && residency.begin_out(victim)) {
            state.backing[victim].eviction = ++state.evictions;
            state.pending_evictions.push_back({victim, state.evictions, state.backing[victim].device, *host,
                                               trace::now_ns(), state.works, nullptr});
            return Start::Enough;
        }
        state.host_blocks.put(*host);
        if (opaque_busy(state)) return Start::NoVictims;
    }
}

}  // namespace

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

Start start_evictions(State& state, const core::VictimRequest& wanted, SessionLock& lock) {
    struct Job {
        Block device;
        Block host;
        FencePtr fence;
        bool enqueued;
    };
    Start result = Start::Enough;
    for (std::uint64_t sum = pending_eviction_bytes(state);
         sum < wanted.need_bytes && result == Start::Enough;) {
        result = choose(state, {wanted.need_bytes - sum, wanted.purpose, wanted.sooner}, lock);
        if (result == Start::Enough) sum += state.pending_evictions.back().device.bytes;
    }
    std::vector<Job> jobs;
    for (const PendingEviction& each : state.pending_evictions) {
        if (!each.enqueued) jobs.push_back({each.device, each.host, nullptr, false});
    }
    if (jobs.empty()) return result;
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
        if (unfenced) ok = port.synchronize() == CUDA_SUCCESS && ok;
    });
    auto each = state.pending_evictions.end() - static_cast<std::ptrdiff_t>(jobs.size());
    for (Job& job : jobs) {
        each->enqueued = true;
        // What was not copied is of no use, and complete: the next sweep gives its memory back.
        if (!job.enqueued || (unfenced && !ok)) state.residency.cancel_out(each->chunk);
        if (job.fence) each->copied = state.fences.add(job.fence);
        each->fence = std::move(job.fence);
        ++each;
    }
    sweep_evictions(state);
    return ok ? result : Start::Failed;
}

Finish complete_evictions(State& state, std::uint64_t bytes, SessionLock& lock) {
    core::Residency& residency = state.residency;
    struct Job {
        PendingEviction eviction;
        std::vector<Remap> remaps;
        bool remapped;
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
            jobs.push_back({*it, remaps_of(state, it->chunk, it->device, it->host), false});
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
        if (!job.remapped) {
            residency.undo_remap(id);
            state.host_blocks.put(job.eviction.host);
            continue;
        }
        moved = true;
        residency.out(id);
        state.backing[id].host = job.eviction.host;
        state.backing[id].digest = job.digest;
        state.device_blocks.put(job.eviction.device);
        note_move(state, trace::Direction::Out, id, trace::MoveReason::MakeRoom, job.eviction.since_ns,
                  until);
    }
    note_levels(state);
    state.changed.notify_all();
    if (moved) announce_eviction(state);
    return moved ? Finish::Moved : Finish::Failed;
}

}  // namespace lms::engine
