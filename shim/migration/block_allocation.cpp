#include "shim/migration/block_allocation.h"

#include "shim/migration/budget.h"
#include "shim/migration/retained_copies.h"

namespace lms::engine {

std::optional<Block> device_block(State& state, std::uint64_t bytes, std::uint64_t limit, SessionLock& lock) {
    BlockPool& pool = state.device_blocks;
    if (state.residency.device_bytes() + bytes > limit) return std::nullopt;
    if (const auto block = pool.take(bytes)) return block;
    if (pool.held_bytes() + bytes > state.budget_bytes) pool.recover(lock);
    // Again after each trim, which drops the lock: another thread may have made blocks meanwhile.
    while (pool.held_bytes() + bytes > state.budget_bytes) {
        const std::uint64_t excess = pool.held_bytes() + bytes - state.budget_bytes;
        if (pool.free_bytes() < excess) return std::nullopt;
        pool.trim(excess, lock);
    }
    // Others may have taken what the budget promised; what lies free in other sizes makes room.
    Block block;
    do {
        if (pool.create(bytes, block, lock) == CUDA_SUCCESS) return block;
    } while (pool.trim(bytes, lock) > 0);
    refresh_budget(state, lock);
    return std::nullopt;
}

std::optional<Block> host_block(State& state, std::uint64_t bytes, SessionLock& lock) {
    BlockPool& pool = state.host_blocks;
    if (const auto block = pool.take(bytes)) return block;
    const std::uint64_t limit = host_bytes(state, kHostLook);
    if (pool.held_bytes() + bytes > limit) pool.recover(lock);
    while (pool.held_bytes() + bytes > limit) {
        const std::uint64_t excess = pool.held_bytes() + bytes - limit;
        if (spare_copy(state, bytes)) return pool.take(bytes);
        if (!spare_copies(state, excess)) return std::nullopt;
        pool.trim(excess, lock);
    }
    Block block;
    if (pool.create(bytes, block, lock) == CUDA_SUCCESS) return block;
    return spare_copy(state, bytes) ? pool.take(bytes) : std::nullopt;
}

}  // namespace lms::engine
