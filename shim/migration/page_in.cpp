#include "shim/migration/page_in.h"

#include <utility>

#include "shim/migration/guards.h"
#include "shim/migration/placement.h"
#include "shim/migration/retained_copies.h"
#include "shim/migration/telemetry.h"

namespace lms::engine {

using core::ChunkId;

namespace {

struct Job {
    ChunkId id;
    std::vector<Remap> remaps;
    Block block;
    Block host;
    bool on_host;
    bool copies;
    bool clears;                          // instead of that, for its contents are undefined, and will be read
    bool fills;                           // the copy, or what is put there instead, is waited for
    bool written;                         // by the work that it comes in for
    std::optional<std::uint64_t> digest;  // of what is in `host`
    bool done = false;
    core::Use end{};  // of what fills it
};

bool is_fresh(const State& state, ChunkId id) {
    return state.backing[id].fresh_at == state.soilings;
}

// Whether work that did not name it would have been noticed (State::soilings). In `args` nobody looks for
// kernels that take addresses from memory.
bool may_be_undefined(const State& state, ChunkId id) {
    return state.settings.safety != Safety::Args && is_fresh(state, id);
}

// False: the driver refused, and nothing is enqueued any more.
bool fill(State& state, const Job& job) {
    device::Port& port = state.port;
    const bool poisons = poisons_blocks(state.settings);
    // Programs that read what they never wrote find zeros in new memory of a GPU's; not what others left
    // here.
    if ((poisons || job.clears) && port.set(job.block.alias, poisons ? kPoison : std::uint8_t{0},
                                            job.block.bytes, device::Direction::In) != CUDA_SUCCESS)
        return false;
    if (!job.copies) return true;
    compare_digest(state.settings, address_of(job.remaps), job.host, job.digest);
    if (port.copy(job.block.alias, job.host.alias, job.block.bytes, device::Direction::In) == CUDA_SUCCESS)
        return true;
    if (poisons) port.wait_for_stream(port.stream(device::Direction::In));
    return false;
}

// Makes the addresses lead to the block and enqueues the copy; the fence behind that, if there is one and the
// driver did not refuse it. Without the lock.
FencePtr enqueue(State& state, Job& job) {
    device::Port& port = state.port;
    job.done = remap(port, job.remaps) == CUDA_SUCCESS;
    if (!job.done || !job.fills) return nullptr;
    job.done = fill(state, job);
    if (!job.done) {
        undo(port, job.remaps);
        return nullptr;
    }
    const CUstream in = port.stream(device::Direction::In);
    FencePtr fence = state.fences.record(in);
    if (!fence) port.wait_for_stream(in);
    return fence;
}

}  // namespace

bool opaque_busy(State& state) {
    state.mutex.check_held();
    return state.submitting.any_opaque() || state.earlier.any() ||
           core::any_unfinished(state.opaque_uses, state.residency.timelines);
}

bool unseen_busy(State& state) {
    state.mutex.check_held();
    return state.submitting.any_unseen() ||
           core::any_unfinished(state.unseen_uses, state.residency.timelines);
}

std::uint64_t fresh_now(State& state) {
    return opaque_busy(state) || unseen_busy(state) ? Backing::kUsed : state.soilings;
}

Outcome page_in(State& state, std::span<const PageIn> fills, SessionLock& lock) {
    // Making blocks may have dropped the lock: look again.
    const bool allowed = !opaque_busy(state);
    const bool distrusted = state.trial == State::Trial::Distrusted;
    bool refused = false;
    std::vector<Job> jobs;
    for (const PageIn& fill : fills) {
        const ChunkId id = fill.need.chunk;
        const bool on_host = state.residency.chunk(id).state == core::State::OnHost;
        // What is mapped stays.
        const bool stays = on_host && distrusted && !state.backing[id].host.pinned;
        refused |= stays;
        if (!allowed || stays || gone(fill.need, state.residency) || !state.residency.begin_in(id)) {
            state.device_blocks.put(fill.block);
            continue;
        }
        const Block host = state.backing[id].host;
        const bool undefined =
            !on_host || may_be_undefined(state, id) || (fill.need.overwritten && is_fresh(state, id));
        const bool clears = undefined && !fill.need.overwritten;
        const bool copies = !undefined;
        jobs.push_back({id, remaps_of(state, id, on_host ? host : Block{}, fill.block), fill.block, host,
                        on_host, copies, clears, copies || clears || poisons_blocks(state.settings),
                        fill.need.written, state.backing[id].digest});
    }
    if (jobs.empty()) return refused ? Outcome::Failed : Outcome::Cancelled;
    state.remapping += static_cast<std::uint32_t>(jobs.size());
    const bool cleanly = may_be_clean(state);
    const std::uint64_t soilings = state.soilings;
    const auto since = trace::now_ns();
    // One fence each: while the last are copied, more can be made to go (Migrator::kFewFills). Each is
    // entered before the next is recorded, so that the last stands for all.
    for (Job& job : jobs) {
        if (FencePtr fence = unlocked(lock, [&] { return enqueue(state, job); }))
            job.end = state.fences.add(std::move(fence));
    }
    state.remapping -= static_cast<std::uint32_t>(jobs.size());
    bool moved = false;
    for (const Job& job : jobs) {
        if (!job.done) {
            state.residency.undo_in(job.id, job.on_host);
            state.device_blocks.put(job.block);
            continue;
        }
        moved = true;
        Backing& backing = state.backing[job.id];
        backing.device = job.block;
        backing.digest.reset();
        if (job.on_host && !job.copies) state.host_blocks.put(job.host);
        if (job.fills) {
            // Others may have been about to write any chunk meanwhile.
            const bool clean = job.copies && cleanly && !job.written && state.soilings == soilings;
            state.residency.begin_fill(job.id);
            if (!job.copies) backing.host = {};
            if (clean) retain_copy(state, job.id);
            backing.fill = job.end;
            backing.fill_since_ns = since;
            state.filling.push_back(job.id);
        } else {
            state.residency.mapped_empty(job.id);
        }
    }
    note_levels(state);
    state.changed.notify_all();
    return moved ? Outcome::Moved : Outcome::Failed;
}

}  // namespace lms::engine
