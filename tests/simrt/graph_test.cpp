// Graphs at the driver: what their nodes hold, updates, and the rules for memory under copies.
#include <atomic>
#include <thread>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/vmm.h"

namespace {

using namespace sim;

constexpr std::size_t kBytes = 4096;

CUdeviceptr allocate(std::uint8_t value) {
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kBytes);
    OK(cuMemsetD8, p, value, kBytes);
    OK(cuCtxSynchronize);
    return p;
}

CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from, std::size_t bytes = kBytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
}

CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate, &exec, graph, 0);
    return exec;
}

void run_now(CUgraphExec exec) {
    OK(cuGraphLaunch, exec, CU_STREAM_PER_THREAD);
    OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
}

SIM_TEST("graph: a kernel node keeps its arguments and gives them back", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr out = allocate(0);
    std::uint32_t value = 5;
    void* arguments[] = {&out, &value};
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = kernels["store"];
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = arguments;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphAddKernelNode, &node, graph, nullptr, 0, &parameters);
    value = 6;  // too late
    CUgraphExec exec = instantiate(graph);
    run_now(exec);
    EXPECT(read_back(out, 4) == std::vector<std::uint8_t>({5, 0, 0, 0}));

    CUDA_KERNEL_NODE_PARAMS held{};
    OK(cuGraphKernelNodeGetParams, node, &held);
    EXPECT(held.func == parameters.func);
    EXPECT(*static_cast<CUdeviceptr*>(held.kernelParams[0]) == out);
    EXPECT(*static_cast<std::uint32_t*>(held.kernelParams[1]) == 5);

    // The executable one is changed apart from the graph.
    OK(cuGraphExecKernelNodeSetParams, exec, node, &parameters);
    run_now(exec);
    EXPECT(read_back(out, 4) == std::vector<std::uint8_t>({6, 0, 0, 0}));
    OK(cuGraphKernelNodeGetParams, node, &held);
    EXPECT(*static_cast<std::uint32_t*>(held.kernelParams[1]) == 5);
    parameters.blockDimX = 5000;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode, &node, graph, nullptr, 0, &parameters);
}

SIM_TEST("graph: edges are kept and listed", {}) {
    const Gpu gpu;
    CUgraph graph = nullptr, other = nullptr;
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphCreate, &other, 0);
    CUgraphNode a = nullptr, b = nullptr, c = nullptr, d = nullptr;
    OK(cuGraphAddEmptyNode, &a, graph, nullptr, 0);
    OK(cuGraphAddEmptyNode, &b, graph, &a, 1);
    OK(cuGraphAddEmptyNode, &c, graph, nullptr, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode, &d, other, &a, 1);
    OK(cuGraphAddDependencies, graph, &b, &c, nullptr, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies, graph, &b, &c, nullptr, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies, graph, &a, &a, nullptr, 1);
    CUgraphNode found[4] = {};
    std::size_t count = 4;
    OK(cuGraphNodeGetDependentNodes, b, found, nullptr, &count);
    EXPECT(count == 1);
    EXPECT(found[0] == c);
    EXPECT(found[1] == nullptr);
    count = 4;
    OK(cuGraphGetRootNodes, graph, found, &count);
    EXPECT(count == 1);
    EXPECT(found[0] == a);
    OK(cuGraphRemoveDependencies, graph, &a, &b, nullptr, 1);
    OK(cuGraphGetRootNodes, graph, nullptr, &count);
    EXPECT(count == 2);
    OK(cuGraphDestroyNode, b);
    OK(cuGraphGetEdges, graph, nullptr, nullptr, nullptr, &count);
    EXPECT(count == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode, b);
    OK(cuGraphDestroy, graph);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode, a);
}

SIM_TEST("graph: nodes run after what they depend on, whatever the order they were added in", {}) {
    const Gpu gpu;
    CUdeviceptr p = allocate(0), q = allocate(0);
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    CUDA_MEMSET_NODE_PARAMS fill{p, 0, 0x21, 1, kBytes, 1};
    CUDA_MEMCPY3D copy = copy_of(q, p);
    CUgraphNode copying = nullptr, filling = nullptr;
    OK(cuGraphAddMemcpyNode, &copying, graph, nullptr, 0, &copy, gpu.context);
    OK(cuGraphAddMemsetNode, &filling, graph, nullptr, 0, &fill, gpu.context);
    OK(cuGraphAddDependencies, graph, &filling, &copying, nullptr, 1);
    run_now(instantiate(graph));
    EXPECT(read_back(q, kBytes) == std::vector<std::uint8_t>(kBytes, 0x21));
}

SIM_TEST("graph: launches of one graph follow one another, on whatever streams", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = allocate(0);
    CUstream streams[3];
    for (CUstream& stream : streams) OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture, streams[0], CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < 3; ++i) LAUNCH(kernels["increment"], 4, 256, streams[0], p, p, 1024u);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, streams[0], &graph);
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 20; ++i) OK(cuGraphLaunch, exec, streams[i % 3]);
    OK(cuGraphExecDestroy, exec);  // what is on its way goes on
    OK(cuCtxSynchronize);
    const auto bytes = read_back(p, kBytes);
    for (std::size_t i = 0; i < kBytes; i += 4) EXPECT(bytes[i] == 60);
}

SIM_TEST("graph: a copy works on the memory that was mapped when it was instantiated", {}) {
    const Gpu gpu;
    const std::size_t size = kGranule;
    CUdeviceptr address = 0, plain = 0;
    OK(cuMemAlloc, &plain, size);
    OK(cuMemAddressReserve, &address, size, 0, 0, 0);
    CUmemGenericAllocationHandle first = create(size), second = create(size);
    map(address, size, first);
    CUDA_MEMCPY3D copy = copy_of(address, plain, size);
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy, gpu.context);
    CUgraphExec exec = instantiate(graph);
    run_now(exec);

    OK(cuMemUnmap, address, size);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, exec, CU_STREAM_PER_THREAD);
    map(address, size, second);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, exec, CU_STREAM_PER_THREAD);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams, exec, node, &copy, gpu.context);
    CUgraphExecUpdateResultInfo info{};
    OK(cuGraphExecUpdate, exec, graph, &info);
    run_now(exec);

    // The first memory again: what was recorded is what counts, not that it changed in between.
    OK(cuMemUnmap, address, size);
    map(address, size, first);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, exec, CU_STREAM_PER_THREAD);
    OK(cuMemUnmap, address, size);
    map(address, size, second);
    run_now(exec);
}

SIM_TEST("graph: a kernel works on whatever is mapped when it runs", {}) {
    const Gpu gpu;
    const Kernels kernels;
    const std::size_t size = kGranule;
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve, &address, size, 0, 0, 0);
    CUmemGenericAllocationHandle first = create(size), second = create(size);
    map(address, size, first);
    OK(cuStreamBeginCapture, CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
    LAUNCH(kernels["store"], 1, 1, CU_STREAM_PER_THREAD, address, 77u);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, CU_STREAM_PER_THREAD, &graph);
    CUgraphExec exec = instantiate(graph);
    OK(cuMemUnmap, address, size);
    map(address, size, second);
    run_now(exec);
    EXPECT(read_back(address, 4) == std::vector<std::uint8_t>({77, 0, 0, 0}));
}

SIM_TEST("graph: an update says what does not match and changes nothing", {}) {
    const Gpu gpu;
    CUdeviceptr p = allocate(0);
    auto fill_graph = [&](std::uint32_t value, bool extra) {
        CUgraph graph = nullptr;
        CUgraphNode node = nullptr;
        OK(cuGraphCreate, &graph, 0);
        CUDA_MEMSET_NODE_PARAMS fill{p, 0, value, 1, kBytes, 1};
        OK(cuGraphAddMemsetNode, &node, graph, nullptr, 0, &fill, gpu.context);
        if (extra) OK(cuGraphAddEmptyNode, &node, graph, &node, 1);
        return graph;
    };
    CUgraph empty = nullptr;
    CUgraphNode node = nullptr;
    OK(cuGraphCreate, &empty, 0);
    OK(cuGraphAddEmptyNode, &node, empty, nullptr, 0);
    CUgraphExec exec = instantiate(fill_graph(1, false));
    CUgraphExecUpdateResultInfo info{};
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate, exec, fill_graph(2, true), &info);
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate, exec, empty, &info);
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT(info.errorNode == node);
    run_now(exec);
    EXPECT(read_back(p, 1) == std::vector<std::uint8_t>({1}));
    OK(cuGraphExecUpdate, exec, fill_graph(3, false), &info);
    run_now(exec);
    EXPECT(read_back(p, 1) == std::vector<std::uint8_t>({3}));
}

SIM_TEST("graph: takes device memory while it can be launched, and can want for it",
         {{"SIMCUDA_GRAPH_BYTES", "256K"}, {"SIMCUDA_MEMORY", "8M"}}) {
    const Gpu gpu;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    OK(cuGraphCreate, &graph, 0);
    for (int i = 0; i < 4; ++i) OK(cuGraphAddEmptyNode, &node, graph, nullptr, 0);
    const std::size_t before = free_bytes();
    CUgraphExec exec = instantiate(graph);
    EXPECT(free_bytes() == before - (4u << 18));
    CUdeviceptr filler = 0;
    OK(cuMemAlloc, &filler, free_bytes() - (1u << 19));
    CUgraphExec another = nullptr;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphInstantiate, &another, graph, 0);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphInstantiate, &another, graph, 0);
}

SIM_TEST("graph: user objects live as long as a graph holds them", {}) {
    const Gpu gpu;
    static std::atomic<int> destroyed{0};
    CUuserObject object = nullptr;
    OK(
        cuUserObjectCreate, &object, nullptr, [](void*) { ++destroyed; }, 1,
        CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphRetainUserObject, graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphDestroy, graph);
    EXPECT(destroyed == 0);
    OK(cuGraphExecDestroy, exec);
    while (destroyed == 0) std::this_thread::yield();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease, object, 1);
}

}  // namespace
