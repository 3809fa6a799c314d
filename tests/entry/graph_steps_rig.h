// Graphs that name more than the GPU of the rig holds. What tells that their nodes are launched one by one is
// a GPU whose evicted memory cannot be used in place: as a whole such a graph is refused there.
#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

namespace rig {

inline constexpr unsigned kBuffers = 9;  // buffers that are more than the GPU holds

inline bool in_place_can_be() {
    return std::strcmp(std::getenv("SIMCUDA_HOST_VMM"), "1") == 0;
}

struct Many {
    Many() {
        for (unsigned i = 0; i < kBuffers; ++i) each.push_back(std::make_unique<Buffer>(kBuffer, i));
    }
    const Buffer& operator[](std::size_t i) const { return *each[i]; }
    // Whether each of them has become so much more.
    bool rose(unsigned by) const {
        for (unsigned i = 0; i < kBuffers; ++i) {
            if (each[i]->read() != plus(pattern(kBuffer, i), by)) return false;
        }
        return true;
    }
    std::vector<std::unique_ptr<Buffer>> each;
};

// A graph in which each of them becomes more.
struct Rise {
    explicit Rise(const Many& many, unsigned by = 1) : graph(new_graph()) {
        for (const auto& buffer : many.each) {
            adds.push_back(std::make_unique<Add>(buffer->at(), buffer->at(), by));
            nodes.push_back(add_kernel(graph, adds.back()->params, nodes.empty() ? nullptr : nodes.back()));
        }
    }
    CUgraph graph;
    std::vector<std::unique_ptr<Add>> adds;
    std::vector<CUgraphNode> nodes;
};

inline void comes_after(CUgraph graph, CUgraphNode node, CUgraphNode before) {
    OK(cuGraphAddDependencies, graph, &before, &node, 1);
}

// Whether it can be launched, as a whole.
inline void launch_whole(CUgraphExec exec, CUstream stream) {
    if (in_place_can_be()) {
        OK(cuGraphLaunch, exec, stream);
    } else {
        FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch, exec, stream);
    }
}

// Long enough for what does not wait to be over.
inline bool stays_busy(CUstream stream) {
    for (int i = 0; i < 50; ++i) {
        if (CU(cuStreamQuery)(stream) != CUDA_ERROR_NOT_READY) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

// Where evicted memory cannot be used in place, a launch waits until what is held up has run.
template <typename Work>
inline void while_held_up(Gate& gate, const Gpu& gpu, Work work) {
    if (in_place_can_be()) {
        work();
        return gate.open();
    }
    std::thread thread([&] {
        OK(cuCtxSetCurrent, gpu.context);
        work();
    });
    gate.open();
    thread.join();
}

}  // namespace rig
