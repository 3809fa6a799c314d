// Buffers that come and go.
#include <algorithm>

#include "shim/engine/engine.h"

namespace lms::engine {

Engine::Engine(const EngineOptions& options, Ranking& ranking)
    : options_(options), residency_(options.begin, options.bytes, options.granularity, ranking) {}

AllocationId Engine::add(Address address, std::uint64_t asked_bytes,
                         std::span<const std::uint64_t> chunk_bytes) {
    largest_cut_ = std::max(largest_cut_, std::ranges::max(chunk_bytes));
    const AllocationId id = residency_.add(address, asked_bytes, chunk_bytes);
    note_live();
    const std::vector<ChunkId>& chunks = residency_.allocation(id).chunks;
    backing_.resize(std::max<std::size_t>(backing_.size(), *std::ranges::max_element(chunks) + 1));
    for (const ChunkId chunk : chunks) backing_[chunk].refusals = 0;
    return id;
}

void Engine::note_live() {
    most_live_bytes_ = std::max(most_live_bytes_, residency_.allocated_bytes() - pending_frees.bytes());
}

void Engine::placed(ChunkId id, const Block& block, bool mapped) {
    Backing& backing = backing_[id];
    if (!mapped) {
        residency_.undo_in(id, false);
        put(block);
    } else if (block.place == Place::Device) {
        backing.device = block;
        backing.fresh_at = Backing::kUsed;
        residency_.mapped_empty(id);
    } else {
        backing.host = block;
        backing.fresh_at = fresh_now();
        residency_.back_by_host(id);
    }
}

bool Engine::back_by_host(ChunkId id, const Block& host) {
    if (residency_.chunk(id).state != State::Empty || !residency_.back_by_host(id)) {
        put(host);
        return false;
    }
    backing_[id].host = host;
    backing_[id].fresh_at = fresh_now();
    return true;
}

// Work that is unfinished may yet learn the address, as through memory that the host writes.
std::uint64_t Engine::fresh_now() const {
    return opaque_busy() || unseen_busy() ? Backing::kUsed : soilings_;
}

bool Engine::is_held(AllocationId id) const {
    return std::ranges::any_of(residency_.allocation(id).chunks, [&](ChunkId chunk) {
        return residency_.chunk(chunk).pins > 0 || residency_.chunk(chunk).pins_in_place > 0;
    });
}

bool Engine::is_used(AllocationId id) const {
    return opaque_busy() || is_held(id) ||
           std::ranges::any_of(residency_.allocation(id).chunks, [&](ChunkId chunk) {
               const Chunk& each = residency_.chunk(chunk);
               return each.keeps > 0 || residency_.in_flight(chunk) || each.state == State::Remapping;
           });
}

bool Engine::must_wait_to_remove(AllocationId id) {
    for (const ChunkId chunk : residency_.allocation(id).chunks) {
        residency_.cancel_out(chunk);
        const State where = residency_.chunk(chunk).state;
        if (where == State::Remapping || where == State::Filling) return true;
    }
    return is_held(id);
}

void Engine::remove(AllocationId id) {
    residency_.remove(id);
}

// The last one that reads it, though its chunk does not leave any more. Null: none.
PendingEviction* Engine::copy_of(const Block& block) {
    const auto it = std::find_if(
        pending_evictions_.rbegin(), pending_evictions_.rend(),
        [&](const PendingEviction& each) { return each.copies && each.device.alias == block.alias; });
    return it == pending_evictions_.rend() ? nullptr : &*it;
}

bool Engine::is_read(const Block& block) {
    return copy_of(block) != nullptr;
}

bool Engine::put_freed(const Block& block) {
    if (PendingEviction* const copy = copy_of(block)) {
        copy->orphan = true;
        sweep_evictions();
        return false;
    }
    put(block);
    return true;
}

}  // namespace lms::engine
