// Barriers of a block: bar.sync, bar.arrive and bar.red, numbered 0 to 15.
#include <algorithm>

#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {

std::uint32_t Block::barrier(Fiber& fiber, std::uint32_t id, std::uint32_t threads, sc_barrier_op operation,
                             std::uint32_t value) {
    if (id >= kBarriers) leave(Outcome::Trap);
    Barrier& barrier = barriers_[id];
    if (operation != SC_BARRIER_SYNC) {
        barrier.operation = operation;
        ++barrier.votes;
        barrier.yes += value != 0;
    }
    // The last to come goes on at once, unless it is time for another block.
    if (join(barrier, fiber, threads)) {
        const std::uint32_t result = complete(barrier, id);
        if (++meetings_ >= kMeetings) leave_block(fiber);
        return result;
    }
    active_barriers_ |= 1u << id;
    barrier.waiting[fiber.thread.warp] |= 1u << fiber.thread.lane;
    suspend(fiber);
    return static_cast<std::uint32_t>(fiber.result);
}

void Block::arrive(Fiber& fiber, std::uint32_t id, std::uint32_t threads) {
    if (id >= kBarriers) leave(Outcome::Trap);
    active_barriers_ |= 1u << id;
    if (join(barriers_[id], fiber, threads)) complete(barriers_[id], id);
}

// Counts an arrival; true when it was the last.
bool Block::join(Barrier& barrier, const Fiber& fiber, std::uint32_t threads) {
    ++barrier.count;
    if (threads == 0 || threads >= threads_) {
        barrier.threads = 0;
        return barrier.count >= live_;
    }
    barrier.threads = threads;
    barrier.arrived[fiber.thread.warp] |= 1u << fiber.thread.lane;
    return is_complete(barrier);
}

// Hardware counts warps: one of which a lane arrived counts whole, whatever became of its other lanes'
// threads.
bool Block::is_complete(const Barrier& barrier) const {
    if (barrier.threads == 0) return barrier.count >= live_;
    if (barrier.count >= barrier.threads) return true;
    std::uint32_t count = 0;
    for (std::uint32_t w = 0; w * kWarpSize < threads_; ++w)
        if (barrier.arrived[w])
            count += static_cast<std::uint32_t>(__builtin_popcount(barrier.arrived[w] | ~warps_[w].live));
    return count >= barrier.threads;
}

// Lets go on all who wait; returns the result of a reduction.
std::uint32_t Block::complete(Barrier& barrier, std::uint32_t id) {
    std::uint32_t result = 0;
    switch (barrier.operation) {
        case SC_BARRIER_SYNC:
            break;
        case SC_BARRIER_POPC:
            result = barrier.yes;
            break;
        case SC_BARRIER_AND:
            result = barrier.yes == barrier.votes;
            break;
        case SC_BARRIER_OR:
            result = barrier.yes != 0;
            break;
    }
    for (std::uint32_t w = 0; w * kWarpSize < threads_; ++w) {
        const std::uint32_t lanes = barrier.waiting[w];
        if (!lanes) continue;
        if (barrier.operation != SC_BARRIER_SYNC)
            for (std::uint32_t rest = lanes; rest; rest &= rest - 1)
                lane(w, static_cast<std::uint32_t>(__builtin_ctz(rest))).result = result;
        make_ready(w, lanes);
    }
    barrier = {};
    active_barriers_ &= ~(1u << id);
    return result;
}

// A thread has ended: barriers for all may have been waiting for it alone.
void Block::recheck_barriers() {
    for (std::uint32_t rest = active_barriers_; rest; rest &= rest - 1) {
        const auto id = static_cast<std::uint32_t>(__builtin_ctz(rest));
        if (live_ && is_complete(barriers_[id])) complete(barriers_[id], id);
    }
}

}  // namespace simcuda::exec
