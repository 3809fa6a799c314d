// What of an executable graph can be changed, and what an update says.
#include "tests/simrt/graph_make.h"

namespace {

using namespace sim;

cudaGraph_t copying(void* to, const void* from, cudaMemcpyKind kind, cudaGraphNode_t* node) {
    const cudaGraph_t graph = create_graph();
    RT_ANSWERS(cudaSuccess, cudaGraphAddMemcpyNode1D, node, graph, nullptr, 0, to, from, 64, kind);
    return graph;
}

SIM_TEST("graph: an executable copy keeps its direction", {}) {
    const Gpu gpu;
    Memory memory;
    std::uint8_t other_host[64] = {};
    const struct {
        void *to, *from;
        cudaMemcpyKind kind;
    } ways[] = {{memory.device, memory.host, cudaMemcpyHostToDevice},
                {memory.host, memory.device, cudaMemcpyDeviceToHost},
                {memory.other, memory.device, cudaMemcpyDeviceToDevice},
                {other_host, memory.host, cudaMemcpyHostToHost}};
    for (const auto& before : ways) {
        for (const auto& after : ways) {
            const bool same = before.kind == after.kind;
            cudaGraphNode_t node = nullptr, changed = nullptr;
            const cudaGraphExec_t exec = instantiate(copying(before.to, before.from, before.kind, &node));
            RT_ANSWERS(same ? cudaSuccess : cudaErrorInvalidValue, cudaGraphExecMemcpyNodeSetParams1D, exec,
                       node, after.to, after.from, 64, after.kind);
            RT_ANSWERS(same ? cudaSuccess : cudaErrorInvalidValue, cudaGraphExecMemcpyNodeSetParams1D, exec,
                       node, after.to, after.from, 64, cudaMemcpyDefault);
            cudaGraphExecUpdateResultInfo info{};
            RT_ANSWERS(same ? cudaSuccess : cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate, exec,
                       copying(after.to, after.from, after.kind, &changed), &info);
            EXPECT(info.result ==
                   (same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorParametersChanged));
            EXPECT(info.errorNode == (same ? nullptr : changed));
        }
    }
}

// As JAX does, whose buffers are others in each run.
SIM_TEST("graph: an executable copy is given other memory when its own has been freed", {}) {
    const Gpu gpu;
    for (const bool general : {false, true}) {
        Memory first;
        cudaGraphNode_t node = nullptr;
        const cudaGraphExec_t exec =
            instantiate(copying(first.other, first.device, cudaMemcpyDeviceToDevice, &node));
        RT_ANSWERS(cudaSuccess, cudaGraphLaunch, exec, nullptr);
        RT_ANSWERS(cudaSuccess, cudaDeviceSynchronize);
        for (int round = 0; round < 3; ++round) {
            RT_ANSWERS(cudaSuccess, cudaFree, first.device);
            RT_ANSWERS(cudaSuccess, cudaFree, first.other);
            first = Memory();
            const auto data = pattern(64, static_cast<std::uint32_t>(round));
            RT_ANSWERS(cudaSuccess, cudaMemcpy, first.device, data.data(), 64, cudaMemcpyHostToDevice);
            if (general) {
                cudaGraphNodeParams params{};
                params.type = cudaGraphNodeTypeMemcpy;
                params.memcpy.copyParams.srcPtr = {first.device, 64, 64, 1};
                params.memcpy.copyParams.dstPtr = {first.other, 64, 64, 1};
                params.memcpy.copyParams.extent = {64, 1, 1};
                params.memcpy.copyParams.kind = cudaMemcpyDeviceToDevice;
                RT_ANSWERS(cudaSuccess, cudaGraphExecNodeSetParams, exec, node, &params);
            } else {
                RT_ANSWERS(cudaSuccess, cudaGraphExecMemcpyNodeSetParams1D, exec, node, first.other,
                           first.device, 64, cudaMemcpyDeviceToDevice);
            }
            RT_ANSWERS(cudaSuccess, cudaGraphLaunch, exec, nullptr);
            EXPECT(read_back(reinterpret_cast<CUdeviceptr>(first.other), 64) == data);
        }
    }
}

SIM_TEST("graph: an executable child graph keeps the directions of its copies", {}) {
    const Gpu gpu;
    Memory memory;
    cudaGraphNode_t node = nullptr, child = nullptr;
    const cudaGraph_t up = copying(memory.device, memory.host, cudaMemcpyHostToDevice, &node);
    const cudaGraph_t other = copying(memory.other, memory.host, cudaMemcpyHostToDevice, &node);
    const cudaGraph_t down = copying(memory.host, memory.device, cudaMemcpyDeviceToHost, &node);
    const cudaGraph_t parent = create_graph();
    RT_ANSWERS(cudaSuccess, cudaGraphAddChildGraphNode, &child, parent, nullptr, 0, up);
    const cudaGraphExec_t exec = instantiate(parent);
    RT_ANSWERS(cudaSuccess, cudaGraphExecChildGraphNodeSetParams, exec, child, other);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecChildGraphNodeSetParams, exec, child, down);
}

SIM_TEST("graph: an executable fill of several rows keeps its shape, of one row the row", {}) {
    const Gpu gpu;
    const Memory memory;
    const cudaMemsetParams box{memory.device, 64, 1, 1, 16, 4}, row{memory.device, 64, 1, 1, 16, 1};
    const auto expect = [](const cudaMemsetParams& before, const cudaMemsetParams& after, bool allowed) {
        cudaGraphNode_t node = nullptr, changed = nullptr;
        const cudaGraphExec_t exec = instantiate(filling(before, &node));
        RT_ANSWERS(allowed ? cudaSuccess : cudaErrorInvalidValue, cudaGraphExecMemsetNodeSetParams, exec,
                   node, &after);
        cudaGraphExecUpdateResultInfo info{};
        RT_ANSWERS(allowed ? cudaSuccess : cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate, exec,
                   filling(after, &changed), &info);
        EXPECT(info.result ==
               (allowed ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorParametersChanged));
    };
    cudaMemsetParams other = box;
    other.value = 7;
    other.dst = memory.other;
    expect(box, other, true);
    for (std::size_t* size : {&other.pitch, &other.width, &other.height}) {
        const std::size_t before = *size;
        *size = before + 16;
        expect(box, other, false);
        expect(other, box, false);
        *size = before;
    }
    other.elementSize = 2;
    expect(box, other, false);
    expect(box, row, false);
    expect(row, box, false);
    other = row;
    other.width = 100;
    other.value = 9;
    expect(row, other, true);
}

SIM_TEST("graph: an update finds no pair for a removed node, or one of another type", {}) {
    const Gpu gpu;
    const Memory memory;
    cudaGraphNode_t node = nullptr, same = nullptr;
    const cudaMemsetParams fill{memory.device, 0, 1, 1, 16, 1};
    const cudaGraph_t graph = filling(fill, &node);
    const cudaGraphExec_t exec = instantiate(graph);
    cudaGraphExecUpdateResultInfo info{};
    const cudaGraph_t empty = create_graph();
    const cudaGraphNode_t nothing = add_empty(empty);
    RT_ANSWERS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate, exec, empty, &info);
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    EXPECT(info.errorNode == nothing);
    add_empty(empty);
    RT_ANSWERS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate, exec, empty, &info);
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    EXPECT(info.errorNode == nullptr);
    RT_ANSWERS(cudaSuccess, cudaGraphExecUpdate, exec, filling(fill, &same), &info);

    RT_ANSWERS(cudaSuccess, cudaGraphDestroyNode, node);
    RT_ANSWERS(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate, exec, filling(fill, &same), &info);
    EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    EXPECT(info.errorNode == same);
    unsigned enabled = 0;
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphNodeSetEnabled, exec, node, 0);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphNodeGetEnabled, exec, node, &enabled);
    RT_ANSWERS(cudaErrorInvalidValue, cudaGraphExecMemsetNodeSetParams, exec, node, &fill);

    // To destroy the graph removes nothing.
    const cudaGraph_t going = filling(fill, &node);
    const cudaGraphExec_t staying = instantiate(going);
    RT_ANSWERS(cudaSuccess, cudaGraphDestroy, going);
    RT_ANSWERS(cudaSuccess, cudaGraphExecUpdate, staying, filling(fill, &same), &info);
}

}  // namespace
