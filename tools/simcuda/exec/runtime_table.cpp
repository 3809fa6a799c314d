// The table of functions translated kernels call.
#include <chrono>

#include "tools/simcuda/exec/block.h"
#include "tools/simcuda/exec/device_functions.h"

namespace simcuda::exec {
namespace {

// Every thread that may wait is a fiber, and a fiber begins with its sc_thread.
Fiber& fiber_of(sc_thread* thread) {
    return *reinterpret_cast<Fiber*>(thread);
}

}  // namespace

const sc_runtime kRuntime = {
    .barrier = [](sc_thread* t, u32 id, u32 threads, sc_barrier_op operation,
                  u32 value) { return Block::of(t).barrier(fiber_of(t), id, threads, operation, value); },
    .arrive = [](sc_thread* t, u32 id, u32 threads) { Block::of(t).arrive(fiber_of(t), id, threads); },
    .warp =
        [](sc_thread* t, sc_warp_op operation, u32 mask, u64 value, u32 source) {
            return Block::of(t).warp_operation(fiber_of(t), operation, mask, value, source);
        },
    .converge = [](sc_thread* t) { return Block::of(t).converge(fiber_of(t)); },
    .yield = [](sc_thread* t) { Block::of(t).yield(fiber_of(t)); },
    .arrive_in_cluster = [](sc_thread* t) { Block::of(t).arrive_in_cluster(fiber_of(t)); },
    .wait_for_cluster = [](sc_thread* t) { Block::of(t).wait_for_cluster(fiber_of(t)); },
    .let_dependents_go = [](sc_thread* t) { Block::of(t).let_dependents_go(t); },
    .wait_for_grids = [](sc_thread* t) { Block::of(t).wait_for_grids(fiber_of(t)); },
    .exit = [](sc_thread* t) { Block::of(t).exit(fiber_of(t)); },
    .trap = [](sc_thread*) { leave(Outcome::Trap); },
    .stack_overflow = [](sc_thread*) { leave(Outcome::IllegalAddress); },
    .assert_fail = device_assert_fail,
    .print = device_print,
    .allocate = device_allocate,
    .release = device_release,
    .clock_ns = []() -> u64 {
        return static_cast<u64>(std::chrono::system_clock::now().time_since_epoch().count());
    },
    .call = device_call,
    .fetch = device_fetch,
    .gather = device_gather,
    .surface = device_surface,
    .query = device_query,
};

}  // namespace simcuda::exec
