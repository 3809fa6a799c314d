// What is kept on the device for longer than a piece of work: the mappings that graphs and objects have
// recorded.
#include <algorithm>

#include "shim/executor/placement.h"
#include "shim/session/session.h"
#include "shim/util/bounds.h"

namespace lms::session {

using engine::ChunkId;

CUresult Session::pin_resident(std::span<const ChunkRequest> needs, ResidentPins& kept) {
    executor::State& state = *state_;
    executor::SessionLock lock(state.mutex);
    state.engine.touch(needs);
    ChunkPins hold;
    // What is left on the host cannot be kept on the device.
    const auto bring_in = [&]() LMS_LOCKED {
        do {
            const CUresult status = migrator_->bring_in(needs, hold, lock);
            if (status != CUDA_SUCCESS || hold.in_place.empty()) return status;
            drop(state, hold);
        } while (migrator_->await_grant(needs, lock));
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    CUresult status = bring_in();
    while (status == CUDA_ERROR_OUT_OF_MEMORY && state.program_pins.give_up()) status = bring_in();
    if (status != CUDA_SUCCESS) return status;
    const auto filling = [&] {
        return std::any_of(hold.pinned.begin(), hold.pinned.end(), [&](ChunkId id) LMS_LOCKED {
            return state.residency.chunk(id).state == engine::State::Filling;
        });
    };
    while (filling()) {
        state.changed.wait_for(lock, bounds::kQuickGlance);
        executor::poll_completions(state, lock);
    }
    for (const ChunkId id : hold.pinned) {
        // Who will reach it there, and what they do, is not told here.
        state.engine.drop_copy(id);
        kept.chunks.push_back({id, state.engine.pin_resident(id)});
        state.recorded.add(kept.chunks.back().serial);
    }
    let_go(state, hold);
    return CUDA_SUCCESS;
}

namespace {

// What no longer records `kept`, or is never told that it does not, holds back no addresses.
void drop_recorded(executor::State& state, const ResidentPins& kept) LMS_LOCKED {
    for (const ResidentPins::One& one : kept.chunks) {
        if (const auto free = state.recorded.drop(one.serial))
            state.arena.give_back(free->begin, free->bytes);
    }
}

}  // namespace

void Session::unpin_resident(const ResidentPins& kept) {
    const executor::SessionLock lock(state_->mutex);
    for (const ResidentPins::One& one : kept.chunks) state_->engine.unpin_resident(one.chunk, one.serial);
    drop_recorded(*state_, kept);
    state_->changed.notify_all();
}

void Session::leave_pinned(const ResidentPins& kept) {
    const executor::SessionLock lock(state_->mutex);
    drop_recorded(*state_, kept);
}

void Session::reached() {
    ++state_->reached;
}

void Session::unpin_reached(const ResidentPins& kept) {
    const executor::SessionLock lock(state_->mutex);
    --state_->reached;
    const std::vector<engine::Use> uses = state_->fences.latest();
    for (const ResidentPins::One& one : kept.chunks)
        state_->engine.unpin_resident(one.chunk, one.serial, uses);
    drop_recorded(*state_, kept);
    state_->changed.notify_all();
}

}  // namespace lms::session
