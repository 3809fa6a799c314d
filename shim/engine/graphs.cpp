#include "shim/engine/graphs.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "shim/device/driver_table.h"
#include "shim/engine/arguments.h"

namespace lms::engine {

namespace {

using device::driver;

struct Executable {
    GraphContents contents;
    std::vector<KeptIn> kept;
};

// Never destroyed: other libraries' exit handlers launch graphs too.
struct Registry {
    std::mutex mutex;
    std::unordered_map<CUgraphExec, Executable> executables;
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

void look_at(CUgraph graph, GraphContents& contents, std::vector<Range>& operands);

void look_at_copy(CUgraphNode node, GraphContents& contents, std::vector<Range>& operands) {
    CUDA_MEMCPY3D c{};
    if (driver().cuGraphMemcpyNodeGetParams(node, &c) != CUDA_SUCCESS) return;
    const Box from = source_of(c);
    const Box to = destination_of(c);
    operands.push_back(span_of(from));
    operands.push_back(span_of(to));
    if (c.dstMemoryType != CU_MEMORYTYPE_HOST) contents.copies.push_back({to, from, c.srcMemoryType});
}

void look_at_node(CUgraphNode node, GraphContents& contents, std::vector<Range>& operands) {
    CUgraphNodeType type;
    if (driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return;
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: {
            CUDA_KERNEL_NODE_PARAMS_v2 node_params{};
            if (driver().cuGraphKernelNodeGetParams_v2(node, &node_params) != CUDA_SUCCESS) {
                contents.kernels.opaque = true;
                return;
            }
            const CUfunction function =
                node_params.func ? node_params.func : reinterpret_cast<CUfunction>(node_params.kern);
            add_arguments(contents.kernels, function, node_params.kernelParams, node_params.extra);
            return;
        }
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            look_at_copy(node, contents, operands);
            return;
        case CU_GRAPH_NODE_TYPE_MEMSET: {
            CUDA_MEMSET_NODE_PARAMS s{};
            if (driver().cuGraphMemsetNodeGetParams(node, &s) != CUDA_SUCCESS || s.height == 0) return;
            operands.push_back({s.dst, (s.height - 1) * s.pitch + s.width * s.elementSize});
            return;
        }
        case CU_GRAPH_NODE_TYPE_GRAPH: {
            CUgraph child = nullptr;
            if (driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
                look_at(child, contents, operands);
            return;
        }
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            // Their bodies cannot be read back.
            contents.kernels.opaque = true;
            return;
        default:
            return;
    }
}

void look_at(CUgraph graph, GraphContents& contents, std::vector<Range>& operands) {
    std::size_t count = 0;
    if (driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
    std::vector<CUgraphNode> nodes(count);
    if (driver().cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
    nodes.resize(count);
    for (const CUgraphNode node : nodes) look_at_node(node, contents, operands);
}

template <typename T>
void unite(std::vector<T>& into, const std::vector<T>& from) {
    into.insert(into.end(), from.begin(), from.end());
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
}

void merge(Reach& into, const Reach& from) {
    into.opaque |= from.opaque;
    into.unseen |= from.unseen;
    unite(into.addresses, from.addresses);
    unite(into.owners, from.owners);
}

}  // namespace

GraphHold::GraphHold(CUgraph graph) {
    if (sessions().empty()) {
        // It can name nothing managed, but memory that will hold pointers to what is.
        contents_.kernels.opaque = true;
        return;
    }
    std::vector<Range> operands;
    look_at(graph, contents_, operands);
    status_ = keep(operands, kept_);
}

GraphHold::~GraphHold() {
    let_go(kept_);
}

void GraphHold::give_to(CUgraphExec exec) {
    const std::lock_guard lock(registry().mutex);
    Executable& executable = registry().executables[exec];
    merge(executable.contents.kernels, contents_.kernels);
    executable.contents.copies.insert(executable.contents.copies.end(), contents_.copies.begin(),
                                      contents_.copies.end());
    executable.kept.insert(executable.kept.end(), kept_.begin(), kept_.end());
    kept_.clear();
}

void add_kernel_node(CUgraphExec exec, CUfunction function, void** parameters, void** extra) {
    Reach reach;
    add_arguments(reach, function, parameters, extra);
    const std::lock_guard lock(registry().mutex);
    merge(registry().executables[exec].contents.kernels, reach);
}

void graph_destroyed(CUgraphExec exec) {
    std::vector<KeptIn> kept;
    {
        const std::lock_guard lock(registry().mutex);
        const auto it = registry().executables.find(exec);
        if (it == registry().executables.end()) return;
        kept = std::move(it->second.kept);
        registry().executables.erase(it);
    }
    let_go(kept);
}

void note_graph_copies(CUgraphExec exec) {
    std::vector<GraphCopy> copies;
    {
        const std::lock_guard lock(registry().mutex);
        const auto it = registry().executables.find(exec);
        if (it == registry().executables.end()) return;
        copies = it->second.contents.copies;
    }
    for (const GraphCopy& copy : copies) note_typed(copy.to, copy.from, copy.from_type, Effect::Adds);
}

Reach reach_of(CUgraphExec exec, CUstream stream) {
    Reach reach;
    {
        const std::lock_guard lock(registry().mutex);
        const auto it = registry().executables.find(exec);
        if (it == registry().executables.end()) {
            // Not instantiated through the shim.
            reach.opaque = true;
        } else {
            reach = it->second.contents.kernels;
        }
    }
    reach.stream = stream;
    follow_tables(reach);
    return reach;
}

}  // namespace lms::engine
