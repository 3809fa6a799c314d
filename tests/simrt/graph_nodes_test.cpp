// Graph nodes that allocate, free and branch, at the driver: their rules and updates.
#include <chrono>
#include <thread>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr std::size_t kBytes = 4096;

CUgraph create_graph() {
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    return graph;
}

CUDA_MEM_ALLOC_NODE_PARAMS allocation(std::size_t bytes = kBytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    parameters.bytesize = bytes;
    return parameters;
}

// A graph that allocates only, and where.
CUgraph allocating(CUdeviceptr& address, std::size_t bytes = kBytes) {
    CUgraph graph = create_graph();
    CUgraphNode node = nullptr;
    auto parameters = allocation(bytes);
    OK(cuGraphAddMemAllocNode, &node, graph, nullptr, 0, &parameters);
    address = parameters.dptr;
    return graph;
}

CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate, &exec, graph, 0);
    return exec;
}

CUgraphConditionalHandle handle_for(const Gpu& gpu, CUgraph graph, unsigned value) {
    CUgraphConditionalHandle handle = 0;
    OK(cuGraphConditionalHandleCreate, &handle, graph, gpu.context, value, CU_GRAPH_COND_ASSIGN_DEFAULT);
    return handle;
}

CUgraphNodeParams conditional(const Gpu& gpu, CUgraphConditionalHandle handle,
                              CUgraphConditionalNodeType type, unsigned size) {
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    parameters.conditional.handle = handle;
    parameters.conditional.type = type;
    parameters.conditional.size = size;
    parameters.conditional.ctx = gpu.context;
    return parameters;
}

// An if whose condition holds: the body fills `to` with `value`.
CUgraph filling_if(const Gpu& gpu, CUdeviceptr to, std::uint8_t value, CUgraphNode& fill) {
    CUgraph graph = create_graph();
    auto parameters = conditional(gpu, handle_for(gpu, graph, 1), CU_GRAPH_COND_TYPE_IF, 1);
    CUgraphNode node = nullptr;
    OK(cuGraphAddNode, &node, graph, nullptr, nullptr, 0, &parameters);
    const CUDA_MEMSET_NODE_PARAMS memset{to, 0, value, 1, kBytes, 1};
    OK(cuGraphAddMemsetNode, &fill, parameters.conditional.phGraph_out[0], nullptr, 0, &memset, gpu.context);
    return graph;
}

SIM_TEST("graph memory: accessible from the launch that allocates to the free, and not else", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = 0;
    CUgraphExec exec = instantiate(allocating(p));
    OK(cuGraphLaunch, exec, nullptr);
    LAUNCH(kernels["store"], 1, 1, nullptr, p, 5u);
    EXPECT(read_back(p, 1)[0] == 5);
    OK(cuMemFree, p);
    LAUNCH(kernels["store"], 1, 1, nullptr, p, 5u);
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize);
}

SIM_TEST("graph memory: another graph frees it, once, and a launch without it is refused", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    const CUgraph first = allocating(p), second = create_graph();
    CUgraphNode node = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode, &node, second, nullptr, 0, p + 1);
    OK(cuGraphAddMemFreeNode, &node, second, nullptr, 0, p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode, &node, second, nullptr, 0, p);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode, &node, first, nullptr, 0, p);
    CUdeviceptr held = 0;
    OK(cuGraphMemFreeNodeGetParams, node, &held);
    EXPECT(held == p);
    const CUgraphExec allocates = instantiate(first), frees = instantiate(second);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, frees, nullptr);
    const std::size_t before = free_bytes();
    for (int round = 0; round < 3; ++round) {
        OK(cuGraphLaunch, allocates, nullptr);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, allocates, nullptr);
        EXPECT(free_bytes() == before - kBytes);
        OK(cuGraphLaunch, frees, nullptr);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, frees, nullptr);
        OK(cuCtxSynchronize);
        EXPECT(free_bytes() == before);
    }
}

SIM_TEST("graph memory: the launch is out of memory, and nothing of it stays", {{"SIMCUDA_MEMORY", "16M"}}) {
    const Gpu gpu;
    const CUgraph graph = create_graph();
    CUgraphNode node = nullptr;
    for (int i = 0; i < 3; ++i) {
        auto parameters = allocation(6 << 20);
        OK(cuGraphAddMemAllocNode, &node, graph, nullptr, 0, &parameters);
    }
    const CUgraphExec exec = instantiate(graph);
    const std::size_t before = free_bytes();
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch, exec, nullptr);
    EXPECT(free_bytes() == before);
    auto parameters = allocation(0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode, &node, graph, nullptr, 0, &parameters);
    parameters = allocation();
    parameters.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode, &node, graph, nullptr, 0, &parameters);
}

// Graphs that each allocate, fill with a byte of their own, copy that out and free.
struct Passing {
    explicit Passing(const Gpu& gpu, std::uint8_t value, void* out) {
        const CUgraph graph = create_graph();
        CUgraphNode last = nullptr;
        auto parameters = allocation(kRoom);
        OK(cuGraphAddMemAllocNode, &last, graph, nullptr, 0, &parameters);
        const CUDA_MEMSET_NODE_PARAMS memset{parameters.dptr, 0, value, 1, kRoom, 1};
        OK(cuGraphAddMemsetNode, &last, graph, &last, 1, &memset, gpu.context);
        CUDA_MEMCPY3D copy{};
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcDevice = parameters.dptr;
        copy.dstHost = out;
        copy.WidthInBytes = kRoom;
        copy.Height = copy.Depth = 1;
        OK(cuGraphAddMemcpyNode, &last, graph, &last, 1, &copy, gpu.context);
        OK(cuGraphAddMemFreeNode, &last, graph, &last, 1, parameters.dptr);
        exec = instantiate(graph);
    }

    static constexpr std::size_t kRoom = 4 << 20;
    CUgraphExec exec = nullptr;
};

// What begins when the program says so.
struct Gate {
    Gate() {
        OK(cuMemHostAlloc, &word, 4, 0);
        *static_cast<volatile std::uint32_t*>(word) = 0;
    }
    void hold(CUstream stream) const {
        OK(cuStreamWaitValue32, stream, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_EQ);
    }
    void open() const { __atomic_store_n(static_cast<std::uint32_t*>(word), 1, __ATOMIC_RELEASE); }

    void* word = nullptr;
};

SIM_TEST("graph memory: launches one behind another take the memory of one", {{"SIMCUDA_MEMORY", "15M"}}) {
    const Gpu gpu;
    constexpr int kGraphs = 4;
    std::uint8_t* out = nullptr;
    OK(cuMemHostAlloc, reinterpret_cast<void**>(&out), kGraphs * Passing::kRoom, 0);
    std::vector<Passing> graphs;
    for (int i = 0; i < kGraphs; ++i)
        graphs.emplace_back(gpu, static_cast<std::uint8_t>(i + 1), out + i * Passing::kRoom);
    CUstream streams[2] = {};
    for (CUstream& stream : streams) OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const auto used = [] {
        std::uint64_t bytes = 0;
        OK(cuDeviceGetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes);
        return bytes;
    };
    const std::size_t before = free_bytes();
    const Gate gate;
    for (const CUstream stream : streams) gate.hold(stream);
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 3; ++i) OK(cuGraphLaunch, graphs[i].exec, streams[0]);
        EXPECT(before - free_bytes() == Passing::kRoom);
        EXPECT(used() == Passing::kRoom);
    }
    // Nothing orders another stream behind that one.
    OK(cuGraphLaunch, graphs[3].exec, streams[1]);
    EXPECT(before - free_bytes() == 2 * Passing::kRoom);
    EXPECT(used() == 2 * Passing::kRoom);
    gate.open();
    OK(cuCtxSynchronize);
    EXPECT(free_bytes() == before);
    EXPECT(used() == 0);
    for (int i = 0; i < kGraphs; ++i) {
        const std::uint8_t* bytes = out + i * Passing::kRoom;
        EXPECT(std::vector<std::uint8_t>(bytes, bytes + Passing::kRoom) ==
               std::vector<std::uint8_t>(Passing::kRoom, static_cast<std::uint8_t>(i + 1)));
    }
}

SIM_TEST("graph memory: what one launch keeps is no other's", {}) {
    const Gpu gpu;
    std::uint8_t* out = nullptr;
    OK(cuMemHostAlloc, reinterpret_cast<void**>(&out), 2 * Passing::kRoom, 0);
    const Passing first(gpu, 1, out), second(gpu, 2, out + Passing::kRoom);
    CUdeviceptr kept = 0;
    const CUgraphExec keeps = instantiate(allocating(kept, Passing::kRoom));
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const std::size_t before = free_bytes();
    const Gate gate;
    gate.hold(stream);
    OK(cuGraphLaunch, first.exec, stream);
    OK(cuGraphLaunch, keeps, stream);  // has the memory of the first from here on
    EXPECT(before - free_bytes() == Passing::kRoom);
    OK(cuMemsetD8Async, kept, 3, Passing::kRoom, stream);
    OK(cuGraphLaunch, second.exec, stream);
    EXPECT(before - free_bytes() == 2 * Passing::kRoom);
    // The first has none until its earlier launch, and so the gate, is behind it.
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        gate.open();
    });
    OK(cuGraphLaunch, first.exec, stream);
    opener.join();
    OK(cuCtxSynchronize);
    EXPECT(before - free_bytes() == Passing::kRoom);
    EXPECT(read_back(kept, Passing::kRoom) == std::vector<std::uint8_t>(Passing::kRoom, 3));
    OK(cuMemFree, kept);
    EXPECT(free_bytes() == before);
}

SIM_TEST("graph memory: in a child graph that is moved, not in one that is copied", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    const CUgraph child = allocating(p), parent = create_graph();
    CUgraphNode node = nullptr;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode, &node, parent, nullptr, 0, child);
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
    parameters.graph.graph = child;
    parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    OK(cuGraphAddNode, &node, parent, nullptr, nullptr, 0, &parameters);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy, child);
    auto more = allocation();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode, &node, child, nullptr, 0, &more);
    CUgraphExec exec = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate, &exec, child, 0);
    OK(cuGraphLaunch, instantiate(parent), nullptr);
    OK(cuMemsetD8, p, 3, kBytes);
    EXPECT(read_back(p, kBytes) == std::vector<std::uint8_t>(kBytes, 3));
    OK(cuMemFree, p);
}

SIM_TEST("graph: a launch that is captured is a child graph, as the executable one is then", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kBytes);
    const CUgraph graph = create_graph();
    CUgraphNode fill = nullptr, node = nullptr;
    CUDA_MEMSET_NODE_PARAMS memset{p, 0, 1, 1, kBytes, 1};
    OK(cuGraphAddMemsetNode, &fill, graph, nullptr, 0, &memset, gpu.context);
    std::uint32_t count = kBytes / 4;
    void* arguments[] = {&p, &p, &count};
    CUDA_KERNEL_NODE_PARAMS kernel{};
    kernel.func = kernels["increment"];
    kernel.gridDimX = 8;
    kernel.blockDimX = 128;
    kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = arguments;
    OK(cuGraphAddKernelNode, &node, graph, &fill, 1, &kernel);
    const CUgraphExec inner = instantiate(graph);
    memset.value = 4;
    OK(cuGraphExecMemsetNodeSetParams, inner, fill, &memset, gpu.context);

    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuGraphLaunch, inner, stream);
    LAUNCH(kernels["increment"], 8, 128, stream, p, p, count);
    CUgraph captured = nullptr;
    OK(cuStreamEndCapture, stream, &captured);
    OK(cuGraphExecDestroy, inner);
    CUgraphNode nodes[4] = {};
    std::size_t found = 4;
    OK(cuGraphGetNodes, captured, nodes, &found);
    EXPECT(found == 2);
    CUgraphNodeType type{};
    OK(cuGraphNodeGetType, nodes[0], &type);
    EXPECT(type == CU_GRAPH_NODE_TYPE_GRAPH);
    CUgraph child = nullptr;
    OK(cuGraphChildGraphNodeGetGraph, nodes[0], &child);
    found = 4;
    OK(cuGraphGetEdges, child, nullptr, nullptr, nullptr, &found);
    EXPECT(found == 1);
    const CUgraphExec outer = instantiate(captured);
    for (int i = 0; i < 2; ++i) OK(cuGraphLaunch, outer, stream);
    OK(cuStreamSynchronize, stream);
    std::vector<std::uint8_t> expected(kBytes, 4);
    for (std::size_t i = 0; i < kBytes; i += 4) expected[i] = 6;
    EXPECT(read_back(p, kBytes) == expected);

    // What cannot be held twice cannot be a child.
    CUdeviceptr q = 0;
    const CUgraphExec allocates = instantiate(allocating(q));
    OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphLaunch, allocates, stream);
    OK(cuStreamEndCapture, stream, &captured);
}

SIM_TEST("conditional: which handles and sizes a node takes", {}) {
    const Gpu gpu;
    const CUgraph graph = create_graph(), other = create_graph();
    CUgraphConditionalHandle handle = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphConditionalHandleCreate, &handle, graph, gpu.context, 0, 2);
    handle = handle_for(gpu, graph, 0);
    CUgraphNode node = nullptr;
    const auto refused = [&](CUgraph in, CUgraphConditionalHandle with, CUgraphConditionalNodeType type,
                             unsigned size) {
        auto parameters = conditional(gpu, with, type, size);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode, &node, in, nullptr, nullptr, 0, &parameters);
    };
    refused(graph, handle, CU_GRAPH_COND_TYPE_IF, 3);
    refused(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 2);
    refused(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 0);
    refused(graph, handle + 1, CU_GRAPH_COND_TYPE_IF, 1);
    refused(other, handle, CU_GRAPH_COND_TYPE_IF, 1);
    CUDA_GRAPH_INSTANTIATE_PARAMS how{};
    CUgraphExec exec = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams, &exec, graph, &how);
    EXPECT(how.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    auto parameters = conditional(gpu, handle, CU_GRAPH_COND_TYPE_IF, 1);
    OK(cuGraphAddNode, &node, graph, nullptr, nullptr, 0, &parameters);
    refused(graph, handle, CU_GRAPH_COND_TYPE_IF, 1);  // has its node
    CUgraphNodeType type{};
    OK(cuGraphNodeGetType, node, &type);
    EXPECT(type == CU_GRAPH_NODE_TYPE_CONDITIONAL);
    // Host functions cannot be in a body.
    const CUDA_HOST_NODE_PARAMS function{[](void*) {}, nullptr};
    OK(cuGraphAddHostNode, &node, parameters.conditional.phGraph_out[0], nullptr, 0, &function);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate, &exec, graph, 0);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode, &node, other, nullptr, 0, graph);
}

SIM_TEST("conditional: bodies are updated with the graph, and node by node", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0, q = 0;
    OK(cuMemAlloc, &p, kBytes);
    OK(cuMemAlloc, &q, kBytes);
    CUgraphNode first = nullptr, second = nullptr;
    const CUgraphExec exec = instantiate(filling_if(gpu, p, 1, first));
    const auto run_now = [&] {
        OK(cuGraphLaunch, exec, nullptr);
        OK(cuCtxSynchronize);
    };
    run_now();
    EXPECT(read_back(p, kBytes) == std::vector<std::uint8_t>(kBytes, 1));
    const CUDA_MEMSET_NODE_PARAMS other{p, 0, 2, 1, kBytes, 1};
    OK(cuGraphExecMemsetNodeSetParams, exec, first, &other, gpu.context);
    run_now();
    EXPECT(read_back(p, kBytes) == std::vector<std::uint8_t>(kBytes, 2));
    CUgraphExecUpdateResultInfo info{};
    OK(cuGraphExecUpdate, exec, filling_if(gpu, q, 3, second), &info);
    run_now();
    EXPECT(read_back(q, kBytes) == std::vector<std::uint8_t>(kBytes, 3));
    // A body of another shape.
    const CUgraph shaped = filling_if(gpu, q, 4, second);
    CUgraph body = nullptr;
    CUgraphNode node = nullptr;
    std::size_t count = 1;
    OK(cuGraphGetNodes, shaped, &node, &count);
    auto parameters = conditional(gpu, handle_for(gpu, shaped, 0), CU_GRAPH_COND_TYPE_IF, 1);
    OK(cuGraphAddNode, &node, shaped, nullptr, nullptr, 0, &parameters);
    body = parameters.conditional.phGraph_out[0];
    OK(cuGraphAddEmptyNode, &node, body, nullptr, 0);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate, exec, shaped, &info);
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

SIM_TEST("graph: waits for values and writes of them, added and captured", {}) {
    const Gpu gpu;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kBytes);
    OK(cuMemsetD8, p, 0, kBytes);
    const CUgraph graph = create_graph();
    CUstreamBatchMemOpParams items[3] = {};
    items[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, p, {5}, CU_STREAM_WRITE_VALUE_DEFAULT, 0};
    items[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, p, {5}, CU_STREAM_WAIT_VALUE_EQ, 0};
    items[2].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, p + 8, {}, CU_STREAM_WRITE_VALUE_DEFAULT, 0};
    items[2].writeValue.value64 = 0x1'0000'0007;
    CUDA_BATCH_MEM_OP_NODE_PARAMS parameters{gpu.context, 3, items, 0}, held{};
    CUgraphNode node = nullptr;
    OK(cuGraphAddBatchMemOpNode, &node, graph, nullptr, 0, &parameters);
    OK(cuGraphBatchMemOpNodeGetParams, node, &held);
    EXPECT(held.count == 3 && held.paramArray[2].writeValue.value64 == 0x1'0000'0007);
    const CUgraphExec exec = instantiate(graph);
    OK(cuGraphLaunch, exec, nullptr);
    EXPECT(read_back(p, 16) == std::vector<std::uint8_t>({5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0}));
    items[2].writeValue.value64 = 9;
    OK(cuGraphExecBatchMemOpNodeSetParams, exec, node, &parameters);
    OK(cuGraphLaunch, exec, nullptr);
    EXPECT(read_back(p + 8, 8) == std::vector<std::uint8_t>({9, 0, 0, 0, 0, 0, 0, 0}));
    items[0].writeValue.address = p + 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddBatchMemOpNode, &node, graph, nullptr, 0, &parameters);

    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUgraph captured = nullptr;
    OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamWriteValue32, stream, p, 6, 0);
    OK(cuStreamWaitValue32, stream, p, 6, CU_STREAM_WAIT_VALUE_GEQ);
    OK(cuStreamWriteValue32, stream, p + 4, 8, 0);
    OK(cuStreamEndCapture, stream, &captured);
    OK(cuGraphLaunch, instantiate(captured), stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(read_back(p, 8) == std::vector<std::uint8_t>({6, 0, 0, 0, 8, 0, 0, 0}));
}

}  // namespace
