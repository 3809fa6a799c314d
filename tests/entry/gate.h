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
    // The calling thread's default stream, by the form for which handle 0 is that.
    void hold_up_own() { OK(cuLaunchHostFunc_ptsz, nullptr, wait, this); }
    // By a function of CUDA 13.1.
    void hold_up_by(const char* launch_v2, CUstream stream) {
        using Launch = CUresult (*)(CUstream, CUhostFn, void*, unsigned);
        EXPECT(reinterpret_cast<Launch>(function(launch_v2))(stream, wait, this, 0) == CUDA_SUCCESS);
    }
    void hold_up_by_callback(CUstream stream) { OK(cuStreamAddCallback, stream, called, this, 0); }
    void open() { is_open_ = true; }

  private:
    static void wait(void* gate) {
        while (!static_cast<Gate*>(gate)->is_open_.load()) std::this_thread::yield();
    }
    static void CUDA_CB called(CUstream, CUresult, void* gate) { wait(gate); }

    std::atomic<bool> is_open_{false};
};

// As much memory as the GPU holds, all of it in use by work in `stream` that waits for the gate.
inline void hold_all(Gate& gate, CUstream stream) {
    std::vector<CUdeviceptr> all(7);
    for (CUdeviceptr& each : all) {
        OK(cuMemAlloc_v2, &each, kBuffer);
        OK(cuMemsetD8Async, each, 3, kBuffer, stream);
    }
    OK(cuStreamSynchronize, stream);
    gate.hold_up(stream);
    for (const CUdeviceptr each : all) OK(cuMemsetD8Async, each, 4, kBuffer, stream);
}

}  // namespace rig
