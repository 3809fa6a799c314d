#include "shim/migration/placement.h"

#include <algorithm>
#include <chrono>

#include "shim/migration/eviction.h"
#include "shim/migration/telemetry.h"
#include "shim/migration/user_warnings.h"
#include "shim/util/log.h"

namespace lms::engine {

std::vector<MappedAt> addresses_of(const State& state, core::ChunkId id) {
    const core::Chunk& chunk = state.residency.chunk(id);
    const auto program = state.program_buffers.find(chunk.allocation);
    if (program == state.program_buffers.end()) return {{chunk.address, std::nullopt}};
    const std::uint64_t offset = chunk.address - state.residency.allocation(chunk.allocation).address;
    std::vector<MappedAt> addresses;
    for (const ProgramBuffer::Mapped& view : program->second.views)
        addresses.push_back({view.address + offset, view.access});
    return addresses;
}

namespace {

bool is_mapped(const Block* block) {
    return block && !block->pinned;
}

bool map(device::Port& port, const MappedAt& at, const Block& block) {
    return (at.access ? port.map_for(at.address, block.bytes, block.handle, *at.access)
                      : port.map(at.address, block.bytes, block.handle, block.place)) == CUDA_SUCCESS;
}

bool remap_one(device::Port& port, const MappedAt& at, const Block* previous, const Block* next) {
    if (is_mapped(previous) && port.unmap(at.address, previous->bytes) != CUDA_SUCCESS) return false;
    if (!is_mapped(next) || map(port, at, *next)) return true;
    announce_no_mappings();
    if (is_mapped(previous) && !map(port, at, *previous)) {
        log::error("the driver took a mapping of {} bytes away and does not give it back", previous->bytes);
    }
    return false;
}

}  // namespace

bool remap(device::Port& port, std::span<const MappedAt> addresses, const Block* previous,
           const Block& next) {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        if (remap_one(port, addresses[i], previous, &next)) continue;
        while (i-- > 0) remap_one(port, addresses[i], &next, previous);
        return false;
    }
    return true;
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
        std::vector<MappedAt> addresses;
        Block block;
    };
    std::vector<Mapped> mapped;
    for (const core::ChunkId chunk : buffer.chunks) {
        const core::State where = residency.chunk(chunk).state;
        if (where == core::State::Empty) continue;
        const Backing& backing = state.backing[chunk];
        mapped.push_back(
            {addresses_of(state, chunk), where == core::State::OnHost ? backing.host : backing.device});
    }
    std::vector<RecordedMappings::Serial> serials;
    for (const core::ChunkId chunk : buffer.chunks) serials.push_back(residency.chunk(chunk).serial);
    note_free(state, id);
    residency.remove(id);
    state.program_buffers.erase(id);

    lock.unlock();
    const std::size_t count = mapped.size();
    std::vector<Block> lost;
    std::erase_if(mapped, [&](const Mapped& each) {
        bool taken = true;
        for (const MappedAt& at : each.addresses) {
            taken &=
                !is_mapped(&each.block) || state.port.discard(at.address, each.block.bytes) == CUDA_SUCCESS;
        }
        if (!taken) lost.push_back(each.block);
        return !taken;
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
        if (state.recorded.gone(serials, {buffer.address, buffer.bytes}))
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
        note_move(state, trace::Direction::In, id, trace::MoveReason::Needed, backing.fill_since_ns,
                  trace::now_ns());
        return true;
    });
}

void free_completed(State& state, std::unique_lock<std::mutex>& lock) {
    const auto unheld = [&](core::AllocationId id) { return !held(state.residency, id); };
    while (const auto id = state.pending_frees.take_finished(state.residency.timelines, unheld))
        release(state, *id, lock);
}

}  // namespace lms::engine
