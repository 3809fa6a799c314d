#include "shim/engine/graph_contents.h"

#include <mutex>
#include <optional>
#include <unordered_map>

#include "shim/device/driver_table.h"
#include "shim/engine/arguments.h"
#include "shim/engine/memory_operations.h"

namespace lms::engine {

namespace {

using device::driver;

// By conditional node. Never destroyed: other libraries' exit handlers build graphs too.
struct Bodies {
    std::mutex mutex;
    std::unordered_map<CUgraphNode, std::vector<CUgraph>> of;
};

Bodies& bodies() {
    static Bodies& instance = *new Bodies;
    return instance;
}

GraphContents unreadable() {
    GraphContents contents;
    contents.kernels.opaque = true;
    return contents;
}

std::optional<std::vector<CUgraphNode>> nodes_of(CUgraph graph) {
    std::size_t count = 0;
    if (driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return std::nullopt;
    std::vector<CUgraphNode> nodes(count);
    if (driver().cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return std::nullopt;
    nodes.resize(count);
    return nodes;
}

// Kernels on the GPU may give it any parameters.
bool device_updatable(CUgraphNode node) {
    CUlaunchAttributeValue value{};
    return driver().cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                                                  &value) == CUDA_SUCCESS &&
           value.deviceUpdatableKernelNode.deviceUpdatable != 0;
}

GraphContents contents_of_kernel_node(CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    if (driver().cuGraphKernelNodeGetParams_v2(node, &kernel) != CUDA_SUCCESS) return unreadable();
    const CUfunction function = kernel.func ? kernel.func : reinterpret_cast<CUfunction>(kernel.kern);
    GraphContents contents = contents_of_kernel(function, kernel.kernelParams, kernel.extra);
    contents.kernels.opaque |= device_updatable(node);
    return contents;
}

GraphContents contents_of_bodies(CUgraphNode node) {
    std::vector<CUgraph> graphs;
    {
        const std::lock_guard lock(bodies().mutex);
        const auto it = bodies().of.find(node);
        if (it == bodies().of.end()) return unreadable();
        graphs = it->second;
    }
    GraphContents contents;
    for (const CUgraph graph : graphs) merge(contents, contents_of(graph));
    return contents;
}

GraphContents contents_of_node(CUgraphNode node) {
    CUgraphNodeType type;
    if (driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return unreadable();
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return contents_of_kernel_node(node);
        case CU_GRAPH_NODE_TYPE_MEMCPY: {
            CUDA_MEMCPY3D copy{};
            if (driver().cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS) return unreadable();
            return contents_of(copy);
        }
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            CUDA_MEMSET_NODE_PARAMS set{};
            if (driver().cuGraphMemsetNodeGetParams(node, &set) != CUDA_SUCCESS) return unreadable();
            return contents_of(set);
        }
        case CU_GRAPH_NODE_TYPE_GRAPH: {
            CUgraph child = nullptr;
            if (driver().cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS) return unreadable();
            return contents_of(child);
        }
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
            CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
            if (driver().cuGraphBatchMemOpNodeGetParams(node, &batch) != CUDA_SUCCESS) return unreadable();
            return contents_of(std::span<const CUstreamBatchMemOpParams>(batch.paramArray, batch.count));
        }
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return contents_of_bodies(node);
        default:
            return {};
    }
}

template <typename Values>
void append(Values& into, const Values& from) {
    into.insert(into.end(), from.begin(), from.end());
}

}  // namespace

GraphContents contents_of(CUgraph graph) {
    // Nothing managed can be named yet, but memory that will hold pointers to what is.
    if (sessions().empty()) return unreadable();
    const auto nodes = nodes_of(graph);
    if (!nodes) return unreadable();
    GraphContents contents;
    for (const CUgraphNode node : *nodes) merge(contents, contents_of_node(node));
    return contents;
}

GraphContents contents_of(const CUDA_MEMCPY3D& copy) {
    if (sessions().empty()) return {};
    const Box from = source_of(copy);
    const Box to = destination_of(copy);
    GraphContents contents;
    contents.operands = {span_of(from), span_of(to)};
    if (copy.dstMemoryType != CU_MEMORYTYPE_HOST) contents.copies.push_back({to, from, copy.srcMemoryType});
    return contents;
}

GraphContents contents_of(const CUDA_MEMSET_NODE_PARAMS& set) {
    if (sessions().empty() || set.height == 0) return {};
    GraphContents contents;
    contents.operands = {{set.dst, (set.height - 1) * set.pitch + set.width * set.elementSize}};
    return contents;
}

GraphContents contents_of(std::span<const CUstreamBatchMemOpParams> operations) {
    if (sessions().empty()) return {};
    GraphContents contents;
    contents.operands = words_of(operations);
    return contents;
}

GraphContents contents_of_kernel(CUfunction function, void** parameters, void** extra) {
    if (sessions().empty()) return unreadable();
    GraphContents contents;
    add_arguments(contents.kernels, function, parameters, extra);
    return contents;
}

GraphContents contents_of(const CUgraphNodeParams& node) {
    switch (node.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return contents_of_kernel(
                node.kernel.func ? node.kernel.func : reinterpret_cast<CUfunction>(node.kernel.kern),
                node.kernel.kernelParams, node.kernel.extra);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return contents_of(node.memcpy.copyParams);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return contents_of(CUDA_MEMSET_NODE_PARAMS{node.memset.dst, node.memset.pitch, node.memset.value,
                                                       node.memset.elementSize, node.memset.width,
                                                       node.memset.height});
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return contents_of(node.graph.graph);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return contents_of(
                std::span<const CUstreamBatchMemOpParams>(node.memOp.paramArray, node.memOp.count));
        default:
            return {};
    }
}

void merge(GraphContents& into, const GraphContents& from) {
    into.kernels.opaque |= from.kernels.opaque;
    into.kernels.unseen |= from.kernels.unseen;
    append(into.kernels.addresses, from.kernels.addresses);
    append(into.kernels.owners, from.kernels.owners);
    append(into.operands, from.operands);
    append(into.copies, from.copies);
}

void note_bodies(CUgraphNode node, std::span<const CUgraph> graphs) {
    const std::lock_guard lock(bodies().mutex);
    bodies().of[node].assign(graphs.begin(), graphs.end());
}

void forget_bodies(CUgraph graph) {
    {
        const std::lock_guard lock(bodies().mutex);
        if (bodies().of.empty()) return;
    }
    const auto nodes = nodes_of(graph);
    if (!nodes) return;
    std::vector<CUgraph> gone;
    {
        const std::lock_guard lock(bodies().mutex);
        for (const CUgraphNode node : *nodes) {
            const auto it = bodies().of.find(node);
            if (it == bodies().of.end()) continue;
            gone.insert(gone.end(), it->second.begin(), it->second.end());
            bodies().of.erase(it);
        }
    }
    for (const CUgraph body : gone) forget_bodies(body);
}

}  // namespace lms::engine
