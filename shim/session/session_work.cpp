// Work between its being announced and its being submitted, and what is kept on the device for longer.
#include <algorithm>
#include <chrono>

#include "shim/migration/block_allocation.h"
#include "shim/migration/eviction.h"
#include "shim/migration/placement.h"
#include "shim/migration/telemetry.h"
#include "shim/session/session.h"
#include "shim/trace/writer.h"

namespace lms::engine {

using core::ChunkId;

namespace {

// The launch as the trace has it: every buffer it names, once.
void note_launch(const State& state, const Work& work, const ChunkPins& hold) {
    trace::Writer* writer = trace::writer();
    if (!writer) return;
    std::vector<std::uint32_t> buffers;
    for (const auto* chunks : {&hold.pinned, &hold.in_place}) {
        for (const ChunkId id : *chunks) buffers.push_back(state.residency.chunk(id).allocation);
    }
    std::sort(buffers.begin(), buffers.end());
    buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
    writer->write(trace::Launch{state.device, work.label, reinterpret_cast<std::uint64_t>(work.stream),
                                buffers, work.begin_ns, trace::now_ns()});
}

void tell_policy(State& state, std::span<const ChunkRequest> needs) {
    state.told.clear();
    for (const ChunkRequest& need : needs) {
        if (!gone(need, state.residency)) state.told.push_back(need.chunk);
    }
    state.residency.work(state.told);
}

}  // namespace

CUresult Session::acquire(Work& work, ChunkPins& hold) {
    State& state = *state_;
    std::unique_lock lock(state.mutex);
    const bool opaque = work.opaque || state.settings.safety == Safety::Strict;
    hold.opaque = opaque && !work.elsewhere && state.settings.safety != Safety::Args;
    if (!port_->maps_host_memory()) {
        for (const ChunkRequest& need : work.needs) give_host_memory(need, lock);
    }
    tell_policy(state, work.needs);
    CUresult status = migrator_->bring_in(work.needs, hold, lock);
    if (status != CUDA_SUCCESS) return status;
    ++state.holders;
    hold.fenced = state.earlier.any();
    status = announce(work, hold, lock);
    if (status != CUDA_SUCCESS) submitted(work, hold);
    return status;
}

// Memory that nobody has written yet, and that need not come in, gets its place on the host; where the host
// has none left, it comes in.
void Session::give_host_memory(const ChunkRequest& need, std::unique_lock<std::mutex>& lock) {
    State& state = *state_;
    const auto untouched = [&] {
        return need.may_stay && !gone(need, state.residency) &&
               state.residency.chunk(need.chunk).state == core::State::Empty;
    };
    if (!untouched()) return;
    const auto block = host_block(state, state.residency.chunk(need.chunk).bytes, lock);
    if (!block) return;
    if (untouched() && state.residency.back_by_host(need.chunk)) {
        state.backing[need.chunk].host = *block;
        state.backing[need.chunk].fresh_at = state.opaque_works;
        note_levels(state);
    } else {
        state.host_blocks.put(*block);
    }
}

void Session::host_copies(const ChunkPins& hold, std::vector<HostCopy>& copies) {
    const std::lock_guard lock(state_->mutex);
    for (const ChunkId id : hold.in_place) {
        const core::Chunk& chunk = state_->residency.chunk(id);
        const Block& host = state_->backing[id].host;
        if (!host.pinned) continue;
        for (const MappedAt& at : addresses_of(*state_, id))
            copies.push_back({at.address, chunk.bytes, host.alias});
    }
}

// The work is about to be submitted: from here on nothing moves that it may reach, and its stream waits for
// what has just come in. Drops `lock`.
CUresult Session::announce(const Work& work, const ChunkPins& hold, std::unique_lock<std::mutex>& lock) {
    State& state = *state_;
    std::vector<ChunkId> await;
    if (hold.opaque) {
        state.changed.wait(lock, [&] { return state.remapping == 0; });
        cancel_evictions(state);
        ++state.opaque_pending;
        ++state.opaque_works;
        await = state.filling;
    } else {
        for (const ChunkId id : hold.pinned) {
            if (state.residency.chunk(id).state == core::State::Filling) await.push_back(id);
        }
    }
    // Fills run in order on one stream, so the latest one stands for all.
    core::Use latest{};
    for (const ChunkId id : await) {
        if (state.backing[id].fill.position >= latest.position) latest = state.backing[id].fill;
    }
    const FencePtr fence = await.empty() ? nullptr : state.fences.fence_of(latest);
    lock.unlock();
    if (!fence) return CUDA_SUCCESS;
    const CUresult status = port_->wait_in_stream(work.stream, fence->event());
    if (status == CUDA_SUCCESS || device::is_sticky(status)) return status;
    // The host waits instead: a copy in waits for nobody. If it is the stream that does not exist, the driver
    // says so of the work.
    while (!wait_until(*fence, std::chrono::steady_clock::now() + std::chrono::seconds(1))) {
    }
    return CUDA_SUCCESS;
}

void Session::suspend(const ChunkPins& hold) {
    const std::lock_guard lock(state_->mutex);
    if (hold.opaque) --state_->opaque_pending;
    --state_->holders;
    state_->changed.notify_all();
}

void Session::give_up(ChunkPins& hold) {
    if (!port_->maps_host_memory()) return;
    const std::lock_guard lock(state_->mutex);
    drop(*state_, hold);
}

CUresult Session::resume(const Work& work, ChunkPins& hold) {
    std::unique_lock lock(state_->mutex);
    if (hold.pinned.empty() && hold.in_place.empty()) migrator_->hold_anywhere(work.needs, hold, lock);
    ++state_->holders;
    return announce(work, hold, lock);
}

void Session::submitted(const Work& work, const ChunkPins& hold) {
    State& state = *state_;
    const bool used = !hold.pinned.empty() || !hold.in_place.empty() || hold.opaque || hold.fenced ||
                      state.reached.load() > 0;
    FencePtr fence;
    if (used) {
        fence = state.fences.record(work.stream);
        // Without a fence nobody could tell when the work ends: wait for it here.
        if (!fence) port_->synchronize();
    }
    std::unique_lock lock(state.mutex);
    ++state.works;
    if (fence) {
        const core::Use use = state.fences.add(fence);
        for (const ChunkId id : hold.pinned) state.residency.use(id, use);
        for (const ChunkId id : hold.in_place) {
            state.residency.use(id, use);
            state.backing[id].digest.reset();
        }
        if (hold.opaque) core::record_use(state.opaque_uses, use, state.residency.timelines);
        stands_for_earlier_work(state, fence->stream(), use);
    }
    if (hold.opaque) --state.opaque_pending;
    --state.holders;
    if (!work.label.empty()) note_launch(state, work, hold);
    let_go(state, hold);
    // Keeps the list of fences short where nothing moves and nobody else looks.
    if (state.fences.many()) poll_completions(state, lock);
    if (!hold.pinned.empty()) migrator_->bring_ahead(lock);
}

bool Session::bring_ahead() {
    if (!state_->under_pressure.load()) return false;
    std::unique_lock lock(state_->mutex);
    return migrator_->bring_ahead(lock);
}

bool Session::busy() {
    std::unique_lock lock(state_->mutex);
    poll_completions(*state_, lock);
    std::vector<core::Use> uses = state_->fences.latest();
    return core::any_unfinished(uses, state_->residency.timelines);
}

CUresult Session::pin_resident(std::span<const ChunkRequest> needs, ResidentPins& kept) {
    State& state = *state_;
    std::unique_lock lock(state.mutex);
    ChunkPins hold;
    CUresult status = migrator_->bring_in(needs, hold, lock);
    if (status != CUDA_SUCCESS) return status;
    const auto filling = [&] {
        return std::any_of(hold.pinned.begin(), hold.pinned.end(), [&](ChunkId id) {
            return state.residency.chunk(id).state == core::State::Filling;
        });
    };
    while (filling()) {
        state.changed.wait_for(lock, std::chrono::milliseconds(1));
        poll_completions(state, lock);
    }
    if (hold.in_place.empty()) {
        for (const ChunkId id : hold.pinned) kept.chunks.push_back({id, state.residency.pin_resident(id)});
    } else {
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    let_go(state, hold);
    return status;
}

void Session::unpin_resident(const ResidentPins& kept) {
    const std::lock_guard lock(state_->mutex);
    for (const ResidentPins::One& one : kept.chunks) state_->residency.unpin_resident(one.chunk, one.serial);
    state_->changed.notify_all();
}

void Session::reached() {
    ++state_->reached;
}

void Session::unpin_reached(const ResidentPins& kept) {
    const std::lock_guard lock(state_->mutex);
    --state_->reached;
    const std::vector<core::Use> uses = state_->fences.latest();
    for (const ResidentPins::One& one : kept.chunks)
        state_->residency.unpin_resident(one.chunk, one.serial, uses);
    state_->changed.notify_all();
}

}  // namespace lms::engine
