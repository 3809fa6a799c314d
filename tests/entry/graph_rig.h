// Graphs over the buffers of the rig, built by hand.
#pragma once

#include <cstring>

#include "tests/entry/rig.h"

namespace rig {

inline CUgraph new_graph() {
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    return graph;
}

inline CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    return exec;
}

inline void launch_and_wait(CUgraphExec exec, CUstream stream) {
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
}

// out[i] = in[i] + k, as a kernel node's parameters. Must stay where it is.
struct Add {
    Add(CUdeviceptr out_, CUdeviceptr in_, unsigned k_) : out(out_), in(in_), k(k_) {
        params.func = kernel("add");
        params.gridDimX = (kWords + 255) / 256;
        params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
        params.blockDimX = 256;
        params.kernelParams = arguments;
    }
    Add(const Add&) = delete;
    Add& operator=(const Add&) = delete;

    CUdeviceptr out;
    CUdeviceptr in;
    unsigned k;
    unsigned n = kWords;
    void* arguments[4] = {&out, &in, &k, &n};
    CUDA_KERNEL_NODE_PARAMS params{};
};

inline CUgraphNode add_kernel(CUgraph graph, const CUDA_KERNEL_NODE_PARAMS& params,
                              CUgraphNode after = nullptr) {
    CUgraphNode node = nullptr;
    OK(cuGraphAddKernelNode_v2, &node, graph, &after, after ? 1 : 0, &params);
    return node;
}

inline CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = kBuffer;
    copy.Height = copy.Depth = 1;
    return copy;
}

inline CUDA_MEMSET_NODE_PARAMS set_of(CUdeviceptr to, unsigned value) {
    CUDA_MEMSET_NODE_PARAMS set{};
    set.dst = to;
    set.value = value;
    set.elementSize = 1;
    set.width = kBuffer;
    set.height = 1;
    return set;
}

inline CUgraphNode add_copy(CUgraph graph, const CUDA_MEMCPY3D& copy, const Gpu& gpu,
                            CUgraphNode after = nullptr) {
    CUgraphNode node = nullptr;
    OK(cuGraphAddMemcpyNode, &node, graph, &after, after ? 1 : 0, &copy, gpu.context);
    return node;
}

inline CUgraphNode add_set(CUgraph graph, const CUDA_MEMSET_NODE_PARAMS& set, const Gpu& gpu,
                           CUgraphNode after = nullptr) {
    CUgraphNode node = nullptr;
    OK(cuGraphAddMemsetNode, &node, graph, &after, after ? 1 : 0, &set, gpu.context);
    return node;
}

// Adds a node that runs its body, which it returns, or does not.
inline CUgraph add_branch(CUgraph graph, const Gpu& gpu, bool runs) {
    CUgraphNodeParams branch{};
    branch.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    branch.conditional.type = CU_GRAPH_COND_TYPE_IF;
    branch.conditional.size = 1;
    branch.conditional.ctx = gpu.context;
    OK(cuGraphConditionalHandleCreate, &branch.conditional.handle, graph, gpu.context, runs ? 1 : 0,
       CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode node = nullptr;
    OK(cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &branch);
    return branch.conditional.phGraph_out[0];
}

inline std::vector<std::uint8_t> plus(std::vector<std::uint8_t> data, unsigned k) {
    for (std::size_t at = 0; at < data.size(); at += 4) {
        unsigned word;
        std::memcpy(&word, data.data() + at, 4);
        word += k;
        std::memcpy(data.data() + at, &word, 4);
    }
    return data;
}

}  // namespace rig
