#include "shim/migration/page_in.h"

#include "shim/migration/guards.h"
#include "shim/migration/placement.h"
#include "shim/migration/telemetry.h"

namespace lms::engine {

using core::ChunkId;

namespace {

bool is_fresh(const State& state, ChunkId id) {
    return state.backing[id].fresh_at == state.opaque_works;
}

}  // namespace

bool opaque_busy(State& state) {
    return state.opaque_pending > 0 || state.earlier.any() ||
           core::any_unfinished(state.opaque_uses, state.residency.timelines);
}

Outcome page_in(State& state, std::span<const PageIn> fills, std::unique_lock<std::mutex>& lock) {
    struct Job {
        ChunkId id;
        std::vector<MappedAt> addresses;
        Block block;
        Block host;
        bool on_host;
        bool copies;
        std::optional<std::uint64_t> digest;
        bool done = false;
    };
    // Making blocks may have dropped the lock: look again.
    const bool allowed = !opaque_busy(state);
    std::vector<Job> jobs;
    for (const PageIn& fill : fills) {
        const ChunkId id = fill.need.chunk;
        const bool on_host = state.residency.chunk(id).state == core::State::OnHost;
        if (!allowed || gone(fill.need, state.residency) || !state.residency.begin_in(id)) {
            state.device_blocks.put(fill.block);
            continue;
        }
        jobs.push_back({id, addresses_of(state, id), fill.block, state.backing[id].host, on_host,
                        on_host && !(fill.need.overwritten && is_fresh(state, id)),
                        state.backing[id].digest});
    }
    if (jobs.empty()) return Outcome::Cancelled;
    state.remapping += static_cast<std::uint32_t>(jobs.size());
    const auto since = trace::now_ns();
    lock.unlock();

    device::Port& port = state.port;
    bool enqueued = false;
    for (Job& job : jobs) {
        job.done = remap(port, job.addresses, job.on_host ? &job.host : nullptr, job.block);
        if (!job.done || !job.copies) continue;
        compare_digest(state.settings, job.addresses.empty() ? 0 : job.addresses[0].address, job.host,
                       job.digest);
        job.done = port.copy(job.block.alias, job.host.alias, job.block.bytes, device::Direction::In) ==
                   CUDA_SUCCESS;
        if (!job.done) remap(port, job.addresses, &job.block, job.host);
        enqueued |= job.done;
    }
    FencePtr fence;
    if (enqueued) {
        fence = state.fences.record(port.stream(device::Direction::In));
        if (!fence) port.synchronize();
    }

    lock.lock();
    state.remapping -= static_cast<std::uint32_t>(jobs.size());
    core::Use use{};
    if (fence) use = state.fences.add(fence);
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
        if (job.copies) {
            state.residency.begin_fill(job.id);
            backing.fill = use;
            backing.fill_since_ns = since;
            state.filling.push_back(job.id);
        } else {
            state.residency.mapped_empty(job.id);
            if (job.on_host) state.host_blocks.put(job.host);
        }
    }
    note_levels(state);
    state.changed.notify_all();
    return moved ? Outcome::Moved : Outcome::Failed;
}

}  // namespace lms::engine
