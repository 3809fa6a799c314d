// Warp operations: each lane leaves its value and waits; the last of the mask to come computes everybody's
// result.
#include <algorithm>

#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {
namespace {

std::uint32_t combine(sc_warp_op operation, std::uint32_t a, std::uint32_t b) {
    const auto signed_less = [](std::uint32_t x, std::uint32_t y) {
        return static_cast<std::int32_t>(x) < static_cast<std::int32_t>(y);
    };
    switch (operation) {
        case SC_WARP_ADD:
            return a + b;
        case SC_WARP_MIN_U32:
            return std::min(a, b);
        case SC_WARP_MAX_U32:
            return std::max(a, b);
        case SC_WARP_MIN_S32:
            return std::min(a, b, signed_less);
        case SC_WARP_MAX_S32:
            return std::max(a, b, signed_less);
        case SC_WARP_AND:
            return a & b;
        case SC_WARP_OR:
            return a | b;
        default:
            return a ^ b;
    }
}

}  // namespace

void exchange(sc_warp_op operation, std::uint32_t lanes, std::uint64_t* values,
              const std::uint32_t* sources) {
    const std::uint64_t first = values[__builtin_ctz(lanes)];
    switch (operation) {
        case SC_WARP_SYNC:
            break;
        case SC_WARP_EXCHANGE: {
            std::uint64_t before[kWarpSize];
            std::copy_n(values, kWarpSize, before);
            for_each_lane(lanes, [&](std::uint32_t l) {
                if (lanes >> sources[l] & 1) values[l] = before[sources[l]];
            });
            break;
        }
        case SC_WARP_BALLOT: {
            std::uint32_t ballot = 0;
            for_each_lane(lanes, [&](std::uint32_t l) { ballot |= (values[l] != 0) << l; });
            for_each_lane(lanes, [&](std::uint32_t l) { values[l] = ballot; });
            break;
        }
        case SC_WARP_MATCH: {
            // Those with the same value, and above them all that are there.
            std::uint64_t equal[kWarpSize];
            for_each_lane(lanes, [&](std::uint32_t l) {
                equal[l] = std::uint64_t{lanes} << kWarpSize;
                for_each_lane(
                    lanes, [&](std::uint32_t o) { equal[l] |= std::uint64_t{values[o] == values[l]} << o; });
            });
            for_each_lane(lanes, [&](std::uint32_t l) { values[l] = equal[l]; });
            break;
        }
        case SC_WARP_TOGETHER: {
            void* parts[kWarpSize] = {};
            for_each_lane(lanes, [&](std::uint32_t l) { parts[l] = reinterpret_cast<void*>(values[l]); });
            (*reinterpret_cast<void (**)(void* const*)>(first))(parts);
            break;
        }
        default: {
            auto total = static_cast<std::uint32_t>(first);
            for_each_lane(lanes & (lanes - 1), [&](std::uint32_t l) {
                total = combine(operation, total, static_cast<std::uint32_t>(values[l]));
            });
            for_each_lane(lanes, [&](std::uint32_t l) { values[l] = total; });
        }
    }
}

std::uint64_t Block::warp_operation(Fiber& fiber, sc_warp_op operation, std::uint32_t mask,
                                    std::uint64_t value, std::uint32_t source) {
    const std::uint32_t bit = 1u << fiber.thread.lane;
    Warp& warp = warps_[fiber.thread.warp];
    fiber.operation = operation;
    fiber.mask = mask | bit;
    fiber.value = value;
    fiber.source = source;
    // The last to come goes on at once.
    if (!try_complete(fiber.thread.warp, fiber, warp.waiting | bit)) {
        warp.waiting |= bit;
        suspend(fiber);
    }
    return fiber.result;
}

// Completes the operation `first` is at if all lanes of its mask that live are `present` at it.
bool Block::try_complete(std::uint32_t warp, const Fiber& first, std::uint32_t present) {
    const std::uint32_t members = first.mask & warps_[warp].live;
    if ((present & members) != members) return false;
    bool together = true;
    for_each_lane(members, [&](std::uint32_t l) {
        const Fiber& other = lane(warp, l);
        together &= other.mask == first.mask && other.operation == first.operation;
    });
    if (together) complete(warp, members);
    return together;
}

void Block::complete(std::uint32_t warp, std::uint32_t lanes) {
    std::uint64_t values[kWarpSize] = {};
    std::uint32_t sources[kWarpSize] = {};
    for_each_lane(lanes, [&](std::uint32_t l) {
        values[l] = lane(warp, l).value;
        sources[l] = lane(warp, l).source;
    });
    exchange(lane(warp, static_cast<std::uint32_t>(__builtin_ctz(lanes))).operation, lanes, values, sources);
    for_each_lane(lanes, [&](std::uint32_t l) { lane(warp, l).result = values[l]; });
    warps_[warp].waiting &= ~lanes;
    make_ready(warp, lanes);
}

// A lane has ended: what others wait at may be complete without it.
void Block::recheck_warp(std::uint32_t warp) {
    for (std::uint32_t rest = warps_[warp].waiting; rest; rest &= rest - 1)
        if (warps_[warp].waiting & rest & -rest)
            try_complete(warp, lane(warp, static_cast<std::uint32_t>(__builtin_ctz(rest))),
                         warps_[warp].waiting);
}

// Completes the operation that the first of `among` waits at with those of them that wait at the same. Others
// named in its mask will never come. The specification leaves this undefined; hardware goes on with those
// that are there.
void Block::force(std::uint32_t warp, std::uint32_t among) {
    const Fiber& first = lane(warp, static_cast<std::uint32_t>(__builtin_ctz(among)));
    std::uint32_t group = 0;
    for_each_lane(among, [&](std::uint32_t l) {
        const Fiber& other = lane(warp, l);
        if (other.mask == first.mask && other.operation == first.operation) group |= 1u << l;
    });
    complete(warp, group);
}

// No thread of the block can run.
bool Block::force_warps() {
    bool forced = false;
    for (std::uint32_t w = 0; w * kWarpSize < threads_; ++w) {
        while (warps_[w].waiting) {
            force(w, warps_[w].waiting);
            forced = true;
        }
    }
    return forced;
}

}  // namespace simcuda::exec
