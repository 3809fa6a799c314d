// Graphs made through the runtime, for tests of what may become of them.
#pragma once

#include "tests/simrt/runtime.h"

namespace sim {

inline cudaGraph_t create_graph() {
    cudaGraph_t graph = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphCreate, &graph, 0);
    return graph;
}

inline cudaGraphNode_t add_empty(cudaGraph_t graph) {
    cudaGraphNode_t node = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphAddEmptyNode, &node, graph, nullptr, 0);
    return node;
}

inline cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphInstantiate, &exec, graph, 0);
    return exec;
}

struct Memory {
    explicit Memory(std::size_t bytes = 4096) {
        RT_ANSWERS(cudaSuccess, cudaMalloc, reinterpret_cast<void**>(&device), bytes);
        RT_ANSWERS(cudaSuccess, cudaMalloc, reinterpret_cast<void**>(&other), bytes);
    }
    std::uint8_t *device = nullptr, *other = nullptr;
    std::uint8_t host[4096] = {};
};

inline cudaGraph_t filling(const cudaMemsetParams& fill, cudaGraphNode_t* node) {
    const cudaGraph_t graph = create_graph();
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemsetNode, node, graph, nullptr, 0, &fill);
    return graph;
}

}  // namespace sim
