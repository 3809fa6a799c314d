// What the calls on graphs refuse, and with which error.
#include "tests/simrt/runtime.h"

namespace {

using namespace sim;

cudaGraph_t create_graph() {
    cudaGraph_t graph = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphCreate, &graph, 0);
    return graph;
}

cudaGraphNode_t add_empty(cudaGraph_t graph) {
    cudaGraphNode_t node = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphAddEmptyNode, &node, graph, nullptr, 0);
    return node;
}

cudaGraphExec_t instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphInstantiate, &exec, graph, 0);
    return exec;
}

SIM_TEST("graph: null arrays and parameters are refused", {}) {
    const Gpu gpu;
    const cudaGraph_t graph = create_graph();
    const cudaGraphNode_t a = add_empty(graph);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddDependencies, graph, nullptr, &a, nullptr, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddDependencies, graph, &a, nullptr, nullptr, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphRemoveDependencies, graph, nullptr, &a, nullptr, 1);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphRemoveDependencies, graph, &a, nullptr, nullptr, 1);
    RT_ANSWERS(cudaSuccess, cudaGraphAddDependencies, graph, nullptr, nullptr, nullptr, 0);
    RT_ANSWERS(cudaSuccess, cudaGraphRemoveDependencies, graph, nullptr, nullptr, nullptr, 0);

    const cudaHostNodeParams host{[](void*) {}, nullptr};
    cudaGraphNode_t node = nullptr;
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddHostNode, &node, graph, nullptr, 0, nullptr);
    RT_ANSWERS(cudaSuccess, cudaGraphAddHostNode, &node, graph, nullptr, 0, &host);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphHostNodeSetParams, node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphHostNodeGetParams, node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecHostNodeSetParams, instantiate(graph), node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphAddNode, &node, graph, nullptr, nullptr, 0, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphNodeSetParams, node, nullptr);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecNodeSetParams, instantiate(graph), node, nullptr);
}

}  // namespace
