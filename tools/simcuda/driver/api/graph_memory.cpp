// Graph nodes that allocate and free, and conditional handles.
#include <vector>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/graph/conditional.h"
#include "tools/simcuda/driver/graph/graph_memory.h"
#include "tools/simcuda/driver/graph/graph_params.h"

namespace simcuda::driver {
namespace {

cuuint64_t attribute(const Device& device, CUgraphMem_attribute which) {
    switch (which) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
            return graph_memory_used(device);
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
            return graph_memory_high(device);
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

}  // namespace

SIMCUDA_API cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                   std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    return call(Entry::cuGraphAddMemAllocNode, [&](Context&) {
        require(node != nullptr && parameters != nullptr && (dependencies != nullptr || count == 0),
                CUDA_ERROR_INVALID_VALUE);
        const auto found = checked_graph(graph);
        MemAllocNode work = alloc_work(*parameters);
        const CUdeviceptr address = work.memory->address();
        *node = found->add(std::move(work), {dependencies, count}).handle();
        parameters->dptr = address;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    return call(Entry::cuGraphMemAllocNodeGetParams, [&] {
        require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
        *parameters = alloc_parameters(checked_node(node)->as<MemAllocNode>());
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  std::size_t count, CUdeviceptr address) {
    return call(Entry::cuGraphAddMemFreeNode, [&](Context&) {
        require(node != nullptr && (dependencies != nullptr || count == 0), CUDA_ERROR_INVALID_VALUE);
        *node = checked_graph(graph)->add(free_work(address), {dependencies, count}).handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
    return call(Entry::cuGraphMemFreeNodeGetParams, [&] {
        require(address != nullptr, CUDA_ERROR_INVALID_VALUE);
        *address = checked_node(node)->as<MemFreeNode>().memory->address();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void* value) {
    return call(Entry::cuDeviceGetGraphMemAttribute, [&] {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        *static_cast<cuuint64_t*>(value) = attribute(checked_device(device), which);
        return CUDA_SUCCESS;
    });
}

// Only the high watermarks, and only to zero: from there they rise to what is in use.
SIMCUDA_API cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void* value) {
    return call(Entry::cuDeviceSetGraphMemAttribute, [&] {
        require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
        const Device& found = checked_device(device);
        require((which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) &&
                    *static_cast<const cuuint64_t*>(value) == 0,
                CUDA_ERROR_INVALID_VALUE);
        reset_graph_memory_high(found);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDeviceGraphMemTrim(CUdevice device) {
    return call(Entry::cuDeviceGraphMemTrim, [&] {
        checked_device(device);  // nothing is kept that could be given back
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph, CUcontext context,
                                           unsigned default_value, unsigned flags) {
    return call(Entry::cuGraphConditionalHandleCreate, [&] {
        require(handle != nullptr && (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) == 0,
                CUDA_ERROR_INVALID_VALUE);
        const auto found = checked_graph(graph);
        const auto conditional = create_conditional(*checked_context(context), *found, default_value,
                                                    (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0);
        found->conditionals.push_back(conditional);
        *handle = conditional->handle();
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
