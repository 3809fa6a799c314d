// Graphs whose nodes are launched one by one: they do what they do in a graph.
#include <lms/lms.h>

#include <algorithm>
#include <utility>

#include "tests/entry/graph_steps_rig.h"

using namespace rig;

FAMILY_TEST("graph steps: kernels that name more than the GPU holds", "graph-too-large") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    const CUgraphExec exec = instantiate(rise.graph);
    for (int i = 0; i < 3; ++i) OK(cuGraphLaunch, exec, stream);
    OK(cuGraphLaunch, exec, CU_STREAM_LEGACY);
    OK(cuGraphLaunch_ptsz, exec, nullptr);
    OK(cuCtxSynchronize);
    EXPECT(many.rose(5));
}

FAMILY_TEST("graph steps: each node runs behind those it comes after, whenever it was added") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    std::vector<std::unique_ptr<Add>> adds;
    // Buffer after buffer takes what the one before it has become, from the last node added to the first.
    const CUgraph child = new_graph();
    CUgraphNode later = nullptr;
    for (unsigned i = kBuffers - 1; i > 2; --i) {
        adds.push_back(std::make_unique<Add>(many[i].at(), many[i - 1].at(), 1));
        const CUgraphNode node = add_kernel(child, adds.back()->params);
        if (later) comes_after(child, later, node);
        later = node;
    }
    const CUgraph graph = new_graph();
    CUgraphNode nested = nullptr;
    OK(cuGraphAddChildGraphNode, &nested, graph, nullptr, 0, child);
    const Add second(many[2].at(), many[1].at(), 1);
    const CUgraphNode then = add_kernel(graph, second.params);
    comes_after(graph, nested, then);
    CUgraphNode nothing = nullptr;
    OK(cuGraphAddEmptyNode, &nothing, graph, nullptr, 0);
    comes_after(graph, then, nothing);
    const Add first(many[1].at(), many[0].at(), 1);
    comes_after(graph, nothing, add_kernel(graph, first.params));
    launch_and_wait(instantiate(graph), stream);
    for (unsigned i = 0; i < kBuffers; ++i) EXPECT(many[i].read() == plus(pattern(kBuffer, 0), i));
}

FAMILY_TEST("graph steps: copies and sets of every kind, captured") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Buffer to(kBuffer, 50);
    const Rise rise(many);
    std::uint8_t* pinned = nullptr;
    OK(cuMemAllocHost_v2, reinterpret_cast<void**>(&pinned), 2 * kBuffer);
    std::memcpy(pinned, pattern(kBuffer, 60).data(), kBuffer);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemcpyHtoDAsync_v2, to.at(), pinned, kBuffer, stream);
    OK(cuMemsetD8Async, to.at(0), 1, 256, stream);
    OK(cuMemsetD16Async, to.at(1024), 0x203, 128, stream);
    OK(cuMemsetD32Async, to.at(2048), 0x4050607, 64, stream);
    OK(cuMemsetD2D8Async, to.at(4096), 512, 8, 16, 4, stream);
    OK(cuMemsetD2D16Async, to.at(8192), 512, 0x90a, 16, 4, stream);
    OK(cuMemsetD2D32Async, to.at(16384), 512, 0xb0c0d0e, 16, 4, stream);
    OK(cuMemsetD8Async, to.at(100), 9, 0, stream);
    OK(cuMemcpyDtoDAsync_v2, to.at(kBuffer / 2), to.at(0), kBuffer / 2, stream);
    for (const auto& buffer : many.each) {
        EXPECT(launch("add", kWords, stream, buffer->at(), buffer->at(), 1u, kWords) == CUDA_SUCCESS);
    }
    OK(cuMemcpyDtoHAsync_v2, pinned + kBuffer, to.at(), kBuffer, stream);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    const CUgraphExec exec = instantiate(graph);

    std::vector<std::uint8_t> expected = pattern(kBuffer, 60);
    const auto set = [&](std::size_t at, std::vector<std::uint8_t> value, int count) {
        for (int i = 0; i < count; ++i)
            std::copy(value.begin(), value.end(),
                      expected.begin() + static_cast<long>(at + i * value.size()));
    };
    set(0, {1}, 256);
    set(1024, {3, 2}, 128);
    set(2048, {7, 6, 5, 4}, 64);
    for (std::size_t row = 0; row < 4; ++row) {
        set(4096 + 512 * row, {8}, 16);
        set(8192 + 512 * row, {10, 9}, 16);
        set(16384 + 512 * row, {14, 13, 12, 11}, 16);
    }
    std::copy_n(expected.begin(), kBuffer / 2, expected.begin() + kBuffer / 2);
    for (unsigned i = 1; i <= 2; ++i) {
        std::memset(pinned + kBuffer, 0, kBuffer);
        launch_and_wait(exec, stream);
        EXPECT(many.rose(i));
        EXPECT(to.read() == expected);
        EXPECT(std::memcmp(pinned + kBuffer, expected.data(), kBuffer) == 0);
    }
}

FAMILY_TEST("graph steps: a kernel whose parameters are one buffer") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    Rise rise(many);
    struct {
        CUdeviceptr out, in;
        unsigned k, n;
    } packed{many[0].at(), many[0].at(), 7, kWords};
    std::size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS params = rise.adds[0]->params;
    params.kernelParams = nullptr;
    params.extra = extra;
    add_kernel(rise.graph, params, rise.nodes.back());
    const CUgraphExec exec = instantiate(rise.graph);
    const auto change = [&] {
        packed.k = 9;
        OK(cuGraphExecKernelNodeSetParams_v2, exec, rise.nodes[0], &params);
        packed.k = 0;
    };
    launch_and_wait(exec, stream);
    EXPECT(many[0].read() == plus(pattern(kBuffer, 0), 8));
    change();
    launch_and_wait(exec, stream);
    EXPECT(many[0].read() == plus(pattern(kBuffer, 0), 8 + 9 + 7));
}

FAMILY_TEST("graph steps: nodes are as they were changed last, or off") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    const Buffer to(kBuffer, 50);
    const CUgraphNode fill = add_set(rise.graph, set_of(to.at(), 5), gpu);
    const CUgraphExec exec = instantiate(rise.graph);
    launch_and_wait(exec, stream);
    EXPECT(many.rose(1));
    const Add more(many[0].at(), many[0].at(), 5);
    OK(cuGraphExecKernelNodeSetParams_v2, exec, rise.nodes[0], &more.params);
    const CUDA_MEMSET_NODE_PARAMS set = set_of(to.at(), 6);
    OK(cuGraphExecMemsetNodeSetParams, exec, fill, &set, gpu.context);
    OK(cuGraphNodeSetEnabled, exec, rise.nodes[1], 0);
    launch_and_wait(exec, stream);
    EXPECT(many[0].read() == plus(pattern(kBuffer, 0), 6));
    EXPECT(many[1].read() == plus(pattern(kBuffer, 1), 1));
    EXPECT(to.read() == std::vector<std::uint8_t>(kBuffer, 6));
    OK(cuGraphNodeSetEnabled, exec, rise.nodes[1], 1);
    launch_and_wait(exec, stream);
    EXPECT(many[1].read() == plus(pattern(kBuffer, 1), 2));
    EXPECT(many[2].read() == plus(pattern(kBuffer, 2), 3));
    // What is changed while it is off, and put on then.
    OK(cuGraphNodeSetEnabled, exec, rise.nodes[1], 0);
    OK(cuGraphExecKernelNodeSetParams_v2, exec, rise.nodes[1], &rise.adds[1]->params);
    // Whether it is still off nobody says.
    launch_whole(exec, stream);
    const unsigned more_often = in_place_can_be() ? 1 : 0;
    OK(cuGraphNodeSetEnabled, exec, rise.nodes[1], 1);
    launch_and_wait(exec, stream);
    EXPECT(many[1].read() == plus(pattern(kBuffer, 1), 3));
    EXPECT(many[2].read() == plus(pattern(kBuffer, 2), 4 + more_often));
    // All of it.
    const Rise other(many, 10);
    add_set(other.graph, set_of(to.at(), 7), gpu);
    CUgraphExecUpdateResultInfo info{};
    OK(cuGraphExecUpdate_v2, exec, other.graph, &info);
    launch_and_wait(exec, stream);
    EXPECT(many[2].read() == plus(pattern(kBuffer, 2), 14 + more_often));
    EXPECT(to.read() == std::vector<std::uint8_t>(kBuffer, 7));
}

FAMILY_TEST("graph steps: launches of one graph into several streams run one after the other") {
    const Gpu gpu;
    const CUstream first = new_stream();
    const CUstream second = new_stream();
    const Many many;
    const Rise rise(many);
    const CUgraphExec exec = instantiate(rise.graph);
    Gate gate;
    gate.hold_up(first);
    while_held_up(gate, gpu, [&] {
        OK(cuGraphLaunch, exec, first);
        OK(cuGraphLaunch, exec, second);
        if (in_place_can_be()) EXPECT(stays_busy(second));
    });
    OK(cuStreamSynchronize, second);
    OK(cuStreamQuery, first);
    EXPECT(many.rose(2));
}

// The driver knows nothing of nodes that run by themselves: they would not wait for the graph.
FAMILY_TEST("graph steps: a graph that was launched whole elsewhere stays so") {
    const Gpu gpu;
    const CUstream first = new_stream();
    const CUstream second = new_stream();
    const Many many;
    Crowd crowd;
    const CUgraph graph = new_graph();
    std::vector<std::unique_ptr<Add>> adds;
    std::vector<CUgraphNode> nodes;
    for (int i = 0; i < 5; ++i) {
        adds.push_back(std::make_unique<Add>(many[i].at(), many[i].at(), 1));
        nodes.push_back(add_kernel(graph, adds[i]->params, i > 0 ? nodes[i - 1] : nullptr));
    }
    const CUgraphExec exec = instantiate(graph);
    crowd.evict(many[5]);
    for (int i = 0; i < 5; ++i) crowd.bring_in(many[i]);
    Gate gate;
    gate.hold_up(first);
    OK(cuGraphLaunch, exec, first);
    EXPECT(many[5].evicted());
    const Add other(many[5].at(), many[5].at(), 1);
    OK(cuGraphExecKernelNodeSetParams_v2, exec, nodes[0], &other.params);
    OK(cuGraphLaunch, exec, second);
    EXPECT(stays_busy(second));
    gate.open();
    OK(cuStreamSynchronize, second);
    for (int i = 1; i < 5; ++i) EXPECT(many[i].read() == plus(pattern(kBuffer, i), 2));
    EXPECT(many[5].read() == plus(pattern(kBuffer, 5), 1));
}

FAMILY_TEST("graph steps: the graph is destroyed before they run") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    Gate gate;
    gate.hold_up(stream);
    while_held_up(gate, gpu, [&] {
        const Rise rise(many);
        const CUgraphExec exec = instantiate(rise.graph);
        OK(cuGraphLaunch, exec, stream);
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, rise.graph);
    });
    OK(cuStreamSynchronize, stream);
    EXPECT(many.rose(1));
}

FAMILY_TEST("graph steps: what only a graph can do is launched as one") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    {
        const Rise rise(many);
        CUDA_HOST_NODE_PARAMS call{[](void*) {}, nullptr};
        CUgraphNode node = nullptr;
        OK(cuGraphAddHostNode, &node, rise.graph, nullptr, 0, &call);
        launch_whole(instantiate(rise.graph), stream);
        OK(cuStreamSynchronize, stream);
    }
    // Host memory that is read when the copy runs, which is after this.
    const Rise rise(many);
    const Buffer to(kBuffer, 1);
    std::vector<std::uint8_t> pageable(kBuffer, 1);
    CUDA_MEMCPY3D copy = copy_of(to.at(), 0);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pageable.data();
    add_copy(rise.graph, copy, gpu);
    const CUgraphExec exec = instantiate(rise.graph);
    Gate gate;
    gate.hold_up(stream);
    launch_whole(exec, stream);
    std::fill(pageable.begin(), pageable.end(), 2);
    gate.open();
    OK(cuStreamSynchronize, stream);
    if (in_place_can_be()) {
        EXPECT(to.read() == pageable);
        EXPECT(many.rose(2));
    }
}

// Nobody can take back what has run when another is refused.
FAMILY_TEST("graph steps: none runs where one of them would find no room") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Buffer large(5 * kMiB, 50);
    const Rise rise(many);
    const Add too_much(many[0].at(), large.at(), 1);
    add_kernel(rise.graph, too_much.params, rise.nodes.back());
    launch_whole(instantiate(rise.graph), stream);
    OK(cuStreamSynchronize, stream);
    if (in_place_can_be()) {
        const std::vector<std::uint8_t> read = large.read();
        EXPECT(many[0].read() == plus({read.begin(), read.begin() + kBuffer}, 1));
    } else {
        EXPECT(many.rose(0));
    }
}

FAMILY_TEST("graph steps: a small graph that finds no room beside what another keeps") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const CUgraph keeping = new_graph();
    for (unsigned i = 0; i < 5; ++i) add_set(keeping, set_of(many[i].at(), 7), gpu);
    launch_and_wait(instantiate(keeping), stream);
    const CUgraph graph = new_graph();
    std::vector<std::unique_ptr<Add>> adds;
    for (unsigned i = 5; i < 8; ++i) {
        adds.push_back(std::make_unique<Add>(many[i].at(), many[i].at(), 1));
        add_kernel(graph, adds.back()->params);
    }
    const CUgraphExec exec = instantiate(graph);
    launch_and_wait(exec, stream);
    launch_and_wait(exec, stream);
    for (unsigned i = 0; i < 5; ++i) EXPECT(many[i].read() == std::vector<std::uint8_t>(kBuffer, 7));
    for (unsigned i = 5; i < 8; ++i) EXPECT(many[i].read() == plus(pattern(kBuffer, i), 2));
}

FAMILY_TEST("graph steps: a graph of several contexts is launched whole") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    const Rise own(many);
    CUcontext other = nullptr;
    OK(cuCtxCreate_v2, &other, 0, gpu.device);
    CUDA_KERNEL_NODE_PARAMS params = rise.adds[0]->params;
    OK(cuModuleGetFunction, &params.func, load_kernels(), "add");
    add_kernel(rise.graph, params, rise.nodes.back());
    OK(cuCtxSetCurrent, gpu.context);
    launch_whole(instantiate(rise.graph), stream);
    OK(cuStreamSynchronize, stream);
    launch_and_wait(instantiate(own.graph), stream);
    EXPECT(many[0].read() == plus(pattern(kBuffer, 0), in_place_can_be() ? 3 : 1));
    EXPECT(many[1].read() == plus(pattern(kBuffer, 1), in_place_can_be() ? 2 : 1));
}

namespace {

std::uint64_t launches() {
    lms_counters counters{};
    counters.size = sizeof counters;
    EXPECT(lms_get_counters(&counters) == LMS_OK);
    return counters.launches;
}

}  // namespace

// One after the other they would push out what the next one names.
FAMILY_TEST(
    "graph steps: kernels that each name most of the GPU stay together, where that can be used in place") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer large(3 * kMiB, 1);
    const Buffer a(kBuffer, 2);
    const Buffer b(kBuffer, 3);
    Add more(large.at(), large.at(), 1);
    more.n = 3 * kMiB / 4;
    more.params.gridDimX = more.n / 256;
    const Add more_a(a.at(), a.at(), 2);
    const Add more_b(b.at(), b.at(), 3);
    const CUgraph graph = new_graph();
    CUgraphNode last = nullptr;
    for (const Add* const add : {&more_a, &std::as_const(more), &more_b})
        last = add_kernel(graph, add->params, last);
    const CUgraphExec exec = instantiate(graph);
    const std::uint64_t before = launches();
    launch_and_wait(exec, stream);
    EXPECT(launches() - before == (in_place_can_be() ? 1 : 4));
    EXPECT(large.read() == plus(pattern(3 * kMiB, 1), 1));
    EXPECT(a.read() == plus(pattern(kBuffer, 2), 2));
    EXPECT(b.read() == plus(pattern(kBuffer, 3), 3));
}

// Each block writes its cluster's width.
BODY(launched_in_clusters) {
    constexpr char kText[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry width(.param .u64 out)
{
    .reg .b32 %r<3>; .reg .b64 %a<3>;
    ld.param.u64 %a1, [out];
    mov.u32 %r1, %ctaid.x; mul.wide.u32 %a2, %r1, 4; add.u64 %a1, %a1, %a2;
    mov.u32 %r2, %cluster_nctaid.x;
    st.global.u32 [%a1], %r2;
    ret;
}
)";
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    CUmodule module = nullptr;
    CUfunction width = nullptr;
    OK(cuModuleLoadData, &module, kText);
    OK(cuModuleGetFunction, &width, module, "width");
    CUDA_KERNEL_NODE_PARAMS params{};
    CUdeviceptr out = many[0].at();
    void* arguments[] = {&out};
    params.func = width;
    params.gridDimX = 8;
    params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    const CUgraphNode node = add_kernel(rise.graph, params, rise.nodes.back());
    CUlaunchAttributeValue cluster{};
    cluster.clusterDim = {4, 1, 1};
    OK(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
    const CUgraphExec exec = instantiate(rise.graph);
    launch_and_wait(exec, stream);
    std::vector<std::uint32_t> seen(8);
    OK(cuMemcpyDtoH_v2, seen.data(), out, 8 * sizeof seen[0]);
    EXPECT(seen == std::vector<std::uint32_t>(8, 4));
    // Whether an update changes what is asked for, nobody says.
    CUgraphExecUpdateResultInfo info{};
    OK(cuGraphExecUpdate_v2, exec, rise.graph, &info);
    launch_and_wait(exec, stream);
    cluster.clusterDim = {2, 1, 1};
    OK(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
    OK(cuGraphExecUpdate_v2, exec, rise.graph, &info);
    launch_whole(exec, stream);
}

TEST_CASE("graph steps: kernels are launched in the clusters that their nodes ask for") {
    run_both("launched_in_clusters", Driver::Simulated, {{"SIMCUDA_ARCH", "90"}});
}
