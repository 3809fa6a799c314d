// Points at which the threads of a warp come together by themselves, as hardware has it that runs them in
// step: where paths join (the translator says where), and where old code looks at the others without a word.
//
// A thread that comes to one waits. When none of its warp can run, those furthest inside of what they parted
// at go on together; so all have met at a join before any leaves it. Nothing promises that they meet: who
// waits at a barrier, or in a loop, for one that waits here is not kept waiting.
#include <algorithm>

#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {

std::uint32_t Block::converge(Fiber& fiber) {
    warps_[fiber.thread.warp].converging |= 1u << fiber.thread.lane;
    suspend(fiber);
    return static_cast<std::uint32_t>(fiber.result);
}

// Those of `among` that are at the site furthest inside.
std::uint32_t Block::furthest_inside(std::uint32_t warp, std::uint32_t among) const {
    std::uint64_t furthest = 0;
    for (std::uint32_t rest = among; rest; rest &= rest - 1)
        furthest =
            std::max(furthest, lane(warp, static_cast<std::uint32_t>(__builtin_ctz(rest))).thread.site);
    std::uint32_t group = 0;
    for (std::uint32_t rest = among; rest; rest &= rest - 1)
        if (lane(warp, static_cast<std::uint32_t>(__builtin_ctz(rest))).thread.site == furthest)
            group |= rest & -rest;
    return group;
}

void Block::release(std::uint32_t warp, std::uint32_t lanes) {
    for (std::uint32_t rest = lanes; rest; rest &= rest - 1)
        lane(warp, static_cast<std::uint32_t>(__builtin_ctz(rest))).result = lanes;
    warps_[warp].converging &= ~lanes;
    make_ready(warp, lanes);
}

// If all of a warp wait for one another, lets those furthest inside go on.
bool Block::settle(std::uint32_t w) {
    Warp& warp = warps_[w];
    if (!warp.converging || (warp.converging | warp.waiting) != warp.live) return false;
    const std::uint32_t group = furthest_inside(w, warp.live);
    if (const std::uint32_t converging = group & warp.converging)
        release(w, converging);
    else
        force(w, group);
    return true;
}

// The block cannot go on, or has been waiting for long: nobody else is coming.
bool Block::release_converged() {
    bool released = false;
    for (std::uint32_t w = 0; w * kWarpSize < threads_; ++w) {
        if (!warps_[w].converging) continue;
        release(w, furthest_inside(w, warps_[w].converging));
        released = true;
    }
    return released;
}

}  // namespace simcuda::exec
