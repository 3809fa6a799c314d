#include "shim/engine/moves.h"

#include <atomic>
#include <chrono>

#include "shim/engine/observe.h"
#include "shim/engine/release.h"
#include "shim/engine/room.h"
#include "shim/util/log.h"
#include "shim/util/units.h"

namespace lms::engine {

using core::ChunkId;

namespace {

// Copies `devices` to `hosts` and waits for it. Without the session's lock.
bool copy_out(State& state, std::span<const Block> devices, std::span<const Block> hosts) {
    device::Port& port = state.port;
    bool enqueued = true;
    for (std::size_t i = 0; i < devices.size() && enqueued; ++i) {
        enqueued = port.copy(hosts[i].alias, devices[i].alias, devices[i].bytes, device::Direction::Out) ==
                   CUDA_SUCCESS;
    }
    const FencePtr fence = state.fences.record(port.stream(device::Direction::Out));
    if (!fence) return port.synchronize() == CUDA_SUCCESS && enqueued;
    wait_until(*fence, std::chrono::steady_clock::time_point::max());
    return enqueued && port.query(fence->event()) == CUDA_SUCCESS;
}

}  // namespace

bool opaque_busy(State& state) {
    return state.opaque_pending > 0 || core::any_unfinished(state.opaque_uses, state.residency.timelines);
}

void cancel_evictions(State& state) {
    for (const ChunkId id : state.window) state.residency.cancel_out(id);
}

Outcome fill(State& state, std::span<const Fill> fills, std::unique_lock<std::mutex>& lock) {
    struct Job {
        ChunkId id;
        core::Address address;
        Block block;
        Block host;
        bool on_host;
        bool copies;
        bool done = false;
    };
    // Making blocks may have dropped the lock: look again.
    const bool allowed = !opaque_busy(state);
    std::vector<Job> jobs;
    for (const Fill& fill : fills) {
        const ChunkId id = fill.need.chunk;
        const bool on_host = state.residency.chunk(id).state == core::State::OnHost;
        if (!allowed || gone(fill.need, state.residency) || !state.residency.begin_in(id)) {
            state.device_blocks.put(fill.block);
            continue;
        }
        jobs.push_back({id, state.residency.chunk(id).address, fill.block, state.backing[id].host, on_host,
                        on_host && !fill.need.overwritten});
    }
    if (jobs.empty()) return Outcome::Cancelled;
    state.remapping += static_cast<std::uint32_t>(jobs.size());
    const auto since = trace::now_ns();
    lock.unlock();

    device::Port& port = state.port;
    bool enqueued = false;
    for (Job& job : jobs) {
        job.done = exchange(port, job.address, job.on_host ? &job.host : nullptr, job.block);
        if (!job.done || !job.copies) continue;
        job.done = port.copy(job.block.alias, job.host.alias, job.block.bytes, device::Direction::In) ==
                   CUDA_SUCCESS;
        if (!job.done) exchange(port, job.address, &job.block, job.host);
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

Outcome evict(State& state, std::span<const ChunkId> victims, std::unique_lock<std::mutex>& lock) {
    core::Residency& residency = state.residency;
    state.window.assign(victims.begin(), victims.end());
    std::vector<ChunkId> leaving;
    std::vector<Block> hosts;
    for (const ChunkId id : victims) {
        const auto host = host_block(state, residency.chunk(id).bytes, lock);
        if (!host) {
            residency.cancel_out(id);
            continue;
        }
        leaving.push_back(id);
        hosts.push_back(*host);
    }
    std::vector<Block> devices;
    for (const ChunkId id : leaving) devices.push_back(state.backing[id].device);
    const auto since = trace::now_ns();
    lock.unlock();
    const bool copied = copy_out(state, devices, hosts);
    lock.lock();

    // A launch that needed one in the meantime has cancelled it: the copy is worth nothing, the chunk stays.
    std::vector<std::size_t> going;
    for (std::size_t i = 0; i < leaving.size(); ++i) {
        if (copied && residency.begin_remap(leaving[i])) {
            going.push_back(i);
        } else {
            residency.cancel_out(leaving[i]);
            state.host_blocks.put(hosts[i]);
        }
    }
    state.window.clear();
    state.remapping += static_cast<std::uint32_t>(going.size());
    std::vector<core::Address> addresses;
    for (const std::size_t i : going) addresses.push_back(residency.chunk(leaving[i]).address);
    lock.unlock();
    std::vector<bool> gone;
    for (std::size_t n = 0; n < going.size(); ++n) {
        gone.push_back(exchange(state.port, addresses[n], &devices[going[n]], hosts[going[n]]));
    }
    const auto until = trace::now_ns();
    lock.lock();

    state.remapping -= static_cast<std::uint32_t>(going.size());
    bool moved = false;
    for (std::size_t n = 0; n < going.size(); ++n) {
        const ChunkId id = leaving[going[n]];
        const Block& host = hosts[going[n]];
        if (!gone[n]) {
            residency.undo_remap(id);
            state.host_blocks.put(host);
            continue;
        }
        moved = true;
        residency.out(id);
        state.backing[id].host = host;
        state.device_blocks.put(devices[going[n]]);
        note_move(state, trace::Direction::Out, id, "make room", since, until);
    }
    note_levels(state);
    state.changed.notify_all();
    if (moved) {
        static std::atomic<bool> said;
        if (log::once(said)) {
            log::warn(
                "GPU memory is full: cold buffers move to host memory from here on ({} of {} stay "
                "resident){}",
                util::format_bytes(residency.device_bytes()), util::format_bytes(residency.allocated_bytes()),
                state.port.maps_host_memory()
                    ? ""
                    : "; kernels cannot reach them there, for this GPU does not map host memory");
        }
        return Outcome::Moved;
    }
    if (leaving.empty()) return Outcome::NoHostMemory;
    return copied ? Outcome::Cancelled : Outcome::Failed;
}

}  // namespace lms::engine
