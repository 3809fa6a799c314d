#include "shim/executor/block_allocation.h"

#include <algorithm>

#include "shim/executor/budget.h"
#include "shim/executor/placement.h"
#include "shim/util/bounds.h"

namespace lms::executor {

std::optional<Block> device_block(State& state, std::uint64_t bytes, std::uint64_t limit, SessionLock& lock,
                                  bool drains) {
    using Is = engine::Engine::Room::Is;
    BlockSource& source = state.device_blocks;
    // Again after each step that drops the lock: another thread may have made blocks meanwhile.
    for (bool recovered = false;;) {
        const engine::Engine::Room room = state.engine.device_room(bytes, limit, recovered);
        if (room.is == Is::Taken) return room.block;
        if (room.is == Is::None) return std::nullopt;
        if (room.is == Is::Create) break;
        if (room.is == Is::Trim && !drains && must_drain(state)) return std::nullopt;
        if (room.is == Is::Trim) source.trim(room.bytes, lock);
        if (room.is == Is::Recover) source.recover(lock);
        recovered = true;
    }
    // Others may have taken what the budget promised; what lies free in other sizes makes room.
    Block block;
    do {
        if (source.create(bytes, block, lock) == CUDA_SUCCESS) return block;
    } while (source.trim(bytes, lock) > 0);
    refresh_budget(state, lock);
    return std::nullopt;
}

namespace {

std::optional<Block> take_host_block(State& state, std::uint64_t bytes, SessionLock& lock) LMS_LOCKED {
    engine::BlockPool& pool = state.engine.pool(engine::Place::Host);
    BlockSource& source = state.host_blocks;
    if (const auto block = pool.take(bytes)) return block;
    const std::uint64_t limit = host_bytes(state, bounds::kHostLook);
    const auto beyond = [&](std::uint64_t most) { return pool.held_bytes() + bytes > most; };
    if (beyond(limit)) source.recover(lock);
    while (beyond(limit) || !claim_host(state, pool.held_bytes() + bytes)) {
        const std::uint64_t excess =
            pool.held_bytes() + bytes - (beyond(limit) ? limit : state.host_part.claimed_bytes);
        if (state.engine.spare_copy(bytes)) return pool.take(bytes);
        if (!state.engine.spare_copies(excess)) return std::nullopt;
        source.trim(excess, lock);
    }
    Block block;
    if (source.create(bytes, block, lock) == CUDA_SUCCESS) return block;
    return state.engine.spare_copy(bytes) ? pool.take(bytes) : std::nullopt;
}

}  // namespace

std::optional<Block> host_block(State& state, std::uint64_t bytes, SessionLock& lock) {
    const auto block = take_host_block(state, bytes, lock);
    settle_host(state);
    return block;
}

}  // namespace lms::executor
