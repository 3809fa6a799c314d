// Nodes of graphs: added, and given other parameters in a graph or in an executable one. The driver looks at
// what the operands of copies and sets are mapped to, so they are on the GPU meanwhile.
#include "shim/access/graphs.h"
#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/entry/ranges.h"

namespace lms::entry {
namespace {

using access::contents_of;
using access::GraphContents;
using access::GraphPart;
using access::part_of;
using device::driver;

// Changes a node of an executable graph to what `read` gives.
template <typename Read, typename Call>
CUresult change(CUgraphExec exec, CUgraphNode node, Read&& read, Call&& call) {
    return guarded([&]() -> CUresult {
        GraphPart part(read());
        if (const CUresult error = within_buffers(part.own.operands); error != CUDA_SUCCESS) return error;
        access::GraphHold hold(std::move(part));
        if (hold.status() != CUDA_SUCCESS) return hold.status();
        const CUresult status = session::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS) hold.change(exec, node);
        return status;
    });
}

template <typename Params>
GraphContents kernel_of(const Params* params) {
    return params ? contents_of(access::version_2(*params)) : GraphContents{};
}

template <typename Params>
GraphContents contents_if(const Params* params) {
    return params ? contents_of(*params) : GraphContents{};
}

// Adds a node with these parameters to a graph, or changes one in it.
template <typename Params, typename Call>
CUresult with_operands(const Params* params, Call&& call) {
    return guarded([&] {
        const GraphContents contents = contents_if(params);
        const CUresult error = within_buffers(contents.operands);
        return error == CUDA_SUCCESS ? recorded(contents.operands, call) : error;
    });
}

// The general form may also be of a conditional node, whose bodies are only told here.
template <typename Call>
CUresult add(CUgraphNode* node, const CUgraphNodeParams* params, Call&& call) {
    return guarded_taking([&] {
        const CUresult status = with_operands(params, [&] { return session::call_with_oom_retry(call); });
        if (status == CUDA_SUCCESS && params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            access::note_bodies(*node, {params->conditional.phGraph_out, params->conditional.size});
        return status;
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
    return add(phGraphNode, nodeParams, [&] {
        return driver().cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
    });
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams) {
    return add(phGraphNode, nodeParams, [&] {
        return driver().cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                                          nodeParams);
    });
}

CUresult cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams) {
    return add(phGraphNode, nodeParams, [&] {
        return driver().cuGraphAddNode_v3(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                                          nodeParams);
    });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
    return with_operands(copyParams, [&] {
        return driver().cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies, copyParams,
                                             ctx);
    });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                              CUcontext ctx) {
    return with_operands(memsetParams, [&] {
        return driver().cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, memsetParams,
                                             ctx);
    });
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
    return with_operands(nodeParams, [&] {
        return driver().cuGraphAddBatchMemOpNode(phGraphNode, hGraph, dependencies, numDependencies,
                                                 nodeParams);
    });
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
    return with_operands(nodeParams, [&] { return driver().cuGraphNodeSetParams(hNode, nodeParams); });
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
    return with_operands(nodeParams, [&] { return driver().cuGraphNodeSetParams_v2(hNode, nodeParams); });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
    return with_operands(nodeParams, [&] { return driver().cuGraphMemcpyNodeSetParams(hNode, nodeParams); });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
    return with_operands(nodeParams, [&] { return driver().cuGraphMemsetNodeSetParams(hNode, nodeParams); });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
    return with_operands(nodeParams,
                         [&] { return driver().cuGraphBatchMemOpNodeSetParams(hNode, nodeParams); });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
    return change(
        hGraphExec, hNode, [&] { return nodeParams ? part_of(*nodeParams) : GraphPart(); },
        [&] { return driver().cuGraphExecNodeSetParams(hGraphExec, hNode, nodeParams); });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
    return change(
        hGraphExec, hNode, [&] { return kernel_of(nodeParams); },
        [&] { return driver().cuGraphExecKernelNodeSetParams(hGraphExec, hNode, nodeParams); });
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
    return change(
        hGraphExec, hNode, [&] { return kernel_of(nodeParams); },
        [&] { return driver().cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, nodeParams); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
    return change(
        hGraphExec, hNode, [&] { return contents_if(copyParams); },
        [&] { return driver().cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, copyParams, ctx); });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
    return change(
        hGraphExec, hNode, [&] { return contents_if(memsetParams); },
        [&] { return driver().cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, memsetParams, ctx); });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
    return change(
        hGraphExec, hNode, [&] { return contents_if(nodeParams); },
        [&] { return driver().cuGraphExecBatchMemOpNodeSetParams(hGraphExec, hNode, nodeParams); });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
    return change(
        hGraphExec, hNode, [&] { return part_of(childGraph); },
        [&] { return driver().cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph); });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
    return guarded([&] {
        const CUresult status = driver().cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled);
        if (status == CUDA_SUCCESS) lms::access::node_enabled(hGraphExec, hNode, isEnabled != 0);
        return status;
    });
}
