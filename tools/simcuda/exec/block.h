// One block in flight: its shared memory, its threads and the scheduler that runs them by turns on one host
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "tools/simcuda/exec/abi.h"
#include "tools/simcuda/exec/cluster.h"
#include "tools/simcuda/exec/faults.h"
#include "tools/simcuda/exec/fiber.h"
#include "tools/simcuda/exec/tally.h"
#include "tools/simcuda/ptx/native.h"

namespace simcuda::exec {

inline constexpr std::uint32_t kWarpSize = 32;
inline constexpr std::uint32_t kMaxWarps = 32;
inline constexpr std::uint32_t kMaxThreads = kWarpSize * kMaxWarps;
inline constexpr std::uint32_t kBarriers = 16;
inline constexpr std::uint32_t kSpinBudget = 32;  // passes of a waiting loop between two yields
// Barriers passed before others have a turn: a loop may wait at them with nothing else to tell it by.
inline constexpr std::uint32_t kMeetings = 1024;

class Block;
class Children;

template <typename F>
void for_each_lane(std::uint32_t lanes, F&& visit) {
    // Nearly always all of a warp's: the compiler knows what to do with that.
    if (lanes == ~0u)
        for (std::uint32_t lane = 0; lane < kWarpSize; ++lane) visit(lane);
    else
        for (std::uint32_t rest = lanes; rest; rest &= rest - 1)
            visit(static_cast<std::uint32_t>(__builtin_ctz(rest)));
}

// A warp operation of these lanes: their values in, what they get out.
void exchange(sc_warp_op operation, std::uint32_t lanes, std::uint64_t* values, const std::uint32_t* sources);

// A CUDA thread. `thread` comes first: translated code knows a fiber by the address of its sc_thread.
struct alignas(64) Fiber {
    sc_thread thread;
    StackPointer stack;
    // What it waits for in its warp, and what it gets.
    sc_warp_op operation;
    std::uint32_t mask;
    std::uint32_t source;
    std::uint64_t value;
    std::uint64_t result;
    // At the barrier of its cluster: it has come, in this phase, and not waited yet.
    bool arrived;
    std::uint64_t phase;
};

// Lanes are in exactly one of these sets, or were never there.
struct Warp {
    std::uint32_t live = 0;        // have not ended
    std::uint32_t ready = 0;       // may run
    std::uint32_t waiting = 0;     // at a warp operation
    std::uint32_t converging = 0;  // at a point where a warp comes together by itself
};

struct Barrier {
    std::uint32_t threads = 0;  // expected; 0: all that are live
    std::uint32_t count = 0;    // arrived
    std::uint32_t arrived[kMaxWarps] = {};
    std::uint32_t waiting[kMaxWarps] = {};
    sc_barrier_op operation = SC_BARRIER_SYNC;
    std::uint32_t yes = 0;    // arrivals with a true predicate
    std::uint32_t votes = 0;  // arrivals with any
};

class Block {
  public:
    enum class State {
        Done,     // all threads have ended
        Stalled,  // threads go round, perhaps waiting for something outside the block
        Waiting,  // none can run before the grids that theirs comes behind have ended
        LetGo,    // one has, for the first time of any, let go what waits for its grid; it can go on at once
        Stuck,    // no thread can ever run again
    };

    // Room for `threads` stacks of `stack_bytes` and a shared window; null when memory is short.
    static std::unique_ptr<Block> create(std::uint32_t threads, std::uint64_t stack_bytes);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    bool fits(std::uint32_t threads, std::uint64_t stack_bytes) const {
        return threads <= stack_count_ && stack_bytes <= stack_bytes_;
    }

    // Makes ready to run the block that `abi` (but for `shared` and `peers`) describes, as one of `cluster`
    // if there is one, which must outlive it; its shared memory is then there from its first run() until it
    // is done. `behind` is Launch::behind. False when memory is short.
    bool start(const sc_block& abi, const ptx::NativeKernel& kernel, void* entry, Guard& guard,
               Children& children, Cluster* cluster, const Flags& behind);

    // Runs until the block is done or cannot go on, or has something to tell.
    State run();

    sc_tally& tally() { return tally_; }  // of what start() will run
    Guard& guard() { return *guard_; }
    Children& children() { return *children_; }
    Cluster& cluster() { return *cluster_; }
    bool has_let_go() const { return has_let_go_; }
    // Other blocks of its cluster can no longer reach its shared memory.
    void close_shared();
    static Block& of(const sc_thread* thread) { return *static_cast<Block*>(thread->block->executor); }

    // Called by translated code on any stack.
    void let_dependents_go(const sc_thread* thread);

    // Called on fibers, by translated code.
    std::uint32_t barrier(Fiber& fiber, std::uint32_t id, std::uint32_t threads, sc_barrier_op operation,
                          std::uint32_t value);
    void arrive(Fiber& fiber, std::uint32_t id, std::uint32_t threads);
    std::uint64_t warp_operation(Fiber& fiber, sc_warp_op operation, std::uint32_t mask, std::uint64_t value,
                                 std::uint32_t source);
    std::uint32_t converge(Fiber& fiber);
    void yield(Fiber& fiber);
    void arrive_in_cluster(Fiber& fiber);
    void wait_for_cluster(Fiber& fiber);
    void wait_for_grids(Fiber& fiber);
    void leave_cluster_barrier();
    [[noreturn]] void exit(Fiber& fiber);

  private:
    Block() = default;
    bool map(std::uint32_t threads, std::uint64_t stack_bytes);
    bool provide_shared(std::uint64_t bytes);
    std::uint64_t stack_top(std::uint32_t index) const;
    std::uint64_t stack_limit() const;  // of the first
    void start_on_one_stack(void (*run_all)(void*));
    void leave_stack();
    void run_loop();
    void start_fibers();

    // steps.cpp: where all threads are in steps, and the lanes of a warp that are at one place or another
    struct Places {
        std::uint32_t live = 0, at_barrier = 0, at_warp = 0, at_join = 0, at_grids = 0;
    };
    void start_steps();
    void run_steps();
    void step_warp(std::uint32_t warp);
    Places places_of(std::uint32_t warp) const;
    bool meet(std::uint32_t warp);
    std::uint32_t at_operation_of(std::uint32_t warp, std::uint32_t lane, std::uint32_t among) const;
    void complete_step(std::uint32_t warp, std::uint32_t lanes);
    void furthest_go_on(std::uint32_t warp, std::uint32_t among);
    void go_on(std::uint32_t warp, std::uint32_t lanes);
    void await_grids();

    // The scheduler. `suspend` takes the running fiber out of the ready set and returns when somebody has put
    // it back and its turn has come.
    void suspend(Fiber& fiber);
    void switch_to_next(Fiber& from);
    void leave_block(Fiber& fiber);
    Fiber* next_ready(std::uint32_t after) const;
    void make_ready(std::uint32_t warp, std::uint32_t lanes);

    // Lanes that come together by themselves.
    std::uint32_t furthest_inside(std::uint32_t warp, std::uint32_t among) const;
    void release(std::uint32_t warp, std::uint32_t lanes);
    bool settle(std::uint32_t warp);
    bool release_converged();
    Fiber& lane(std::uint32_t warp, std::uint32_t index) const { return fibers_[warp * kWarpSize + index]; }
    std::uint32_t index_of(const Fiber& fiber) const {
        return static_cast<std::uint32_t>(&fiber - fibers_.get());
    }

    // barrier.cpp
    bool join(Barrier& barrier, const Fiber& fiber, std::uint32_t threads);
    bool is_complete(const Barrier& barrier) const;
    std::uint32_t complete(Barrier& barrier, std::uint32_t id);
    void recheck_barriers();

    // cluster.cpp
    void leave_cluster(const Fiber& fiber);
    bool cluster_may_go_on();

    // dependents.cpp
    void stop_waiting_for_grids();

    // warp.cpp
    bool try_complete(std::uint32_t warp, const Fiber& first, std::uint32_t present);
    void complete(std::uint32_t warp, std::uint32_t lanes);
    void recheck_warp(std::uint32_t warp);
    void force(std::uint32_t warp, std::uint32_t among);
    bool force_warps();

    sc_tally tally_{};  // comes first: translated code that counts finds it by sc_block::executor
    sc_block abi_{};
    Guard* guard_ = nullptr;
    Children* children_ = nullptr;
    Cluster alone_;  // the cluster of one that was launched without
    Cluster* cluster_ = nullptr;
    std::uint64_t shared_to_come_ = 0;  // bytes, provided when it first runs
    std::uint32_t waiting_for_cluster_ = 0;
    std::array<std::uint32_t, kMaxWarps> in_cluster_barrier_{};  // lanes
    const Flags* behind_ = nullptr;
    bool has_let_go_ = false;
    bool tells_that_ = false;                          // when it is next left
    std::uint32_t waiting_for_grids_ = 0;              // threads; in steps 1 if any
    std::array<std::uint32_t, kMaxWarps> at_grids_{};  // lanes, of fibers
    void* entry_ = nullptr;
    ptx::NativeKernel::Mode mode_ = ptx::NativeKernel::Mode::Loop;  // but for fibers, all on the first stack
    std::uint64_t kept_bytes_ = 0;
    std::unique_ptr<sc_steps> steps_;                   // if it ever ran any
    std::array<std::uint32_t, kMaxWarps> common_at_{};  // where all of a warp are in steps, or SC_APART
    std::uint32_t threads_ = 0;
    std::uint32_t live_ = 0;
    std::uint32_t ready_warps_ = 0;  // that have a ready lane
    std::uint32_t yields_ = 0;       // since the block was last left, or a thread of it ended
    std::uint32_t meetings_ = 0;     // barriers complete since it was last left
    bool leaving_ = false;           // others have a turn now
    std::uint32_t last_ = 0;         // index of the fiber the scheduler was entered from
    std::uint32_t active_barriers_ = 0;
    std::array<Warp, kMaxWarps> warps_{};
    std::array<Barrier, kBarriers> barriers_{};
    StackPointer scheduler_ = nullptr;
    std::unique_ptr<Fiber[]> fibers_;

    std::uint8_t* stacks_ = nullptr;
    std::uint64_t stacks_bytes_ = 0;  // the whole mapping, with a guard page at its low end
    std::uint32_t stack_count_ = 0;
    std::uint64_t stack_bytes_ = 0;
    std::uint8_t* window_ = nullptr;  // addresses enough that none of 32 bits leaves it
    std::uint8_t* shared_ = nullptr;  // shared address 0, amid them
    std::uint64_t shared_open_ = 0;   // accessible bytes from there
};

// The next lane of the warp is the usual successor, and this the path every barrier and shuffle takes.
inline void Block::suspend(Fiber& fiber) {
    const std::uint32_t index = fiber.thread.lane;
    Warp& warp = warps_[fiber.thread.warp];
    const std::uint32_t ready = warp.ready & ~(1u << index);
    warp.ready = ready;
    if (const std::uint32_t behind = ready & (~1u << index)) {
        Fiber& next = *(&fiber + (static_cast<std::uint32_t>(__builtin_ctz(behind)) - index));
        simcuda_switch_stack(&fiber.stack, next.stack);
        return;
    }
    if (!ready && settle(fiber.thread.warp)) {
        // One after the other from the first: what one of them reads others have no turn to change before the
        // next does.
        const auto first = static_cast<std::uint32_t>(__builtin_ctz(warp.ready));
        if (first != index) simcuda_switch_stack(&fiber.stack, lane(fiber.thread.warp, first).stack);
        return;
    }
    if (!ready) ready_warps_ &= ~(1u << fiber.thread.warp);
    switch_to_next(fiber);
}

extern const sc_runtime kRuntime;

}  // namespace simcuda::exec
