#include "shim/executor/eviction.h"

#include <vector>

#include "shim/executor/block_allocation.h"
#include "shim/executor/budget.h"
#include "shim/executor/guards.h"
#include "shim/executor/placement.h"
#include "shim/telemetry/telemetry.h"
#include "shim/trace/live_page.h"

namespace lms::executor {

using engine::ChunkId;

namespace {

// Behind work that is unfinished, as far as any thread has looked; null: there is none.
FencePtr unfinished_work(const State& state) LMS_LOCKED {
    FencePtr fence;
    for (const engine::Use& use : state.fences.latest()) {
        if (!fence || !fence->event()) fence = state.fences.fence_of(use);
    }
    // An open one may be held up by work that was given later.
    return fence && fence->event() ? fence : nullptr;
}

// Makes the host block that the copy of `victim` wants, and lists it. NoVictims: it cannot go now.
Start begin_copied(State& state, ChunkId victim, std::uint64_t serial, std::uint64_t bytes, SessionLock& lock,
                   bool foretold = false) LMS_LOCKED {
    const auto host = host_block(state, bytes, lock);
    if (!host) return Start::NoHostMemory;
    return state.engine.begin_eviction(victim, serial, *host, trace::now_ns(), foretold) ? Start::Enough
                                                                                         : Start::NoVictims;
}

// Enqueues the copies of what was chosen; false: the driver refused.
bool enqueue_copies(State& state, SessionLock& lock) LMS_LOCKED {
    struct Job {
        engine::CopyOut copy;
        FencePtr fence;
        bool enqueued;
    };
    std::vector<Job> jobs;
    for (const engine::CopyOut& copy : state.engine.copies_to_enqueue())
        jobs.push_back({copy, nullptr, false});
    if (jobs.empty()) return true;
    bool ok = true;
    bool unfenced = false;
    unlocked(lock, [&] {
        device::Port& port = state.port;
        for (Job& job : jobs) {
            ok = ok && port.copy(job.copy.host.alias, job.copy.device.alias, job.copy.host.bytes,
                                 device::Direction::Out) == CUDA_SUCCESS;
            job.enqueued = ok;
            // One each: room is there when the first copy is complete, not the last.
            if (ok) job.fence = state.fences.record(port.stream(device::Direction::Out));
            unfenced |= ok && !job.fence;
        }
        // Without a fence no thread could tell when the copy ends: wait for it here.
        if (unfenced) ok = port.wait_for_stream(port.stream(device::Direction::Out)) == CUDA_SUCCESS && ok;
    });
    for (const Job& job : jobs) {
        const engine::Use end = job.fence ? state.fences.add(job.fence) : engine::Use{};
        if (job.fence) state.copy_fences[job.copy.eviction] = job.fence;
        state.engine.copy_enqueued(job.copy.eviction, job.enqueued && (ok || !unfenced), end);
    }
    return ok;
}

}  // namespace

Start start_evictions(State& state, const engine::VictimRequest& wanted, std::uint64_t ahead,
                      SessionLock& lock) {
    using Is = engine::NextEviction::Is;
    if (state.engine.is_distrusted()) return Start::Failed;
    state.engine.set_link_speeds(state.telemetry.speeds.bytes_per_s(trace::Direction::In),
                                 state.telemetry.speeds.bytes_per_s(trace::Direction::Out));
    Start result = Start::Enough;
    while (result == Start::Enough) {
        const engine::NextEviction next = state.engine.next_eviction(wanted, ahead, trace::now_ns());
        if (next.is == Is::Enough) break;
        result = next.is == Is::NoVictims ? Start::NoVictims
                                          : begin_copied(state, next.victim, next.serial, next.bytes, lock);
        // While the block was made the victim came into use: another may go.
        if (result == Start::NoVictims && next.is == Is::WantsHostBlock && !state.engine.opaque_busy())
            result = Start::Enough;
    }
    trace::add(trace::counters().victims_overruled, state.engine.take_overruled());
    return enqueue_copies(state, lock) ? result : Start::Failed;
}

Start start_foretold(State& state, SessionLock& lock) {
    using Is = engine::NextEviction::Is;
    if (state.trial != State::Trial::Passed) return Start::Failed;
    for (;;) {
        const engine::NextEviction next = state.engine.next_foretold();
        if (next.is != Is::WantsHostBlock) return next.is == Is::Enough ? Start::Enough : Start::NoVictims;
        const Start begun = begin_copied(state, next.victim, next.serial, next.bytes, lock, true);
        if (begun != Start::Enough) return begun;
        if (!enqueue_copies(state, lock)) return Start::Failed;
    }
}

Start start_evictions_of(State& state, std::span<const ChunkRequest> those, SessionLock& lock) {
    if (state.engine.is_distrusted()) return Start::Failed;
    Start result = Start::Enough;
    for (const ChunkRequest& each : those) {
        if (gone(each, state.residency)) continue;
        const engine::Chunk& chunk = state.residency.chunk(each.chunk);
        if (chunk.state != engine::State::Resident || state.residency.in_flight(each.chunk)) continue;
        if (state.engine.needs_no_copy(each.chunk)) {
            state.engine.begin_clean_eviction(each.chunk, trace::now_ns());
        } else if (begin_copied(state, each.chunk, each.serial, chunk.bytes, lock) == Start::NoHostMemory) {
            result = Start::NoHostMemory;
        }
    }
    return enqueue_copies(state, lock) ? result : Start::Failed;
}

namespace {

Finish complete(State& state, std::span<const engine::RemapOut> outs, SessionLock& lock) LMS_LOCKED {
    struct Job {
        engine::RemapOut out;
        std::vector<Remap> remaps;
        FencePtr fence;
        bool done = false;
        std::optional<std::uint64_t> digest = std::nullopt;
    };
    std::vector<Job> jobs;
    for (const engine::RemapOut& out : outs) {
        const auto fence = state.copy_fences.extract(out.eviction);
        jobs.push_back({out, remaps_of(state, out.chunk, out.device, out.host),
                        fence.empty() ? nullptr : fence.mapped()});
    }
    if (jobs.empty()) return Finish::NothingReady;
    const FencePtr beside = state.remaps_beside_work ? nullptr : unfinished_work(state);
    std::uint64_t until = 0;
    bool ran_on = false;
    unlocked(lock, [&] {
        for (Job& job : jobs) {
            // A fence passes too when nothing runs any more.
            const bool copied = !job.fence || state.port.query(job.fence->event()) == CUDA_SUCCESS;
            if (copied) job.digest = digest_of(state.settings, job.out.host);
            if (copied && job.out.kept)
                compare_clean(state.settings, address_of(job.remaps), *job.out.kept, job.digest);
            job.done = copied && remap(state.port, job.remaps) == CUDA_SUCCESS;
        }
        until = trace::now_ns();
        ran_on = beside && state.port.query(beside->event()) == CUDA_ERROR_NOT_READY;
    });
    state.remaps_beside_work |= ran_on;
    if (ran_on) state.remaps_wait = false;

    bool moved = false;
    for (const Job& job : jobs) {
        state.engine.remapped_out(job.out, job.done, job.digest);
        if (!job.done) continue;
        moved = true;
        note_move(state, trace::Direction::Out, job.out.chunk, trace::MoveReason::MakeRoom, job.out.since_ns,
                  until, job.out.copies);
    }
    note_levels(state);
    state.changed.notify_all();
    if (moved) state.telemetry.announce_pressure();
    return moved ? Finish::Moved : Finish::Failed;
}

}  // namespace

Finish complete_evictions(State& state, std::uint64_t bytes, SessionLock& lock) {
    return complete(state, state.engine.take_remaps_out(bytes), lock);
}

Finish complete_foretold(State& state, SessionLock& lock) {
    return complete(state, state.engine.take_foretold_remaps_out(), lock);
}

}  // namespace lms::executor
