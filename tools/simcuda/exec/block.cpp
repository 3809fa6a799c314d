// Memory of a block and the scheduler of its threads.
//
// Threads run until they wait; then the next ready one continues, lanes of a warp first. Nothing preempts
// them, so loops that may wait for others yield (translated code sees to that).
#include "tools/simcuda/exec/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace simcuda::exec {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kWindowReach = (std::uint64_t{1} << 31) + kWindowSlack + kPage;
constexpr std::uint64_t kWindowBytes = 2 * kWindowReach;
// Stacks a multiple of 4 KiB apart would fall on the same cache sets.
constexpr std::uint64_t kStackSkew = 5 * 64;
constexpr int kSharedPoison = 0xcd;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
    return (value + to - 1) / to * to;
}

void* reserve(std::uint64_t bytes, int protection) {
    void* memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

std::unique_ptr<Block> Block::create(std::uint32_t threads, std::uint64_t stack_bytes) {
    std::unique_ptr<Block> block(new Block);
    return block->map(threads, stack_bytes) ? std::move(block) : nullptr;
}

bool Block::map(std::uint32_t threads, std::uint64_t stack_bytes) {
    stack_count_ = threads;
    stack_bytes_ = round_up(stack_bytes, kPage);
    stacks_bytes_ = round_up(kPage + threads * (stack_bytes_ + kStackSkew), kPage);
    stacks_ = static_cast<std::uint8_t*>(reserve(stacks_bytes_, PROT_READ | PROT_WRITE));
    window_ = static_cast<std::uint8_t*>(reserve(kWindowBytes, PROT_NONE));
    if (!stacks_ || !window_) return false;
    shared_ = window_ + kWindowReach;
    mprotect(stacks_, kPage, PROT_NONE);
    fibers_ = std::make_unique<Fiber[]>(threads);
    return true;
}

Block::~Block() {
    if (stacks_) munmap(stacks_, stacks_bytes_);
    if (window_) munmap(window_, kWindowBytes);
}

void Block::close_shared() {
    if (shared_open_) mprotect(shared_, shared_open_, PROT_NONE);
    shared_open_ = 0;
}

bool Block::provide_shared(std::uint64_t bytes) {
    // What an earlier kernel had and this one has not is a fault again.
    const std::uint64_t open = round_up(bytes, kPage);
    if (open > shared_open_ && mprotect(shared_, open, PROT_READ | PROT_WRITE) != 0) return false;
    if (open < shared_open_ && mprotect(shared_ + open, shared_open_ - open, PROT_NONE) != 0) return false;
    shared_open_ = open;
    std::memset(shared_, kSharedPoison, bytes);
    return true;
}

std::uint64_t Block::stack_top(std::uint32_t index) const {
    return reinterpret_cast<std::uint64_t>(stacks_) + kPage + (index + 1) * (stack_bytes_ + kStackSkew);
}

std::uint64_t Block::stack_limit() const {
    return reinterpret_cast<std::uint64_t>(stacks_) + kPage;
}

bool Block::start(const sc_block& abi, const ptx::NativeKernel& kernel, void* entry, Guard& guard,
                  Children& children, Cluster* cluster, const Flags& behind) {
    const std::uint64_t shared_bytes = std::uint64_t{abi.static_shared_bytes} + abi.dynamic_shared_bytes;
    shared_to_come_ = 0;
    if (cluster) {
        close_shared();
        shared_to_come_ = shared_bytes;
    } else if (!provide_shared(shared_bytes)) {
        return false;
    }
    abi_ = abi;
    abi_.executor = this;
    abi_.shared = reinterpret_cast<std::uint64_t>(shared_);
    guard_ = &guard;
    children_ = &children;
    entry_ = entry;
    mode_ = kernel.mode;
    kept_bytes_ = kernel.kept_bytes;
    threads_ = abi.ntid[0] * abi.ntid[1] * abi.ntid[2];
    alone_ = {};
    cluster_ = cluster ? cluster : &alone_;
    cluster_->add(*this, abi_.shared, threads_);
    abi_.peers = cluster_->shared.data();
    waiting_for_cluster_ = 0;
    in_cluster_barrier_.fill(0);
    behind_ = &behind;
    has_let_go_ = tells_that_ = false;
    waiting_for_grids_ = 0;
    at_grids_.fill(0);
    yields_ = 0;
    meetings_ = 0;
    leaving_ = false;
    active_barriers_ = 0;
    switch (mode_) {
        case ptx::NativeKernel::Mode::Loop:
            start_on_one_stack([](void* block) { static_cast<Block*>(block)->run_loop(); });
            break;
        case ptx::NativeKernel::Mode::Steps:
            start_steps();
            break;
        case ptx::NativeKernel::Mode::Fibers:
            start_fibers();
    }
    return true;
}

// `run_all` does not return.
void Block::start_on_one_stack(void (*run_all)(void*)) {
    live_ = 1;
    fibers_[0].stack = prepare_stack(stack_top(0) - kept_bytes_, run_all, this);
}

void Block::run_loop() {
    reinterpret_cast<ptx::NativeKernel::LoopEntry>(entry_)(&abi_, stack_limit());
    live_ = 0;
    leave_stack();
}

// From the first stack back to the scheduler.
void Block::leave_stack() {
    simcuda_switch_stack(&fibers_[0].stack, scheduler_);
}

void Block::start_fibers() {
    live_ = threads_;
    last_ = threads_ - 1;
    ready_warps_ = 0;
    barriers_.fill({});
    warps_.fill({});
    const auto run_one = [](void* argument) {
        auto* fiber = static_cast<Fiber*>(argument);
        Block& block = Block::of(&fiber->thread);
        reinterpret_cast<ptx::NativeKernel::FiberEntry>(block.entry_)(&fiber->thread);
        block.exit(*fiber);
    };
    std::uint32_t x = 0, y = 0, z = 0;
    for (std::uint32_t i = 0; i < threads_; ++i) {
        Fiber& fiber = fibers_[i];
        fiber.thread = {&abi_,      stack_top(i) - stack_bytes_, {x, y, z}, i % kWarpSize, i / kWarpSize,
                        kSpinBudget};
        fiber.arrived = false;
        fiber.stack = prepare_stack(stack_top(i), run_one, &fiber);
        warps_[i / kWarpSize].live |= 1u << i % kWarpSize;
        if (++x < abi_.ntid[0]) continue;
        x = 0;
        if (++y < abi_.ntid[1]) continue;
        y = 0;
        ++z;
    }
    for (std::uint32_t w = 0; w * kWarpSize < threads_; ++w) make_ready(w, warps_[w].live);
}

Block::State Block::run() {
    if (shared_to_come_ != 0 && !provide_shared(std::exchange(shared_to_come_, 0)))
        leave(Outcome::NotSupported);
    if (mode_ != ptx::NativeKernel::Mode::Fibers) {
        simcuda_switch_stack(&scheduler_, fibers_[0].stack);
        if (std::exchange(tells_that_, false)) return State::LetGo;
        if (waiting_for_grids_ != 0) return State::Waiting;
        return live_ == 0 ? State::Done : State::Stalled;
    }
    for (;;) {
        if (Fiber* next = next_ready(last_)) {
            cluster_->idle_turns = 0;
            simcuda_switch_stack(&scheduler_, next->stack);
        }
        if (live_ == 0) return State::Done;
        if (std::exchange(tells_that_, false)) return State::LetGo;
        if (waiting_for_grids_ != 0 && all_set(*behind_)) {
            stop_waiting_for_grids();
            if (!leaving_) continue;
        }
        if (waiting_for_grids_ != 0 && !leaving_) {
            cluster_->idle_turns = 0;  // who waits for these waits for what will come
            return State::Waiting;
        }
        if (!leaving_ && cluster_may_go_on()) return State::Stalled;
        const bool released = release_converged();
        if (leaving_) {
            leaving_ = false;
            yields_ = 0;
            meetings_ = 0;
            return State::Stalled;
        }
        if (!released && !force_warps()) {
            // Another block of the cluster may still be able to.
            if (waiting_for_cluster_ && cluster_->idle_turns < 4 * cluster_->running) return State::Stalled;
            return State::Stuck;
        }
    }
}

// The first ready fiber behind the one with index `after`, going round.
Fiber* Block::next_ready(std::uint32_t after) const {
    const std::uint32_t warp = after / kWarpSize;
    const std::uint32_t behind = ~((2u << after % kWarpSize) - 1);
    std::uint32_t chosen = warp;
    std::uint32_t lanes = warps_[warp].ready & behind;
    if (!lanes) {
        if (!ready_warps_) return nullptr;
        const std::uint32_t later = ready_warps_ & ~((2u << warp) - 1);
        chosen = static_cast<std::uint32_t>(__builtin_ctz(later ? later : ready_warps_));
        lanes = warps_[chosen].ready;
    }
    return &fibers_[chosen * kWarpSize + static_cast<std::uint32_t>(__builtin_ctz(lanes))];
}

// Continues with the next ready fiber, or the scheduler if there is none. `from` has left the ready set, or
// stays in it to be resumed in turn.
void Block::switch_to_next(Fiber& from) {
    last_ = index_of(from);
    Fiber* next = next_ready(last_);
    if (!next)
        simcuda_switch_stack(&from.stack, scheduler_);
    else if (next != &from)
        simcuda_switch_stack(&from.stack, next->stack);
}

void Block::make_ready(std::uint32_t warp, std::uint32_t lanes) {
    warps_[warp].ready |= lanes;
    if (warps_[warp].ready) ready_warps_ |= 1u << warp;
}

void Block::yield(Fiber& fiber) {
    fiber.thread.budget = kSpinBudget;
    // Everybody has had a turn or two: whatever they wait for may not be in this block. That they met at
    // barriers meanwhile says nothing, for a loop that waits may have one in it.
    if (++yields_ > 2 * live_)
        leave_block(fiber);
    else
        switch_to_next(fiber);
}

// Back to the scheduler, ready to go on.
void Block::leave_block(Fiber& fiber) {
    leaving_ = true;
    last_ = index_of(fiber);
    simcuda_switch_stack(&fiber.stack, scheduler_);
}

void Block::exit(Fiber& fiber) {
    const std::uint32_t warp = fiber.thread.warp;
    warps_[warp].live &= ~(1u << fiber.thread.lane);
    --live_;
    yields_ = 0;
    leave_cluster(fiber);
    if (warps_[warp].waiting) recheck_warp(warp);
    if (active_barriers_) recheck_barriers();
    suspend(fiber);
    __builtin_unreachable();
}

}  // namespace simcuda::exec
