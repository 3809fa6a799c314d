// Barriers of a cluster: barrier.cluster.arrive and barrier.cluster.wait.
#include "tools/simcuda/exec/cluster.h"

#include "tools/simcuda/exec/block.h"

namespace simcuda::exec {

void Cluster::add(Block& block, std::uint64_t shared_address, std::uint32_t threads) {
    blocks[size] = &block;
    shared[size] = shared_address;
    ++size;
    ++running;
    live += threads;
}

void Cluster::recheck() {
    if (arrived == 0 || arrived < live) return;
    arrived = 0;
    ++phase;
    met = true;
    idle_turns = 0;
    for (std::uint32_t rank = 0; rank < size; ++rank) blocks[rank]->leave_cluster_barrier();
}

// To arrive again before one has waited is undefined; here it ends the kernel, as does waiting without.
void Block::arrive_in_cluster(Fiber& fiber) {
    if (fiber.arrived) leave(Outcome::Trap);
    fiber.arrived = true;
    fiber.phase = cluster_->phase;
    ++cluster_->arrived;
    cluster_->recheck();
}

void Block::wait_for_cluster(Fiber& fiber) {
    if (!fiber.arrived) leave(Outcome::Trap);
    fiber.arrived = false;
    if (fiber.phase != cluster_->phase) return;
    in_cluster_barrier_[fiber.thread.warp] |= 1u << fiber.thread.lane;
    ++waiting_for_cluster_;
    suspend(fiber);
}

void Block::leave_cluster_barrier() {
    if (!waiting_for_cluster_) return;
    for (std::uint32_t w = 0; w * kWarpSize < threads_; ++w) {
        if (in_cluster_barrier_[w]) make_ready(w, in_cluster_barrier_[w]);
        in_cluster_barrier_[w] = 0;
    }
    waiting_for_cluster_ = 0;
}

// A thread has ended: it is not waited for.
void Block::leave_cluster(const Fiber& fiber) {
    --cluster_->live;
    if (fiber.arrived && fiber.phase == cluster_->phase) --cluster_->arrived;
    cluster_->recheck();
}

// Whether the threads here that wait for other blocks of the cluster may still be let go on by them.
bool Block::cluster_may_go_on() {
    if (!waiting_for_cluster_) return false;
    return ++cluster_->idle_turns <= 2 * cluster_->running;
}

}  // namespace simcuda::exec
