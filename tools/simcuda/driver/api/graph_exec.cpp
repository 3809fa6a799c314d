// cuGraphInstantiate, cuGraphLaunch and cuGraphExec*.
#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/graph/conditional.h"
#include "tools/simcuda/driver/graph/graph_capture.h"
#include "tools/simcuda/driver/graph/graph_exec.h"
#include "tools/simcuda/driver/graph/graph_params.h"

namespace simcuda::driver {
namespace {

constexpr std::uint64_t kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Of graphs that kernels may launch, which none can here.
bool may_be_launched_from_device(const Graph& graph) {
    return std::all_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
        const CUgraphNodeType type = type_of(node->work);
        return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
               type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_GRAPH;
    });
}

bool has_unused_handles(const Graph& graph) {
    return std::any_of(graph.conditionals.begin(), graph.conditionals.end(),
                       [](const auto& conditional) { return !conditional->used; });
}

CUresult make(Context& context, CUgraphExec* out, CUgraph graph, std::uint64_t flags, CUgraphNode* failed) {
    require(out != nullptr && (flags & ~kKnownFlags) == 0, CUDA_ERROR_INVALID_VALUE);
    const auto found = checked_graph(graph);
    require(!has_unused_handles(*found), CUDA_ERROR_INVALID_VALUE);
    require((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0 || may_be_launched_from_device(*found),
            CUDA_ERROR_NOT_SUPPORTED);
    *out = instantiate(context.shared_from_this(), *found, flags, failed)->handle();
    return CUDA_SUCCESS;
}

// The forms before CUDA 12 name the failing node and describe the failure in a buffer.
CUresult make_old(Entry entry, CUgraphExec* out, CUgraph graph, CUgraphNode* failed, char* log,
                  std::size_t room) {
    return call(entry, kUnsafeInCapture, [&](Context& context) {
        if (failed) *failed = nullptr;
        if (log && room != 0) *log = '\0';
        return make(context, out, graph, 0, failed);
    });
}

// `make_work` is given the current context and answers other work for the node.
template <class Make>
CUresult set(Entry entry, CUgraphExec exec, CUgraphNode node, Make make_work) {
    return call(entry, [&](Context& context) {
        const auto graph = checked_exec(exec);
        graph->set(graph->node(node), make_work(context));
        return CUDA_SUCCESS;
    });
}

CUresult set_child(Entry entry, CUgraphExec exec, CUgraphNode node, CUgraph child) {
    return call(entry, [&](Context&) {
        const auto graph = checked_exec(exec);
        graph->set_child(graph->node(node), *checked_graph(child));
        return CUDA_SUCCESS;
    });
}

template <class T>
const T& given(const T* parameters) {
    require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
    return *parameters;
}

bool can_be_disabled(CUgraphNodeType type) {
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           type == CU_GRAPH_NODE_TYPE_MEMSET;
}

ExecNode& switchable(GraphExec& exec, CUgraphNode handle) {
    ExecNode& node = exec.node(handle);
    require(can_be_disabled(node.type), CUDA_ERROR_INVALID_VALUE);
    return node;
}

}  // namespace

SIMCUDA_API cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* failed, char* log,
                               std::size_t room) {
    return make_old(Entry::cuGraphInstantiate, exec, graph, failed, log, room);
}

SIMCUDA_API cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* failed, char* log,
                                  std::size_t room) {
    return make_old(Entry::cuGraphInstantiate_v2, exec, graph, failed, log, room);
}

SIMCUDA_API cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    return call(Entry::cuGraphInstantiateWithFlags, kUnsafeInCapture, [&](Context& context) {
        // An upload needs the stream that only the other form is given.
        require((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0, CUDA_ERROR_INVALID_VALUE);
        return make(context, exec, graph, flags, nullptr);
    });
}

SIMCUDA_STREAM_API(cuGraphInstantiateWithParams, _ptsz,
                   (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                   (exec, graph, parameters)) {
    return call(site.entry, kUnsafeInCapture, [&](Context& context) {
        const std::uint64_t flags = given(parameters).flags;
        const auto found = checked_graph(graph);
        parameters->hErrNode_out = nullptr;
        parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
        if (found->has_circle()) parameters->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        if (has_unused_handles(*found))
            parameters->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        const CUresult result = make(context, exec, graph, flags, &parameters->hErrNode_out);
        parameters->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
        if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
            submit(*resolve(context, parameters->hUploadStream, site.per_thread), MarkerOp{});
        }
        return result;
    });
}

SIMCUDA_API cuGraphExecDestroy(CUgraphExec exec) {
    return call(Entry::cuGraphExecDestroy, kNotAfterFailure, [&] {
        destroy_exec(exec);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t* flags) {
    return call(Entry::cuGraphExecGetFlags, [&] {
        require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
        *flags = checked_exec(exec)->flags();
        return CUDA_SUCCESS;
    });
}

// Everything a graph needs is there once it is instantiated.
SIMCUDA_STREAM_API(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), (exec, stream)) {
    return call(site.entry, [&](Context& context) {
        checked_exec(exec);
        submit(*resolve(context, stream, site.per_thread), MarkerOp{});
        return CUDA_SUCCESS;
    });
}

SIMCUDA_STREAM_API(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream handle), (exec, handle)) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, handle, site.per_thread);
        const auto graph = checked_exec(exec);
        if (const auto capture = capture_of(*stream)) {
            capture->record_graph(*stream, graph->as_child());
        } else {
            graph->launch(*stream);
        }
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* failed,
                              CUgraphExecUpdateResult* result) {
    return call(Entry::cuGraphExecUpdate, [&](Context&) {
        require(failed != nullptr && result != nullptr, CUDA_ERROR_INVALID_VALUE);
        CUgraphExecUpdateResultInfo info{};
        auto answer = [&] {
            *failed = info.errorNode;
            *result = info.result;
        };
        try {
            checked_exec(exec)->update(*checked_graph(graph), info);
        } catch (const Failure&) {
            answer();
            throw;
        }
        answer();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
    return call(Entry::cuGraphExecUpdate_v2, [&](Context&) {
        require(info != nullptr, CUDA_ERROR_INVALID_VALUE);
        checked_exec(exec)->update(*checked_graph(graph), *info);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* parameters) {
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return set_child(Entry::cuGraphExecNodeSetParams, exec, node, parameters->graph.graph);
    return set(Entry::cuGraphExecNodeSetParams, exec, node, [&](Context& context) {
        given(parameters);
        return node_work(context, *parameters);
    });
}

SIMCUDA_API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v1* p) {
    return set(Entry::cuGraphExecKernelNodeSetParams, exec, node, [&](Context& context) -> NodeWork {
        given(p);
        return kernel_work(context,
                           {p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY,
                            p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra, nullptr, nullptr});
    });
}

SIMCUDA_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                              const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
    return set(Entry::cuGraphExecKernelNodeSetParams_v2, exec, node,
               [&](Context& context) -> NodeWork { return kernel_work(context, given(parameters)); });
}

SIMCUDA_API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                           CUcontext) {
    return set(Entry::cuGraphExecMemcpyNodeSetParams, exec, node,
               [&](Context& context) -> NodeWork { return memcpy_work(context, given(copy)); });
}

SIMCUDA_API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext) {
    return set(Entry::cuGraphExecMemsetNodeSetParams, exec, node,
               [&](Context& context) -> NodeWork { return memset_work(context, given(parameters)); });
}

SIMCUDA_API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         const CUDA_HOST_NODE_PARAMS* parameters) {
    return set(Entry::cuGraphExecHostNodeSetParams, exec, node,
               [&](Context&) -> NodeWork { return host_work(given(parameters)); });
}

SIMCUDA_API cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_BATCH_MEM_OP_NODE_PARAMS* parameters) {
    return set(Entry::cuGraphExecBatchMemOpNodeSetParams, exec, node,
               [&](Context& context) -> NodeWork { return batch_work(context, given(parameters)); });
}

SIMCUDA_API cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set(Entry::cuGraphExecEventRecordNodeSetEvent, exec, node,
               [&](Context&) -> NodeWork { return record_work(event); });
}

SIMCUDA_API cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    return set(Entry::cuGraphExecEventWaitNodeSetEvent, exec, node,
               [&](Context&) -> NodeWork { return wait_work(event); });
}

SIMCUDA_API cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    return set_child(Entry::cuGraphExecChildGraphNodeSetParams, exec, node, child);
}

SIMCUDA_API cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
    return call(Entry::cuGraphNodeSetEnabled, [&](Context&) {
        switchable(*checked_exec(exec), node).enabled = enabled != 0;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
    return call(Entry::cuGraphNodeGetEnabled, [&](Context&) {
        require(enabled != nullptr, CUDA_ERROR_INVALID_VALUE);
        *enabled = switchable(*checked_exec(exec), node).enabled;
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
