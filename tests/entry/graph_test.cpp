// Graphs over managed memory: captured and built by hand, changed, launched, and destroyed while they run.
#include <malloc.h>

#include <cstring>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

std::vector<std::uint8_t> all(std::uint8_t value) {
    return std::vector<std::uint8_t>(kBuffer, value);
}

CUDA_KERNEL_NODE_PARAMS_v1 before_12(const CUDA_KERNEL_NODE_PARAMS& params) {
    return {params.func,      params.gridDimX,  params.gridDimY,       params.gridDimZ,     params.blockDimX,
            params.blockDimY, params.blockDimZ, params.sharedMemBytes, params.kernelParams, params.extra};
}

}  // namespace

FAMILY_TEST("graphs: capture, with all else blocked and others at work, records what the program does only",
            "graph-capture") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream blocked = new_stream();
    kernel("add");  // loading is forbidden later
    const CUstream other = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    void* pinned = nullptr;
    OK(cuMemAllocHost_v2, &pinned, kBuffer);
    std::memcpy(pinned, pattern(kBuffer, 7).data(), kBuffer);
    for (const CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                           CU_STREAM_CAPTURE_MODE_RELAXED}) {
        for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
        Gate gate;
        gate.hold_up(blocked);
        OK(cuStreamBeginCapture_v2, stream, mode);
        OK(cuMemcpyHtoDAsync_v2, a.at(), pinned, kBuffer, stream);
        EXPECT(launch("add", kWords, stream, b.at(), a.at(), 5u, kWords) == CUDA_SUCCESS);
        OK(cuMemsetD8Async, a.at(), 9, kBuffer, stream);
        std::thread([&] {
            OK(cuCtxSetCurrent, gpu.context);
            EXPECT(launch("add", kWords, other, c.at(), c.at(), 1u, kWords) == CUDA_SUCCESS);
            if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL) OK(cuStreamSynchronize, other);
        }).join();
        CUstreamCaptureStatus status;
        OK(cuStreamIsCapturing, stream, &status);
        EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        CUgraph graph = nullptr;
        OK(cuStreamEndCapture, stream, &graph);
        std::size_t nodes = 0;
        OK(cuGraphGetNodes, graph, nullptr, &nodes);
        EXPECT(nodes == 3);
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, blocked);
        gate.open();
        OK(cuStreamSynchronize, other);
        OK(cuStreamSynchronize, blocked);

        const CUgraphExec exec = instantiate(graph);
        for (int i = 0; i < 3; ++i) {
            crowd.press();
            launch_and_wait(exec, stream);
            EXPECT(b.read() == plus(pattern(kBuffer, 7), 5));
            EXPECT(a.read() == all(9));
        }
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, graph);
    }
    EXPECT(c.read() == plus(pattern(kBuffer, 3), 3));
}

FAMILY_TEST("graphs: operands of copies and sets are there from the first node on, and stay") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
    const CUgraph child = new_graph();
    add_copy(child, copy_of(b.at(), a.at()), gpu);
    const CUgraph graph = new_graph();
    CUgraphNode nested = nullptr;
    OK(cuGraphAddChildGraphNode, &nested, graph, nullptr, 0, child);
    CUDA_MEMSET_NODE_PARAMS words = set_of(c.at(), 0x04040404);
    words.elementSize = 4;
    words.width = kWords;
    add_set(graph, words, gpu);
    for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
    const CUgraphExec exec = instantiate(graph);
    OK(cuGraphUpload, exec, stream);
    for (int i = 0; i < 3; ++i) {
        crowd.press();
        for (const Buffer* buffer : {&a, &b, &c}) EXPECT(buffer->resident());
    }
    launch_and_wait(exec, stream);
    EXPECT(b.holds(1));
    EXPECT(c.read() == all(4));
    OK(cuGraphExecDestroy, exec);
    for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
    EXPECT(a.holds(1));
    EXPECT(b.holds(1));
}

// The driver looks at the operands of copies and sets then.
FAMILY_TEST("graphs: nodes are added and changed while their operands are out, by every form",
            "graph-node-changes") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Buffer a(kBuffer, 1);
    Buffer b(kBuffer, 2);
    Crowd crowd;
    CUgraphNodeParams copy{};
    copy.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    copy.memcpy.copyParams = copy_of(b.at(), a.at());
    copy.memcpy.copyCtx = gpu.context;
    CUgraphNodeParams set{};
    set.type = CU_GRAPH_NODE_TYPE_MEMSET;
    const CUDA_MEMSET_NODE_PARAMS set_params = set_of(b.at(), 4);
    set.memset = {set_params.dst,   set_params.pitch,  set_params.value, set_params.elementSize,
                  set_params.width, set_params.height, gpu.context};
    // Of what is in place, to be changed.
    const Buffer c(kBuffer, 3);
    const auto other_copy = copy_of(c.at(), c.at());
    const auto other_set = set_of(c.at(), 5);
    const auto check = [&](auto&& add, auto&& change, const std::vector<std::uint8_t>& expected) {
        b.fill(2);
        crowd.bring_in(c);
        const CUgraph graph = new_graph();
        CUgraphNode node = nullptr;
        crowd.evict(a);
        crowd.evict(b);
        EXPECT(add(&node, graph) == CUDA_SUCCESS);
        crowd.evict(a);
        crowd.evict(b);
        EXPECT(change(node) == CUDA_SUCCESS);
        const CUgraphExec exec = instantiate(graph);
        launch_and_wait(exec, stream);
        EXPECT(b.read() == expected);
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, graph);
    };
    const auto unchanged = [](CUgraphNode) { return CUDA_SUCCESS; };
    const auto general = [&](CUgraphNodeParams& params) {
        return [&](CUgraphNode* node, CUgraph graph) {
            return CU(cuGraphAddNode)(node, graph, nullptr, 0, &params);
        };
    };
    const auto general_v2 = [&](CUgraphNodeParams& params) {
        return [&](CUgraphNode* node, CUgraph graph) {
            return CU(cuGraphAddNode_v2)(node, graph, nullptr, nullptr, 0, &params);
        };
    };
    const auto add_copy_of = [&](const CUDA_MEMCPY3D& params) {
        return [&](CUgraphNode* node, CUgraph graph) {
            return CU(cuGraphAddMemcpyNode)(node, graph, nullptr, 0, &params, gpu.context);
        };
    };
    const auto add_set_of = [&](const CUDA_MEMSET_NODE_PARAMS& params) {
        return [&](CUgraphNode* node, CUgraph graph) {
            return CU(cuGraphAddMemsetNode)(node, graph, nullptr, 0, &params, gpu.context);
        };
    };
    const auto copied = pattern(kBuffer, 1);
    check(add_copy_of(copy.memcpy.copyParams), unchanged, copied);
    check(add_set_of(set_params), unchanged, all(4));
    check(general(copy), unchanged, copied);
    check(general(set), unchanged, all(4));
    check(general_v2(copy), unchanged, copied);
    check(general_v2(set), unchanged, all(4));
    check(
        add_copy_of(other_copy),
        [&](CUgraphNode node) { return CU(cuGraphMemcpyNodeSetParams)(node, &copy.memcpy.copyParams); },
        copied);
    check(
        add_copy_of(other_copy), [&](CUgraphNode node) { return CU(cuGraphNodeSetParams)(node, &copy); },
        copied);
    check(
        add_set_of(other_set),
        [&](CUgraphNode node) { return CU(cuGraphMemsetNodeSetParams)(node, &set_params); }, all(4));
    check(
        add_set_of(other_set), [&](CUgraphNode node) { return CU(cuGraphNodeSetParams)(node, &set); },
        all(4));
}

FAMILY_TEST("graphs: what the kernels of a graph name is brought in before it is launched") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const Add first(b.at(), a.at(), 1);
    const Add second(c.at(), b.at(), 1);
    const CUgraph child = new_graph();
    add_kernel(child, second.params);
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_kernel(graph, first.params);
    CUgraphNode nested = nullptr;
    OK(cuGraphAddChildGraphNode, &nested, graph, &node, 1, child);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    for (int i = 0; i < 3; ++i) {
        for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
        launch_and_wait(exec, stream);
        for (const Buffer* buffer : {&a, &b, &c}) EXPECT(buffer->resident());
        EXPECT(b.read() == plus(pattern(kBuffer, 1), 1));
        EXPECT(c.read() == plus(pattern(kBuffer, 1), 2));
    }
}

FAMILY_TEST("graphs: the bodies of conditional nodes are brought in and kept like the rest",
            "conditional-nodes") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const CUgraph graph = new_graph();
    const Add sum(b.at(), a.at(), 1);
    const CUgraph body = add_branch(graph, gpu, true);
    add_copy(body, copy_of(c.at(), b.at()), gpu, add_kernel(body, sum.params));
    Crowd crowd;
    for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
    const CUgraphExec exec = instantiate(graph);
    crowd.press();
    EXPECT(b.resident());
    EXPECT(c.resident());
    crowd.evict(a);
    launch_and_wait(exec, stream);
    EXPECT(a.resident());
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 1));
    EXPECT(c.read() == plus(pattern(kBuffer, 1), 1));
}

namespace {

// Bytes allocated more after graphs have come and gone, each with a conditional node in a conditional node.
constexpr std::size_t kGraphs = 400;
template <typename Add, typename Destroy>
std::size_t growth(CUcontext context, Add add, Destroy destroy) {
    const std::size_t before = mallinfo2().uordblks;
    std::vector<CUgraph> graphs(kGraphs);
    for (CUgraph& graph : graphs) {
        graph = new_graph();
        CUgraph in = graph;
        for (int depth = 0; depth < 2; ++depth) {
            CUgraphNodeParams branch{};
            branch.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
            branch.conditional.type = CU_GRAPH_COND_TYPE_IF;
            branch.conditional.size = 1;
            branch.conditional.ctx = context;
            OK(cuGraphConditionalHandleCreate, &branch.conditional.handle, in, context, 1, 0);
            CUgraphNode node = nullptr;
            EXPECT(add(&node, in, nullptr, nullptr, 0, &branch) == CUDA_SUCCESS);
            in = branch.conditional.phGraph_out[0];
        }
    }
    for (const CUgraph graph : graphs) EXPECT(destroy(graph) == CUDA_SUCCESS);
    const std::size_t own = graphs.capacity() * sizeof(CUgraph);
    const std::size_t after = mallinfo2().uordblks - own;
    return after > before ? after - before : 0;
}

}  // namespace

// Their bodies are told once; what is kept of that goes with the graph.
FAMILY_TEST("graphs: what is known of conditional nodes goes with their graph", "conditional-nodes-end") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    // What the driver itself keeps.
    growth(gpu.context, SIM(cuGraphAddNode_v2), SIM(cuGraphDestroy));
    EXPECT(growth(gpu.context, CU(cuGraphAddNode_v2), CU(cuGraphDestroy)) < 2 * kGraphs * 2 * sizeof(void*));
}

FAMILY_TEST("graphs: executable nodes changed to buffers that are out, again and again",
            "graph-exec-changes") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Buffer c(kBuffer, 3);
    Buffer d(kBuffer, 4);
    const Add first(b.at(), a.at(), 1);
    const CUgraph child = new_graph();
    const CUgraphNode in_child = add_copy(child, copy_of(b.at(), a.at()), gpu);
    const CUgraph graph = new_graph();
    const CUgraphNode nested = [&] {
        CUgraphNode node = nullptr;
        OK(cuGraphAddChildGraphNode, &node, graph, nullptr, 0, child);
        return node;
    }();
    const CUgraphNode sum = add_kernel(graph, first.params, nested);
    const CUgraphNode set = add_set(graph, set_of(a.at(), 1), gpu, sum);
    const CUgraphNode copy = add_copy(graph, copy_of(b.at(), a.at()), gpu, set);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;

    const Add other(d.at(), c.at(), 6);
    const CUDA_KERNEL_NODE_PARAMS_v1 first_v1 = before_12(first.params);
    const CUDA_KERNEL_NODE_PARAMS_v1 other_v1 = before_12(other.params);
    CUgraphNodeParams general{};
    const auto evict = [&] {
        crowd.evict(c);
        crowd.evict(d);
    };
    // Each is tried alone: the node changed, launched, and changed to what is there anyway.
    const auto tried = [&](auto&& change, auto&& change_back, const std::vector<std::uint8_t>& expected) {
        c.fill(3);
        d.fill(4);
        evict();
        change();
        crowd.press();
        launch_and_wait(exec, stream);
        EXPECT(d.read() == expected);
        change_back();
        evict();
    };
    const CUDA_MEMCPY3D there = copy_of(d.at(), c.at());
    const CUDA_MEMCPY3D back = copy_of(b.at(), a.at());
    const CUDA_MEMSET_NODE_PARAMS set_there = set_of(d.at(), 8);
    const CUDA_MEMSET_NODE_PARAMS set_back = set_of(a.at(), 1);
    for (int i = 0; i < 2; ++i) {
        tried([&] { OK(cuGraphExecKernelNodeSetParams_v2, exec, sum, &other.params); },
              [&] { OK(cuGraphExecKernelNodeSetParams_v2, exec, sum, &first.params); },
              plus(pattern(kBuffer, 3), 6));
        tried([&] { OK(cuGraphExecKernelNodeSetParams, exec, sum, &other_v1); },
              [&] { OK(cuGraphExecKernelNodeSetParams, exec, sum, &first_v1); },
              plus(pattern(kBuffer, 3), 6));
        tried([&] { OK(cuGraphExecMemcpyNodeSetParams, exec, copy, &there, gpu.context); },
              [&] { OK(cuGraphExecMemcpyNodeSetParams, exec, copy, &back, gpu.context); },
              pattern(kBuffer, 3));
        tried([&] { OK(cuGraphExecMemsetNodeSetParams, exec, set, &set_there, gpu.context); },
              [&] { OK(cuGraphExecMemsetNodeSetParams, exec, set, &set_back, gpu.context); }, all(8));
        tried(
            [&] {
                general = {};
                general.type = CU_GRAPH_NODE_TYPE_MEMCPY;
                general.memcpy.copyParams = there;
                general.memcpy.copyCtx = gpu.context;
                OK(cuGraphExecNodeSetParams, exec, copy, &general);
            },
            [&] {
                general.memcpy.copyParams = back;
                OK(cuGraphExecNodeSetParams, exec, copy, &general);
            },
            pattern(kBuffer, 3));
        tried(
            [&] {
                OK(cuGraphMemcpyNodeSetParams, in_child, &there);
                OK(cuGraphExecChildGraphNodeSetParams, exec, nested, child);
            },
            [&] {
                OK(cuGraphMemcpyNodeSetParams, in_child, &back);
                OK(cuGraphExecChildGraphNodeSetParams, exec, nested, child);
            },
            pattern(kBuffer, 3));
        tried(
            [&] {
                OK(cuGraphMemsetNodeSetParams, set, &set_there);
                CUgraphExecUpdateResultInfo info{};
                OK(cuGraphExecUpdate_v2, exec, graph, &info);
            },
            [&] {
                OK(cuGraphMemsetNodeSetParams, set, &set_back);
                CUgraphExecUpdateResultInfo info{};
                OK(cuGraphExecUpdate_v2, exec, graph, &info);
            },
            all(8));
        CUgraphNode at_fault = nullptr;
        CUgraphExecUpdateResult result{};
        tried(
            [&] {
                OK(cuGraphMemsetNodeSetParams, set, &set_there);
                OK(cuGraphExecUpdate, exec, graph, &at_fault, &result);
            },
            [&] {
                OK(cuGraphMemsetNodeSetParams, set, &set_back);
                OK(cuGraphExecUpdate, exec, graph, &at_fault, &result);
            },
            all(8));
    }
}

FAMILY_TEST("graphs: made by every form of instantiation, launched by every form of launch", "graph-forms") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const Add sum(c.at(), a.at(), 1);
    const CUgraph graph = new_graph();
    add_kernel(graph, sum.params, add_copy(graph, copy_of(b.at(), a.at()), gpu));
    Crowd crowd;
    const auto check = [&](auto&& make, auto launch) {
        for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
        CUgraphExec exec = nullptr;
        EXPECT(make(&exec) == CUDA_SUCCESS);
        crowd.press();
        EXPECT(a.resident());
        EXPECT(b.resident());
        crowd.evict(c);
        EXPECT(launch(exec, stream) == CUDA_SUCCESS);
        EXPECT(c.resident());
        OK(cuStreamSynchronize, stream);
        EXPECT(b.holds(1));
        EXPECT(c.read() == plus(pattern(kBuffer, 1), 1));
        OK(cuGraphExecDestroy, exec);
        OK(cuMemsetD8_v2, b.at(), 9, kBuffer);
        OK(cuMemsetD8_v2, c.at(), 9, kBuffer);
    };
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.hUploadStream = stream;
    const auto launch = CU(cuGraphLaunch);
    check([&](CUgraphExec* exec) { return CU(cuGraphInstantiate)(exec, graph, nullptr, nullptr, 0); },
          CU(cuGraphLaunch_ptsz));
    check([&](CUgraphExec* exec) { return CU(cuGraphInstantiate_v2)(exec, graph, nullptr, nullptr, 0); },
          launch);
    check([&](CUgraphExec* exec) { return CU(cuGraphInstantiateWithFlags)(exec, graph, 0); }, launch);
    check([&](CUgraphExec* exec) { return CU(cuGraphInstantiateWithParams)(exec, graph, &params); }, launch);
    check([&](CUgraphExec* exec) { return CU(cuGraphInstantiateWithParams_ptsz)(exec, graph, &params); },
          launch);
}

FAMILY_TEST("graphs: destroyed while they run", "graphs-destroyed") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.press();
    Gate gate;
    const CUgraph graph = new_graph();
    add_copy(graph, copy_of(b.at(), a.at()), gpu, gate.add_to(graph));
    const CUgraphExec exec = instantiate(graph);
    OK(cuGraphLaunch, exec, stream);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(a.resident());
    EXPECT(b.resident());
    gate.open();
    OK(cuStreamSynchronize, stream);
    crowd.evict(a);
    crowd.evict(b);
    EXPECT(b.holds(1));
}

FAMILY_TEST("graphs: buffers freed before the graph that names them") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUgraph graph = new_graph();
    CUgraphExec exec = nullptr;
    {
        const Buffer a(kBuffer, 1);
        const Buffer b(kBuffer, 2);
        const Add sum(b.at(), a.at(), 1);
        add_kernel(graph, sum.params, add_copy(graph, copy_of(b.at(), a.at()), gpu));
        exec = instantiate(graph);
        launch_and_wait(exec, stream);
        EXPECT(b.read() == plus(pattern(kBuffer, 1), 1));
    }
    // What is there now is no part of the graph.
    const Buffer c(kBuffer, 3);
    const Buffer d(kBuffer, 4);
    Crowd crowd;
    crowd.evict(c);
    crowd.evict(d);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    EXPECT(c.holds(3));
    EXPECT(d.holds(4));
}
