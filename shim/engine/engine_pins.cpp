// Chunks that stay where they are: recorded by graphs, or while the program changes what is mapped.
#include <utility>

#include "shim/engine/engine.h"

namespace lms::engine {

std::uint64_t Engine::pin_resident(ChunkId id) {
    return residency_.pin_resident(id);
}

void Engine::unpin_resident(ChunkId id, std::uint64_t serial, std::span<const Use> uses) {
    residency_.unpin_resident(id, serial, uses);
}

bool Engine::must_wait_to_hold_still(ChunkId id) {
    residency_.cancel_out(id);
    return residency_.chunk(id).state == State::Remapping;
}

void Engine::hold_still(ChunkId id) {
    residency_.pin(id);
    residency_.pin_in_place(id);
}

void Engine::end_still(ChunkId id) {
    residency_.unpin(id);
    residency_.unpin_in_place(id);
}

State Engine::begin_replacing(ChunkId id) {
    const State before = residency_.chunk(id).state;
    if (before == State::Resident) {
        residency_.begin_out(id);
        residency_.begin_remap(id);
    } else {
        residency_.begin_in(id);
    }
    ++remapping_;
    return before;
}

void Engine::end_replacing(ChunkId id, State before) {
    if (before == State::Resident) {
        residency_.undo_remap(id);
    } else {
        residency_.undo_in(id, before == State::OnHost);
    }
    --remapping_;
}

Block Engine::replace_host(ChunkId id, const Block& host) {
    return std::exchange(backing_[id].host, host);
}

}  // namespace lms::engine
