// Threads that need no stack of their own run in steps: warp by warp, each to where it waits next. What holds
// of fibers holds of them, with less to do, for most of the time all lanes of a warp wait at the same place.
#include <algorithm>

#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {
namespace {

std::uint32_t lanes_of(std::uint32_t count) {
    return count >= kWarpSize ? ~0u : (1u << count) - 1;
}

}  // namespace

void Block::start_steps() {
    if (!steps_) steps_ = std::make_unique<sc_steps>();
    std::uint32_t x = 0, y = 0, z = 0;
    for (std::uint32_t i = 0; i < threads_; ++i) {
        steps_->at[i] = 0;
        steps_->tid[0][i] = x;
        steps_->tid[1][i] = y;
        steps_->tid[2][i] = z;
        if (++x < abi_.ntid[0]) continue;
        x = 0;
        if (++y < abi_.ntid[1]) continue;
        y = 0;
        ++z;
    }
    common_at_.fill(0);
    start_on_one_stack([](void* block) { static_cast<Block*>(block)->run_steps(); });
}

void Block::run_steps() {
    const std::uint32_t warps = (threads_ + kWarpSize - 1) / kWarpSize;
    for (std::uint32_t running = lanes_of(warps); running;) {
        for_each_lane(running, [&](std::uint32_t w) { step_warp(w); });
        running = 0;
        // Others of their warp and their block wait for those that wait for grids.
        for (std::uint32_t w = 0; w < warps; ++w) running |= (places_of(w).at_grids != 0) << w;
        if (running) {
            await_grids();
            for_each_lane(running, [&](std::uint32_t w) { go_on(w, places_of(w).at_grids); });
            continue;
        }
        // Those that wait for others of their warp, which wait for the block, go on without.
        for (std::uint32_t w = 0; w < warps; ++w) {
            const Places places = places_of(w);
            const std::uint32_t held = places.at_join ? places.at_join : places.at_warp;
            if (!held) continue;
            furthest_go_on(w, held);
            running |= 1u << w;
        }
        if (running) continue;
        for (std::uint32_t w = 0; w < warps; ++w) {
            const std::uint32_t lanes = places_of(w).at_barrier;
            if (!lanes) continue;
            go_on(w, lanes);
            running |= 1u << w;
        }
        if (++meetings_ % kMeetings == 0) leave_stack();
    }
    live_ = 0;
    leave_stack();
}

// Until its lanes have ended, or wait for other warps.
void Block::step_warp(std::uint32_t w) {
    const std::uint32_t first = w * kWarpSize, end = std::min(first + kWarpSize, threads_);
    const auto entry = reinterpret_cast<ptx::NativeKernel::StepsEntry>(entry_);
    void* const kept = reinterpret_cast<void*>(stack_top(0) - kept_bytes_);
    do {
        entry(&abi_, stack_limit(), steps_.get(), kept, first, end, common_at_[w]);
        const std::uint32_t* const at = steps_->at;
        std::uint32_t differ = 0;
        for (std::uint32_t i = first; i < end; ++i) differ |= at[i] ^ at[first];
        common_at_[w] = differ ? static_cast<std::uint32_t>(SC_APART) : at[first];
    } while (meet(w));
}

Block::Places Block::places_of(std::uint32_t w) const {
    const std::uint32_t first = w * kWarpSize, count = std::min(kWarpSize, threads_ - first);
    const bool apart = common_at_[w] == static_cast<std::uint32_t>(SC_APART);
    Places places;
    for (std::uint32_t l = 0; l < (apart ? count : 1); ++l) {
        const std::uint32_t bits = apart ? 1u << l : lanes_of(count);
        switch (steps_->at[first + l] & SC_AT_WHAT) {
            case SC_AT_BARRIER:
                places.at_barrier |= bits;
                break;
            case SC_AT_WARP:
                places.at_warp |= bits;
                break;
            case SC_AT_JOIN:
                places.at_join |= bits;
                break;
            case SC_AT_GRIDS:
                places.at_grids |= bits;
                break;
            default:
                continue;
        }
        places.live |= bits;
    }
    return places;
}

// Lets go on those lanes of a warp that have met. False when there are none.
bool Block::meet(std::uint32_t w) {
    const Places places = places_of(w);
    bool met = false;
    for (std::uint32_t rest = places.at_warp; rest;) {
        const auto l = static_cast<std::uint32_t>(__builtin_ctz(rest));
        const std::uint32_t group = at_operation_of(w, l, rest);
        rest &= ~group;
        if (const std::uint32_t members = steps_->mask[w * kWarpSize + l] & places.live;
            (group & members) == members) {
            complete_step(w, members);
            met = true;
        }
    }
    if (met || !places.at_join || (places.at_join | places.at_warp) != places.live) return met;
    furthest_go_on(w, places.live);  // all wait for one another
    return true;
}

// Those of `among`, which wait for operations of the warp, that are at the same one as lane `l`.
std::uint32_t Block::at_operation_of(std::uint32_t w, std::uint32_t l, std::uint32_t among) const {
    const std::uint32_t* const at = steps_->at + w * kWarpSize;
    const std::uint32_t* const mask = steps_->mask + w * kWarpSize;
    std::uint32_t group = 0;
    for_each_lane(among, [&](std::uint32_t other) {
        if (mask[other] == mask[l] && at[other] >> SC_AT_SHIFT == at[l] >> SC_AT_SHIFT) group |= 1u << other;
    });
    return group;
}

void Block::complete_step(std::uint32_t w, std::uint32_t lanes) {
    const std::uint32_t first = w * kWarpSize;
    const std::uint32_t at = steps_->at[first + static_cast<std::uint32_t>(__builtin_ctz(lanes))];
    exchange(static_cast<sc_warp_op>(at >> SC_AT_SHIFT), lanes, steps_->value + first,
             steps_->source + first);
    go_on(w, lanes);
}

void Block::furthest_go_on(std::uint32_t w, std::uint32_t among) {
    const std::uint32_t first = w * kWarpSize;
    std::uint64_t furthest = 0;
    for_each_lane(among, [&](std::uint32_t l) { furthest = std::max(furthest, steps_->site[first + l]); });
    std::uint32_t group = 0;
    for_each_lane(among, [&](std::uint32_t l) { group |= (steps_->site[first + l] == furthest) << l; });
    if (const std::uint32_t lanes = group & places_of(w).at_join) {
        for_each_lane(lanes, [&](std::uint32_t l) { steps_->value[first + l] = lanes; });
        go_on(w, lanes);
    } else {
        complete_step(w, at_operation_of(w, static_cast<std::uint32_t>(__builtin_ctz(group)), group));
    }
}

void Block::go_on(std::uint32_t w, std::uint32_t lanes) {
    const std::uint32_t first = w * kWarpSize;
    for_each_lane(lanes, [&](std::uint32_t l) { steps_->at[first + l] &= SC_AT_SITE; });
    if (common_at_[w] == static_cast<std::uint32_t>(SC_APART)) return;
    if (lanes == lanes_of(threads_ - first))
        common_at_[w] &= SC_AT_SITE;
    else
        common_at_[w] = static_cast<std::uint32_t>(SC_APART);
}

}  // namespace simcuda::exec
