// Graph nodes whose parameters name kernels, symbols or copies the runtime's way, and must be put the
// driver's way. The rest of the graph calls are rows of forwards.def.
#include "tools/simcuda/runtime/copy.h"
#include "tools/simcuda/runtime/registry.h"

namespace simcuda::runtime {
namespace {

// Kernels

CUDA_KERNEL_NODE_PARAMS_v2 to_driver(const Driver& cu, const cudaKernelNodeParams* parameters) {
    require(parameters != nullptr, cudaErrorInvalidValue);
    CUDA_KERNEL_NODE_PARAMS_v2 out{};
    out.kern = Registry::instance().kernel(cu, parameters->func);
    out.gridDimX = parameters->gridDim.x;
    out.gridDimY = parameters->gridDim.y;
    out.gridDimZ = parameters->gridDim.z;
    out.blockDimX = parameters->blockDim.x;
    out.blockDimY = parameters->blockDim.y;
    out.blockDimZ = parameters->blockDim.z;
    out.sharedMemBytes = parameters->sharedMemBytes;
    out.kernelParams = parameters->kernelParams;
    out.extra = parameters->extra;
    return out;
}

cudaKernelNodeParams to_runtime(const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
    cudaKernelNodeParams out{};
    CUkernel kernel = parameters.kern ? parameters.kern : reinterpret_cast<CUkernel>(parameters.func);
    out.func = Registry::instance().stand_in(kernel);
    out.gridDim = dim3{parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ};
    out.blockDim = dim3{parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ};
    out.sharedMemBytes = parameters.sharedMemBytes;
    out.kernelParams = parameters.kernelParams;
    out.extra = parameters.extra;
    return out;
}

// Copies and fills

CUcontext context(const Driver& cu) {
    CUcontext current = nullptr;
    require(cu.cuCtxGetCurrent(&current));
    return current;
}

CUDA_MEMCPY3D checked_copy(const Driver& cu, const cudaMemcpy3DParms* parameters) {
    require(parameters != nullptr, cudaErrorInvalidValue);
    return to_driver(cu, *parameters);
}

CUDA_MEMSET_NODE_PARAMS to_driver(const cudaMemsetParams* parameters) {
    require(parameters != nullptr, cudaErrorInvalidValue);
    return {reinterpret_cast<CUdeviceptr>(parameters->dst),
            parameters->pitch,
            parameters->value,
            parameters->elementSize,
            parameters->width,
            parameters->height};
}

Status add_copy(const Driver& cu, cudaGraphNode_t* node, cudaGraph_t graph,
                const cudaGraphNode_t* dependencies, std::size_t count, const CUDA_MEMCPY3D& copy) {
    return cu.cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, context(cu));
}

Status set_copy(const Driver& cu, cudaGraphExec_t exec, cudaGraphNode_t node, const CUDA_MEMCPY3D& copy) {
    return cu.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context(cu));
}

CUDA_MEMCPY3D copy_to_symbol(const Driver& cu, const void* symbol, const void* from, std::size_t bytes,
                             std::size_t offset, cudaMemcpyKind kind) {
    require_device_end(kind, cudaMemcpyHostToDevice);
    return linear_copy(within_symbol(cu, symbol, offset, bytes), from, bytes, kind);
}

CUDA_MEMCPY3D copy_from_symbol(const Driver& cu, void* to, const void* symbol, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
    require_device_end(kind, cudaMemcpyDeviceToHost);
    return linear_copy(to, within_symbol(cu, symbol, offset, bytes), bytes, kind);
}

// A node of any type. The structures agree but for kernels and copies.
CUgraphNodeParams to_driver(const Driver& cu, const cudaGraphNodeParams* parameters) {
    require(parameters != nullptr, cudaErrorInvalidValue);
    static_assert(sizeof(CUgraphNodeParams) == sizeof(cudaGraphNodeParams));
    auto out = std::bit_cast<CUgraphNodeParams>(*parameters);
    if (parameters->type == cudaGraphNodeTypeKernel) {
        const cudaKernelNodeParamsV2& kernel = parameters->kernel;
        const cudaKernelNodeParams old{kernel.func,           kernel.gridDim,      kernel.blockDim,
                                       kernel.sharedMemBytes, kernel.kernelParams, kernel.extra};
        out.kernel = std::bit_cast<CUDA_KERNEL_NODE_PARAMS_v3>(to_driver(cu, &old));
    } else if (parameters->type == cudaGraphNodeTypeMemcpy) {
        out.memcpy = {};
        out.memcpy.copyCtx = context(cu);
        out.memcpy.copyParams = to_driver(cu, parameters->memcpy.copyParams);
    } else if (parameters->type == cudaGraphNodeTypeConditional) {
        out.conditional.ctx = context(cu);
    }
    return out;
}

// What the driver answers in the parameters of a new node.
void take_results(const CUgraphNodeParams& in_driver, cudaGraphNodeParams& parameters) {
    if (parameters.type == cudaGraphNodeTypeMemAlloc) {
        parameters.alloc.dptr = reinterpret_cast<void*>(in_driver.alloc.dptr);
    } else if (parameters.type == cudaGraphNodeTypeConditional) {
        parameters.conditional.phGraph_out = in_driver.conditional.phGraph_out;
    }
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                             const cudaGraphEdgeData* edges, std::size_t count,
                             cudaGraphNodeParams* parameters) {
    return run([&](const Driver& cu) {
        CUgraphNodeParams in_driver = to_driver(cu, parameters);
        const CUresult result = cu.cuGraphAddNode_v2(node, graph, dependencies,
                                                     as<const CUgraphEdgeData*>(edges), count, &in_driver);
        if (result == CUDA_SUCCESS) take_results(in_driver, *parameters);
        return result;
    });
}

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* parameters) {
    return run([&](const Driver& cu) {
        CUgraphNodeParams in_driver = to_driver(cu, parameters);
        return cu.cuGraphNodeSetParams(node, &in_driver);
    });
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                       cudaGraphNodeParams* parameters) {
    return run([&](const Driver& cu) {
        CUgraphNodeParams in_driver = to_driver(cu, parameters);
        return cu.cuGraphExecNodeSetParams(exec, node, &in_driver);
    });
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned int default_value, unsigned int flags) {
    return run([&](const Driver& cu) {
        return cu.cuGraphConditionalHandleCreate(as<CUgraphConditionalHandle*>(handle), graph, context(cu),
                                                 default_value, flags);
    });
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t count,
                                   const cudaKernelNodeParams* parameters) {
    return run([&](const Driver& cu) {
        auto in_driver = to_driver(cu, parameters);
        return cu.cuGraphAddKernelNode_v2(node, graph, dependencies, count, &in_driver);
    });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* parameters) {
    return run([&](const Driver& cu) {
        require(parameters != nullptr, cudaErrorInvalidValue);
        CUDA_KERNEL_NODE_PARAMS_v2 in_driver{};
        CUresult result = cu.cuGraphKernelNodeGetParams_v2(node, &in_driver);
        if (result == CUDA_SUCCESS) *parameters = to_runtime(in_driver);
        return result;
    });
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* parameters) {
    return run([&](const Driver& cu) {
        auto in_driver = to_driver(cu, parameters);
        return cu.cuGraphKernelNodeSetParams_v2(node, &in_driver);
    });
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
    return run([&](const Driver& cu) {
        auto in_driver = to_driver(cu, parameters);
        return cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &in_driver);
    });
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t count,
                                   const cudaMemcpy3DParms* parameters) {
    return run([&](const Driver& cu) {
        return add_copy(cu, node, graph, dependencies, count, checked_copy(cu, parameters));
    });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, std::size_t count, void* to,
                                     const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return add_copy(cu, node, graph, dependencies, count, linear_copy(to, from, bytes, kind));
    });
}

cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* dependencies, std::size_t count,
                                           const void* symbol, const void* from, std::size_t bytes,
                                           std::size_t offset, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return add_copy(cu, node, graph, dependencies, count,
                        copy_to_symbol(cu, symbol, from, bytes, offset, kind));
    });
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* dependencies, std::size_t count, void* to,
                                             const void* symbol, std::size_t bytes, std::size_t offset,
                                             cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return add_copy(cu, node, graph, dependencies, count,
                        copy_from_symbol(cu, to, symbol, bytes, offset, kind));
    });
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* parameters) {
    return run([&](const Driver& cu) {
        require(parameters != nullptr, cudaErrorInvalidValue);
        CUDA_MEMCPY3D copy{};
        CUresult result = cu.cuGraphMemcpyNodeGetParams(node, &copy);
        if (result == CUDA_SUCCESS) *parameters = to_runtime(cu, copy);
        return result;
    });
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* parameters) {
    return run([&](const Driver& cu) {
        CUDA_MEMCPY3D copy = checked_copy(cu, parameters);
        return cu.cuGraphMemcpyNodeSetParams(node, &copy);
    });
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from,
                                           std::size_t bytes, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        CUDA_MEMCPY3D copy = linear_copy(to, from, bytes, kind);
        return cu.cuGraphMemcpyNodeSetParams(node, &copy);
    });
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol, const void* from,
                                                 std::size_t bytes, std::size_t offset, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        CUDA_MEMCPY3D copy = copy_to_symbol(cu, symbol, from, bytes, offset, kind);
        return cu.cuGraphMemcpyNodeSetParams(node, &copy);
    });
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* to, const void* symbol,
                                                   std::size_t bytes, std::size_t offset,
                                                   cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        CUDA_MEMCPY3D copy = copy_from_symbol(cu, to, symbol, bytes, offset, kind);
        return cu.cuGraphMemcpyNodeSetParams(node, &copy);
    });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* parameters) {
    return run([&](const Driver& cu) { return set_copy(cu, exec, node, checked_copy(cu, parameters)); });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to,
                                               const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return run(
        [&](const Driver& cu) { return set_copy(cu, exec, node, linear_copy(to, from, bytes, kind)); });
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                     const void* symbol, const void* from, std::size_t bytes,
                                                     std::size_t offset, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return set_copy(cu, exec, node, copy_to_symbol(cu, symbol, from, bytes, offset, kind));
    });
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec, cudaGraphNode_t node, void* to,
                                                       const void* symbol, std::size_t bytes,
                                                       std::size_t offset, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return set_copy(cu, exec, node, copy_from_symbol(cu, to, symbol, bytes, offset, kind));
    });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t count,
                                   const cudaMemsetParams* parameters) {
    return run([&](const Driver& cu) {
        auto in_driver = to_driver(parameters);
        return cu.cuGraphAddMemsetNode(node, graph, dependencies, count, &in_driver, context(cu));
    });
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* parameters) {
    return run([&](const Driver& cu) {
        auto in_driver = to_driver(parameters);
        return cu.cuGraphExecMemsetNodeSetParams(exec, node, &in_driver, context(cu));
    });
}
