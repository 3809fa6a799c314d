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
FencePtr unfinished_work(const Core& core) LMS_LOCKED {
    FencePtr fence;
    for (const engine::Use& use : core.fences.latest()) {
        if (!fence || !fence->event()) fence = core.fences.fence_of(use);
    }
    // An open one may be held up by work that was given later.
    return fence && fence->event() ? fence : nullptr;
}

// Makes the host block that the copy of `victim` wants, and lists it. NoVictims: it cannot go now.
Start begin_copied(Core& core, ChunkId victim, std::uint64_t serial, std::uint64_t bytes, SessionLock& lock,
                   bool foretold = false) LMS_LOCKED {
    const auto host = host_block(core, bytes, lock);
    if (!host) return Start::NoHostMemory;
    return core.engine.begin_eviction(victim, serial, *host, trace::now_ns(), foretold) ? Start::Enough
                                                                                        : Start::NoVictims;
}

// Enqueues the copies of what was chosen; false: the driver refused.
bool enqueue_copies(Core& core, SessionLock& lock) LMS_LOCKED {
    struct Job {
        engine::CopyOut copy;
        FencePtr fence;
        bool enqueued;
    };
    std::vector<Job> jobs;
    for (const engine::CopyOut& copy : core.engine.copies_to_enqueue())
        jobs.push_back({copy, nullptr, false});
    if (jobs.empty()) return true;
    bool ok = true;
    bool unfenced = false;
    unlocked(lock, [&] {
        device::Port& port = core.port;
        for (Job& job : jobs) {
            ok = ok && port.copy(job.copy.host.alias, job.copy.device.alias, job.copy.host.bytes,
                                 device::Direction::Out) == CUDA_SUCCESS;
            job.enqueued = ok;
            // One each: room is there when the first copy is complete, not the last.
            if (ok) job.fence = core.fences.record(port.stream(device::Direction::Out));
            unfenced |= ok && !job.fence;
        }
        // Without a fence no thread could tell when the copy ends: wait for it here.
        if (unfenced) ok = port.wait_for_stream(port.stream(device::Direction::Out)) == CUDA_SUCCESS && ok;
    });
    for (const Job& job : jobs) {
        const engine::Use end = job.fence ? core.fences.add(job.fence) : engine::Use{};
        if (job.fence) core.copy_fences[job.copy.eviction] = job.fence;
        core.engine.copy_enqueued(job.copy.eviction, job.enqueued && (ok || !unfenced), end);
    }
    return ok;
}

}  // namespace

Start start_evictions(Core& core, const engine::VictimRequest& wanted, std::uint64_t ahead,
                      SessionLock& lock) {
    using Is = engine::NextEviction::Is;
    if (core.engine.is_distrusted()) return Start::Failed;
    core.engine.set_link_speeds(core.telemetry.speeds.bytes_per_s(trace::Direction::In),
                                core.telemetry.speeds.bytes_per_s(trace::Direction::Out));
    Start result = Start::Enough;
    while (result == Start::Enough) {
        const engine::NextEviction next = core.engine.next_eviction(wanted, ahead, trace::now_ns());
        if (next.is == Is::Enough) break;
        result = next.is == Is::NoVictims ? Start::NoVictims
                                          : begin_copied(core, next.victim, next.serial, next.bytes, lock);
        // While the block was made the victim came into use: another may go.
        if (result == Start::NoVictims && next.is == Is::WantsHostBlock && !core.engine.opaque_busy())
            result = Start::Enough;
    }
    trace::add(trace::counters().victims_overruled, core.engine.take_overruled());
    return enqueue_copies(core, lock) ? result : Start::Failed;
}

Start start_foretold(Core& core, SessionLock& lock) {
    using Is = engine::NextEviction::Is;
    if (core.trial != Core::Trial::Passed) return Start::Failed;
    for (;;) {
        const engine::NextEviction next = core.engine.next_foretold();
        if (next.is != Is::WantsHostBlock) return next.is == Is::Enough ? Start::Enough : Start::NoVictims;
        const Start begun = begin_copied(core, next.victim, next.serial, next.bytes, lock, true);
        if (begun != Start::Enough) return begun;
        if (!enqueue_copies(core, lock)) return Start::Failed;
    }
}

Start start_evictions_of(Core& core, std::span<const ChunkRequest> those, SessionLock& lock) {
    if (core.engine.is_distrusted()) return Start::Failed;
    Start result = Start::Enough;
    for (const ChunkRequest& each : those) {
        if (gone(each, core.residency)) continue;
        const engine::Chunk& chunk = core.residency.chunk(each.chunk);
        if (chunk.state != engine::State::Resident || core.residency.in_flight(each.chunk)) continue;
        if (core.engine.needs_no_copy(each.chunk)) {
            core.engine.begin_clean_eviction(each.chunk, trace::now_ns());
        } else if (begin_copied(core, each.chunk, each.serial, chunk.bytes, lock) == Start::NoHostMemory) {
            result = Start::NoHostMemory;
        }
    }
    return enqueue_copies(core, lock) ? result : Start::Failed;
}

namespace {

Finish complete(Core& core, std::span<const engine::RemapOut> outs, SessionLock& lock) LMS_LOCKED {
    struct Job {
        engine::RemapOut out;
        std::vector<Remap> remaps;
        FencePtr fence;
        bool done = false;
        std::optional<std::uint64_t> digest = std::nullopt;
    };
    std::vector<Job> jobs;
    for (const engine::RemapOut& out : outs) {
        const auto fence = core.copy_fences.extract(out.eviction);
        jobs.push_back({out, remaps_of(core, out.chunk, out.device, out.host),
                        fence.empty() ? nullptr : fence.mapped()});
    }
    if (jobs.empty()) return Finish::NothingReady;
    const FencePtr beside = core.remaps_beside_work ? nullptr : unfinished_work(core);
    std::uint64_t until = 0;
    bool ran_on = false;
    unlocked(lock, [&] {
        for (Job& job : jobs) {
            // A fence passes too when nothing runs any more.
            const bool copied = !job.fence || core.port.query(job.fence->event()) == CUDA_SUCCESS;
            if (copied) job.digest = digest_of(core.settings, job.out.host);
            if (copied && job.out.kept)
                compare_clean(core.settings, address_of(job.remaps), *job.out.kept, job.digest);
            job.done = copied && remap(core.port, job.remaps) == CUDA_SUCCESS;
        }
        until = trace::now_ns();
        ran_on = beside && core.port.query(beside->event()) == CUDA_ERROR_NOT_READY;
    });
    core.remaps_beside_work |= ran_on;
    if (ran_on) core.remaps_wait = false;

    bool moved = false;
    for (const Job& job : jobs) {
        core.engine.remapped_out(job.out, job.done, job.digest);
        if (!job.done) continue;
        moved = true;
        note_move(core, trace::Direction::Out, job.out.chunk, trace::MoveReason::MakeRoom, job.out.since_ns,
                  until, job.out.copies);
    }
    note_levels(core);
    core.changed.notify_all();
    if (moved) core.telemetry.announce_pressure();
    return moved ? Finish::Moved : Finish::Failed;
}

}  // namespace

Finish complete_evictions(Core& core, std::uint64_t bytes, SessionLock& lock) {
    return complete(core, core.engine.take_remaps_out(bytes), lock);
}

Finish complete_foretold(Core& core, SessionLock& lock) {
    return complete(core, core.engine.take_foretold_remaps_out(), lock);
}

}  // namespace lms::executor
