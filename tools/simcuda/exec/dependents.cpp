// Grids that begin before those they come behind have ended: griddepcontrol.launch_dependents and .wait.
#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {

// The first of a block's threads does it for all. Who runs the block is told at once, for it may go on for
// long.
void Block::let_dependents_go(const sc_thread* thread) {
    if (has_let_go_) return;
    has_let_go_ = tells_that_ = true;
    if (mode_ != ptx::NativeKernel::Mode::Fibers) return leave_stack();
    // It stays ready, and nobody has had a turn meanwhile.
    const std::uint32_t index = thread->warp * kWarpSize + thread->lane;
    last_ = index;
    simcuda_switch_stack(&fibers_[index].stack, scheduler_);
}

void Block::wait_for_grids(Fiber& fiber) {
    if (all_set(*behind_)) return;
    at_grids_[fiber.thread.warp] |= 1u << fiber.thread.lane;
    ++waiting_for_grids_;
    suspend(fiber);
}

void Block::stop_waiting_for_grids() {
    for (std::uint32_t w = 0; w * kWarpSize < threads_; ++w) {
        if (at_grids_[w]) make_ready(w, at_grids_[w]);
        at_grids_[w] = 0;
    }
    waiting_for_grids_ = 0;
}

// In steps, on the first stack.
void Block::await_grids() {
    while (!all_set(*behind_)) {
        waiting_for_grids_ = 1;
        leave_stack();
    }
    waiting_for_grids_ = 0;
}

}  // namespace simcuda::exec
