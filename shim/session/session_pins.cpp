// What is kept on the device for longer than a piece of work: the mappings that graphs and objects have
// recorded.
#include <algorithm>

#include "shim/executor/placement.h"
#include "shim/session/session.h"
#include "shim/util/bounds.h"

namespace lms::session {

using engine::ChunkId;

CUresult Session::pin_resident(std::span<const ChunkRequest> needs, ResidentPins& kept) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    core.engine.touch(needs);
    ChunkPins hold;
    // What is left on the host cannot be kept on the device.
    const auto bring_in = [&]() LMS_LOCKED {
        do {
            const CUresult status = migrator_->bring_in(needs, hold, lock);
            if (status != CUDA_SUCCESS || hold.in_place.empty()) return status;
            drop(core, hold);
        } while (migrator_->await_grant(needs, lock));
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    CUresult status = bring_in();
    while (status == CUDA_ERROR_OUT_OF_MEMORY && core.program_pins.give_up()) status = bring_in();
    if (status != CUDA_SUCCESS) return status;
    const auto filling = [&] {
        return std::any_of(hold.pinned.begin(), hold.pinned.end(), [&](ChunkId id) LMS_LOCKED {
            return core.residency.chunk(id).state == engine::State::Filling;
        });
    };
    while (filling()) {
        core.changed.wait_for(lock, bounds::kQuickGlance);
        executor::poll_completions(core, lock);
    }
    for (const ChunkId id : hold.pinned) {
        // Who will reach it there, and what they do, is not told here.
        core.engine.drop_copy(id);
        kept.chunks.push_back({id, core.engine.pin_resident(id)});
        core.recorded.add(kept.chunks.back().serial);
    }
    let_go(core, hold);
    return CUDA_SUCCESS;
}

namespace {

// What no longer records `kept`, or is never told that it does not, holds back no addresses.
void drop_recorded(executor::Core& core, const ResidentPins& kept) LMS_LOCKED {
    for (const ResidentPins::One& one : kept.chunks) {
        if (const auto free = core.recorded.drop(one.serial)) core.arena.give_back(free->begin, free->bytes);
    }
}

}  // namespace

void Session::unpin_resident(const ResidentPins& kept) {
    const executor::SessionLock lock(core_->mutex);
    for (const ResidentPins::One& one : kept.chunks) core_->engine.unpin_resident(one.chunk, one.serial);
    drop_recorded(*core_, kept);
    core_->changed.notify_all();
}

void Session::leave_pinned(const ResidentPins& kept) {
    const executor::SessionLock lock(core_->mutex);
    drop_recorded(*core_, kept);
}

void Session::reached() {
    ++core_->reached;
}

void Session::unpin_reached(const ResidentPins& kept) {
    const executor::SessionLock lock(core_->mutex);
    --core_->reached;
    const std::vector<engine::Use> uses = core_->fences.latest();
    for (const ResidentPins::One& one : kept.chunks)
        core_->engine.unpin_resident(one.chunk, one.serial, uses);
    drop_recorded(*core_, kept);
    core_->changed.notify_all();
}

}  // namespace lms::session
