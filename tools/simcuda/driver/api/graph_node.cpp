// cuGraphAdd*Node and what each node holds.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/graph/graph_params.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

// `make` is given the current context and answers the work of the new node.
template <class Make>
CUresult add(Entry entry, CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
             Make make, const CUgraphEdgeData* edges = nullptr) {
    return call(entry, [&](Context& context) {
        require(out != nullptr && (dependencies != nullptr || count == 0), CUDA_ERROR_INVALID_VALUE);
        *out = checked_graph(graph)->add(make(context), {dependencies, count}, edges).handle();
        return CUDA_SUCCESS;
    });
}

// `get` is given the work of a node of this type.
template <class Work, class Out, class Get>
CUresult ask(Entry entry, CUgraphNode node, Out* out, Get get) {
    return call(entry, [&] {
        require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
        *out = get(checked_node(node)->as<Work>());
        return CUDA_SUCCESS;
    });
}

// Gives a node other work of its type.
template <class Work, class Make>
CUresult set(Entry entry, CUgraphNode node, Make make) {
    return call(entry, [&](Context& context) {
        const auto found = checked_node(node);
        found->as<Work>() = make(context);
        return CUDA_SUCCESS;
    });
}

template <class T>
const T& given_node(const T* parameters) {
    require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
    return *parameters;
}

CUDA_KERNEL_NODE_PARAMS_v2 version_2(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
    return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
            p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

CUDA_KERNEL_NODE_PARAMS_v1 version_1(const CUDA_KERNEL_NODE_PARAMS_v2& p) {
    return {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
            p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
}

// What a kernel's node can have.
void check_attribute(CUkernelNodeAttrID which) {
    switch (which) {
        case CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE:
        case CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_KERNEL_NODE_ATTRIBUTE_PRIORITY:
        case CU_KERNEL_NODE_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_KERNEL_NODE_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_KERNEL_NODE_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_KERNEL_NODE_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        case CU_KERNEL_NODE_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

KernelNode with_attributes_of(const KernelNode& before, KernelNode node) {
    node.attributes = before.attributes;
    return node;
}

CUresult set_kernel(Entry entry, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
    return call(entry, [&](Context& context) {
        auto& node = checked_node(handle)->as<KernelNode>();
        node = with_attributes_of(node, kernel_work(context, parameters));
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_API cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                           std::size_t count, CUgraphNodeParams* parameters) {
    return add(Entry::cuGraphAddNode, node, graph, dependencies, count, [&](Context& context) {
        given_node(parameters);
        return node_work(context, *parameters);
    });
}

SIMCUDA_API cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              const CUgraphEdgeData* edges, std::size_t count,
                              CUgraphNodeParams* parameters) {
    return add(
        Entry::cuGraphAddNode_v2, node, graph, dependencies, count,
        [&](Context& context) {
            given_node(parameters);
            return node_work(context, *parameters);
        },
        edges);
}

SIMCUDA_API cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* parameters) {
    return call(Entry::cuGraphNodeSetParams, [&](Context& context) {
        given_node(parameters);
        const auto node = checked_node(handle);
        require(type_of(node->work) == parameters->type && can_be_set(parameters->type),
                CUDA_ERROR_INVALID_VALUE);
        node->work = node_work(context, *parameters);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                std::size_t count) {
    return add(Entry::cuGraphAddEmptyNode, node, graph, dependencies, count,
               [](Context&) { return EmptyNode{}; });
}

// Kernels

SIMCUDA_API cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 std::size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
    return add(Entry::cuGraphAddKernelNode, node, graph, dependencies, count,
               [&](Context& context) { return kernel_work(context, version_2(given_node(parameters))); });
}

SIMCUDA_API cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    std::size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
    return add(Entry::cuGraphAddKernelNode_v2, node, graph, dependencies, count,
               [&](Context& context) { return kernel_work(context, given_node(parameters)); });
}

SIMCUDA_API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
    return ask<KernelNode>(Entry::cuGraphKernelNodeGetParams, node, parameters, [](KernelNode& kernel) {
        CUDA_KERNEL_NODE_PARAMS_v2 all = kernel_parameters(kernel);
        all.func = kernel.function;  // version 1 has no place for a CUkernel
        return version_1(all);
    });
}

SIMCUDA_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
    return ask<KernelNode>(Entry::cuGraphKernelNodeGetParams_v2, node, parameters, kernel_parameters);
}

SIMCUDA_API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    return set_kernel(Entry::cuGraphKernelNodeSetParams, node, version_2(*parameters));
}

SIMCUDA_API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
    if (!parameters) return CUDA_ERROR_INVALID_VALUE;
    return set_kernel(Entry::cuGraphKernelNodeSetParams_v2, node, *parameters);
}

SIMCUDA_API cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                          CUkernelNodeAttrValue* value) {
    return ask<KernelNode>(Entry::cuGraphKernelNodeGetAttribute, node, value, [&](const KernelNode& kernel) {
        check_attribute(attribute);
        auto it = kernel.attributes.find(attribute);
        return it == kernel.attributes.end() ? CUkernelNodeAttrValue{} : it->second;
    });
}

SIMCUDA_API cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                          const CUkernelNodeAttrValue* value) {
    return call(Entry::cuGraphKernelNodeSetAttribute, [&] {
        check_attribute(attribute);
        if (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
            check_access_window(given_node(value).accessPolicyWindow);
        checked_node(node)->as<KernelNode>().attributes[attribute] = given_node(value);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
    return call(Entry::cuGraphKernelNodeCopyAttributes, [&] {
        checked_node(to)->as<KernelNode>().attributes = checked_node(from)->as<KernelNode>().attributes;
        return CUDA_SUCCESS;
    });
}

// Copies, fills, host functions. Everything runs in the current context, so the one given here is not kept.

SIMCUDA_API cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 std::size_t count, const CUDA_MEMCPY3D* copy, CUcontext) {
    return add(Entry::cuGraphAddMemcpyNode, node, graph, dependencies, count,
               [&](Context& context) { return memcpy_work(context, given_node(copy)); });
}

SIMCUDA_API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* copy) {
    return ask<MemcpyNode>(Entry::cuGraphMemcpyNodeGetParams, node, copy,
                           [](const MemcpyNode& memcpy) { return memcpy.copy; });
}

SIMCUDA_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* copy) {
    return set<MemcpyNode>(Entry::cuGraphMemcpyNodeSetParams, node,
                           [&](Context& context) { return memcpy_work(context, given_node(copy)); });
}

SIMCUDA_API cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                 std::size_t count, const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
    return add(Entry::cuGraphAddMemsetNode, node, graph, dependencies, count,
               [&](Context& context) { return memset_work(context, given_node(parameters)); });
}

SIMCUDA_API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* parameters) {
    return ask<MemsetNode>(Entry::cuGraphMemsetNodeGetParams, node, parameters, memset_parameters);
}

SIMCUDA_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters) {
    return set<MemsetNode>(Entry::cuGraphMemsetNodeSetParams, node,
                           [&](Context& context) { return memset_work(context, given_node(parameters)); });
}

SIMCUDA_API cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                               std::size_t count, const CUDA_HOST_NODE_PARAMS* parameters) {
    return add(Entry::cuGraphAddHostNode, node, graph, dependencies, count,
               [&](Context&) { return host_work(given_node(parameters)); });
}

SIMCUDA_API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
    return ask<HostNode>(Entry::cuGraphHostNodeGetParams, node, parameters, [](const HostNode& host) {
        return CUDA_HOST_NODE_PARAMS{host.function, host.data};
    });
}

SIMCUDA_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
    return set<HostNode>(Entry::cuGraphHostNodeSetParams, node,
                         [&](Context&) { return host_work(given_node(parameters)); });
}

// Waits for values and writes of them

SIMCUDA_API cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                     std::size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    return add(Entry::cuGraphAddBatchMemOpNode, node, graph, dependencies, count,
               [&](Context& context) { return batch_work(context, given_node(parameters)); });
}

SIMCUDA_API cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    return ask<BatchMemOpNode>(
        Entry::cuGraphBatchMemOpNodeGetParams, node, parameters, [](BatchMemOpNode& batch) {
            Context* current = current_context();
            return CUDA_BATCH_MEM_OP_NODE_PARAMS{current ? current->handle() : nullptr,
                                                 static_cast<unsigned>(batch.items.size()),
                                                 batch.items.data(), 0};
        });
}

SIMCUDA_API cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
                                           const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    return set<BatchMemOpNode>(Entry::cuGraphBatchMemOpNodeSetParams, node,
                               [&](Context& context) { return batch_work(context, given_node(parameters)); });
}

// Graphs and events

SIMCUDA_API cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                     std::size_t count, CUgraph child) {
    return add(Entry::cuGraphAddChildGraphNode, node, graph, dependencies, count,
               [&](Context&) { return as_child(*checked_graph(child)); });
}

SIMCUDA_API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
    return ask<ChildNode>(Entry::cuGraphChildGraphNodeGetGraph, node, graph,
                          [](const ChildNode& child) { return child.graph->handle(); });
}

SIMCUDA_API cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                      std::size_t count, CUevent event) {
    return add(Entry::cuGraphAddEventRecordNode, node, graph, dependencies, count,
               [&](Context&) { return record_work(event); });
}

SIMCUDA_API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
    return ask<EventRecordNode>(Entry::cuGraphEventRecordNodeGetEvent, node, event,
                                [](const EventRecordNode& record) { return record.event->handle(); });
}

SIMCUDA_API cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return set<EventRecordNode>(Entry::cuGraphEventRecordNodeSetEvent, node,
                                [&](Context&) { return record_work(event); });
}

SIMCUDA_API cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                    std::size_t count, CUevent event) {
    return add(Entry::cuGraphAddEventWaitNode, node, graph, dependencies, count,
               [&](Context&) { return wait_work(event); });
}

SIMCUDA_API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
    return ask<EventWaitNode>(Entry::cuGraphEventWaitNodeGetEvent, node, event,
                              [](const EventWaitNode& wait) { return wait.event->handle(); });
}

SIMCUDA_API cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return set<EventWaitNode>(Entry::cuGraphEventWaitNodeSetEvent, node,
                              [&](Context&) { return wait_work(event); });
}

}  // namespace simcuda::driver
