#include "shim/executor/block_allocation.h"

#include <algorithm>

#include "shim/executor/budget.h"
#include "shim/executor/placement.h"
#include "shim/util/bounds.h"

namespace lms::executor {

std::optional<Block> device_block(Core& core, std::uint64_t bytes, std::uint64_t limit, SessionLock& lock,
                                  bool drains) {
    using Is = engine::Engine::Room::Is;
    BlockSource& source = core.device_blocks;
    // Again after each step that drops the lock: another thread may have made blocks meanwhile.
    for (bool recovered = false;;) {
        const engine::Engine::Room room = core.engine.device_room(bytes, limit, recovered);
        if (room.is == Is::Taken) return room.block;
        if (room.is == Is::None) return std::nullopt;
        if (room.is == Is::Create) break;
        if (room.is == Is::Trim && !drains && must_drain(core)) return std::nullopt;
        if (room.is == Is::Trim) source.trim(room.bytes, lock);
        if (room.is == Is::Recover) source.recover(lock);
        recovered = true;
    }
    // Others may have taken what the budget promised; what lies free in other sizes makes room.
    Block block;
    do {
        if (source.create(bytes, block, lock) == CUDA_SUCCESS) return block;
    } while (source.trim(bytes, lock) > 0);
    refresh_budget(core, lock);
    return std::nullopt;
}

namespace {

std::optional<Block> take_host_block(Core& core, std::uint64_t bytes, SessionLock& lock) LMS_LOCKED {
    engine::BlockPool& pool = core.engine.pool(engine::Place::Host);
    BlockSource& source = core.host_blocks;
    if (const auto block = pool.take(bytes)) return block;
    const std::uint64_t limit = host_bytes(core, bounds::kHostLook);
    const auto beyond = [&](std::uint64_t most) { return pool.held_bytes() + bytes > most; };
    if (beyond(limit)) source.recover(lock);
    while (beyond(limit) || !claim_host(core, pool.held_bytes() + bytes)) {
        const std::uint64_t excess =
            pool.held_bytes() + bytes - (beyond(limit) ? limit : core.host_part.claimed_bytes);
        if (core.engine.spare_copy(bytes)) return pool.take(bytes);
        if (!core.engine.spare_copies(excess)) return std::nullopt;
        source.trim(excess, lock);
    }
    // Where the driver pins no more, what lies free in other sizes and retained copies make room.
    Block block;
    do {
        if (source.create(bytes, block, lock) == CUDA_SUCCESS) return block;
        if (core.engine.spare_copy(bytes)) return pool.take(bytes);
        core.engine.spare_copies(bytes);
    } while (source.trim(bytes, lock) > 0);
    return std::nullopt;
}

}  // namespace

std::optional<Block> host_block(Core& core, std::uint64_t bytes, SessionLock& lock) {
    const auto block = take_host_block(core, bytes, lock);
    settle_host(core);
    return block;
}

bool pin_ahead(Core& core, std::uint64_t bytes, SessionLock& lock) {
    if (core.host_blocks.held_bytes() >= core.engine.promised_host_bytes(core.residency.allocated_bytes()))
        return true;
    Block block;
    if (core.host_blocks.create(bytes, block, lock) != CUDA_SUCCESS) return false;
    core.engine.put(block);
    settle_host(core);
    return true;
}

}  // namespace lms::executor
