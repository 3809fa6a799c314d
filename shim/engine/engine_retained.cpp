// Host copies of chunks that are on the device, kept for as long as nothing may have written these: a clean
// chunk (engine/chunk.h) is evicted without a copy.
//
// What is submitted may run at once, and in any order with what was submitted before: a chunk stops being
// clean when work that may write it is about to be submitted, and becomes it only by coming in, when nothing
// that may write it is unfinished. Work that names a chunk is unfinished to it (Chunk::uses); work that may
// write what it does not name is unfinished to all.
#include <iterator>
#include <utility>

#include "shim/engine/engine.h"

namespace lms::engine {

void Engine::retain_copy(ChunkId id) {
    residency_.clean(id);
    retained_.emplace(residency_.chunk(id).bytes, id);
}

// Its copy becomes what it is on the host, where it is clean; the caller's.
std::optional<Block> Engine::take_copy(ChunkId id) {
    if (!residency_.chunk(id).clean) return std::nullopt;
    residency_.soil(id);
    retained_.erase({residency_.chunk(id).bytes, id});
    return backing_[id].host;
}

void Engine::drop_copy(ChunkId id) {
    const auto copy = take_copy(id);
    // While it fills, that reads the copy; at its end it is given back (complete_moves).
    if (!copy || residency_.chunk(id).state == State::Filling) return;
    residency_.cancel_out(id);
    put(*copy);
}

void Engine::drop_copies() {
    ++soilings_;
    const auto all = std::exchange(retained_, {});
    for (const auto& [bytes, id] : all) drop_copy(id);
}

bool Engine::spare_copy(std::uint64_t bytes) {
    for (auto it = retained_.lower_bound({bytes, 0}); it != retained_.end() && it->first == bytes; ++it) {
        if (residency_.chunk(it->second).state != State::Resident) continue;
        drop_copy(it->second);
        return true;
    }
    return false;
}

bool Engine::spare_copies(std::uint64_t bytes) {
    // Largest first: fewest chunks.
    for (auto it = retained_.end(); it != retained_.begin() && host_pool_.free_bytes() < bytes;) {
        const ChunkId id = std::prev(it)->second;
        if (residency_.chunk(id).state == State::Resident) {
            drop_copy(id);
        } else {
            --it;
        }
    }
    return host_pool_.free_bytes() >= bytes;
}

}  // namespace lms::engine
