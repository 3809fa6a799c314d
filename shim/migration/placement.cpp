#include "shim/migration/placement.h"

#include <algorithm>
#include <chrono>

#include "shim/migration/eviction.h"
#include "shim/migration/telemetry.h"
#include "shim/migration/user_warnings.h"
#include "shim/util/log.h"

namespace lms::engine {

bool remap(device::Port& port, core::Address address, const Block* previous, const Block& next) {
    const bool was_mapped = previous && !previous->pinned;
    if (was_mapped && port.unmap(address, previous->bytes) != CUDA_SUCCESS) return false;
    if (next.pinned || port.map(address, next.bytes, next.handle, next.place) == CUDA_SUCCESS) return true;
    announce_no_mappings();
    if (was_mapped && port.map(address, previous->bytes, previous->handle, previous->place) != CUDA_SUCCESS) {
        log::error("the driver took a mapping of {} bytes away and does not give it back", previous->bytes);
    }
    return false;
}

namespace {

// Whether some thread is about to use it, as it believes; that may be the one that asks.
bool held(const core::Residency& residency, core::AllocationId id) {
    const std::vector<core::ChunkId>& chunks = residency.allocation(id).chunks;
    return std::any_of(chunks.begin(), chunks.end(), [&](core::ChunkId chunk) {
        return residency.chunk(chunk).pins > 0 || residency.chunk(chunk).pins_in_place > 0;
    });
}

// The last copy out that reads `block`, though its chunk does not leave any more. Null: none.
PendingEviction* copy_of(State& state, const Block& block) {
    const auto it =
        std::find_if(state.pending_evictions.rbegin(), state.pending_evictions.rend(),
                     [&](const PendingEviction& each) { return each.device.alias == block.alias; });
    return it == state.pending_evictions.rend() ? nullptr : &*it;
}

}  // namespace

void release(State& state, core::AllocationId id, std::unique_lock<std::mutex>& lock) {
    core::Residency& residency = state.residency;
    const core::Allocation buffer = residency.allocation(id);
    // From here on its memory is nobody's victim, and will be free: who needs room has something to wait for.
    const Holder holder(state);
    const auto moving = [&] {
        for (const core::ChunkId chunk : buffer.chunks) {
            residency.cancel_out(chunk);
            const core::State where = residency.chunk(chunk).state;
            if (where == core::State::Remapping || where == core::State::Filling) return true;
        }
        return held(residency, id);
    };
    while (moving()) {
        state.changed.wait_for(lock, std::chrono::milliseconds(1));
        poll_completions(state, lock);
    }
    struct Mapped {
        core::Address address;
        Block block;
    };
    std::vector<Mapped> mapped;
    for (const core::ChunkId chunk : buffer.chunks) {
        const core::State where = residency.chunk(chunk).state;
        if (where == core::State::Empty) continue;
        const Backing& backing = state.backing[chunk];
        mapped.push_back(
            {residency.chunk(chunk).address, where == core::State::OnHost ? backing.host : backing.device});
    }
    note_free(state, id);
    residency.remove(id);

    lock.unlock();
    const std::size_t count = mapped.size();
    std::vector<Block> lost;
    std::erase_if(mapped, [&](const Mapped& each) {
        if (each.block.pinned || state.port.discard(each.address, each.block.bytes) == CUDA_SUCCESS)
            return false;
        lost.push_back(each.block);
        return true;
    });
    lock.lock();
    std::erase_if(lost, [&](const Block& block) { return copy_of(state, block) != nullptr; });
    for (const Mapped& each : mapped) {
        if (each.block.place == device::Place::Host) {
            state.host_blocks.put(each.block);
        } else if (PendingEviction* const copy = copy_of(state, each.block)) {
            copy->orphan = true;
        } else {
            state.device_blocks.put(each.block);
        }
    }
    sweep_evictions(state);
    // Where something is mapped still, nothing else can be: its address and its memory are never used again.
    if (mapped.size() == count) {
        state.arena.give_back(buffer.address, buffer.bytes);
    } else {
        log::error("the driver does not take {} mappings away: their memory is lost", count - mapped.size());
        lock.unlock();
        for (const Block& block : lost)
            (block.place == device::Place::Host ? state.host_blocks : state.device_blocks).destroy(block);
        lock.lock();
    }
    state.changed.notify_all();
}

void poll_completions(State& state, std::unique_lock<std::mutex>& lock) {
    state.fences.poll(lock);
    sweep_evictions(state);
    std::erase_if(state.filling, [&](core::ChunkId id) {
        Backing& backing = state.backing[id];
        if (!state.residency.timelines.finished(backing.fill)) return false;
        state.residency.filled(id);
        state.host_blocks.put(backing.host);
        note_move(state, trace::Direction::In, id, "needed", backing.fill_since_ns, trace::now_ns());
        return true;
    });
}

void free_completed(State& state, std::unique_lock<std::mutex>& lock) {
    const auto unheld = [&](core::AllocationId id) { return !held(state.residency, id); };
    while (const auto id = state.pending_frees.take_finished(state.residency.timelines, unheld))
        release(state, *id, lock);
}

}  // namespace lms::engine
