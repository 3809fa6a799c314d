// Holds work up.
#pragma once

#include <atomic>
#include <thread>

#include "tests/entry/rig.h"

namespace rig {

// Holds up what follows it until it is opened; outlives what it holds up.
class Gate {
  public:
    // As a node of `graph`.
    CUgraphNode add_to(CUgraph graph) {
        CUDA_HOST_NODE_PARAMS params{wait, this};
        CUgraphNode node = nullptr;
        OK(cuGraphAddHostNode, &node, graph, nullptr, 0, &params);
        return node;
    }
    void hold_up(CUstream stream) { OK(cuLaunchHostFunc, stream, wait, this); }
    void open() { is_open_ = true; }

  private:
    static void wait(void* gate) {
        while (!static_cast<Gate*>(gate)->is_open_.load()) std::this_thread::yield();
    }

    std::atomic<bool> is_open_{false};
};

}  // namespace rig
