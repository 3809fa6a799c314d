// Graphs whose nodes are launched one by one, beside what other threads do, and what only a driver that
// launches a graph as one can do.
#include <algorithm>
#include <atomic>
#include <functional>

#include "tests/entry/graph_steps_rig.h"

using namespace rig;

// A scratch buffer that two graphs use: each is one piece of work of its stream.
FAMILY_TEST("graph steps: nothing that other threads submit runs between them") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Buffer scratch(kBuffer, 100);
    struct Side {
        Side(const Many& many, const Buffer& scratch, unsigned seed)
            : in(kBuffer, seed),
              out(kBuffer, 1),
              rise(many),
              first(scratch.at(), in.at(), 1),
              last(out.at(), scratch.at(), 0) {
            const CUgraphNode begin = add_kernel(rise.graph, first.params);
            comes_after(rise.graph, rise.nodes.front(), begin);
            add_kernel(rise.graph, last.params, rise.nodes.back());
            exec = instantiate(rise.graph);
        }
        Buffer in, out;
        Rise rise;
        Add first, last;
        CUgraphExec exec;
    };
    const Side sides[] = {{many, scratch, 200}, {many, scratch, 201}};
    for (int round = 0; round < 10; ++round) {
        std::atomic<int> ready{0};
        const auto go = [&](const Side& side) {
            OK(cuCtxSetCurrent, gpu.context);
            for (++ready; ready.load() < 2;) std::this_thread::yield();
            OK(cuGraphLaunch, side.exec, stream);
        };
        std::thread one(go, std::cref(sides[0])), other(go, std::cref(sides[1]));
        one.join();
        other.join();
        OK(cuStreamSynchronize, stream);
        EXPECT(sides[0].out.read() == plus(pattern(kBuffer, 200), 1));
        EXPECT(sides[1].out.read() == plus(pattern(kBuffer, 201), 1));
    }
}

namespace {

// Does `work` in another thread, again and again, while `body` runs.
template <typename Work, typename Body>
void beside(const Gpu& gpu, Work work, Body body) {
    std::atomic<bool> done{false};
    std::thread other([&] {
        OK(cuCtxSetCurrent, gpu.context);
        while (!done) work();
    });
    body();
    done = true;
    other.join();
}

// A graph that raises many, with `first` before that and `last` behind it.
CUgraphExec framed(const Rise& rise, const Add& first, const Add& last) {
    comes_after(rise.graph, rise.nodes.front(), add_kernel(rise.graph, first.params));
    add_kernel(rise.graph, last.params, rise.nodes.back());
    return instantiate(rise.graph);
}

}  // namespace

FAMILY_TEST("graph steps: nor in the legacy stream, which waits for theirs") {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    const Many many;
    const Buffer scratch(kBuffer, 100), in(kBuffer, 200), out(kBuffer, 1);
    const Rise rise(many);
    const Add first(scratch.at(), in.at(), 1), last(out.at(), scratch.at(), 0);
    const CUgraphExec exec = framed(rise, first, last);
    const auto set = [&] {
        OK(cuMemsetD8Async, scratch.at(), 9, kBuffer, CU_STREAM_LEGACY);
        OK(cuStreamSynchronize, CU_STREAM_LEGACY);
    };
    beside(gpu, set, [&] {
        for (int i = 0; i < 20; ++i) {
            OK(cuGraphLaunch, exec, stream);
            OK(cuStreamSynchronize, stream);
            EXPECT(out.read() == plus(pattern(kBuffer, 200), 1));
        }
    });
}

FAMILY_TEST("graph steps: nor a copy or set of memory that never moves") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Buffer in(kBuffer, 200), out(kBuffer, 1);
    constexpr unsigned kSmallWords = 2048;
    constexpr std::size_t kSmall = kSmallWords * sizeof(std::uint32_t);
    CUdeviceptr scratch = 0;
    OK(cuMemAlloc_v2, &scratch, kSmall);
    void* pinned = nullptr;
    OK(cuMemAllocHost_v2, &pinned, kSmall);
    const Rise rise(many);
    Add first(scratch, in.at(), 1), last(out.at(), scratch, 0);
    first.n = last.n = kSmallWords;
    const CUgraphExec exec = framed(rise, first, last);
    const std::vector<std::uint8_t> wanted = plus(pattern(kBuffer, 200), 1);
    const auto write = [&] {
        OK(cuMemsetD8Async, scratch, 9, kSmall, stream);
        OK(cuMemcpyHtoDAsync_v2, scratch, pinned, kSmall, stream);
        OK(cuMemsetD2D8Async, scratch, kSmall / 2, 9, kSmall / 2, 2, stream);
        OK(cuStreamSynchronize, stream);
    };
    beside(gpu, write, [&] {
        for (int i = 0; i < 20; ++i) {
            OK(cuGraphLaunch, exec, stream);
            OK(cuStreamSynchronize, stream);
            const std::vector<std::uint8_t> read = out.read();
            EXPECT(std::equal(read.begin(), read.begin() + kSmall, wanted.begin()));
        }
    });
}

namespace {

// Whether launches return while the stream is held up by what the same thread would let go.
bool returns(CUgraphExec exec, CUstream stream, Gate& gate, int launches = 1) {
    std::atomic<bool> returned{false};
    std::atomic<bool> in_time{false};
    gate.hold_up(stream);
    std::thread watch([&] {
        for (int i = 0; i < 2000 && !returned; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        in_time = returned.load();
        gate.open();
    });
    for (int i = 0; i < launches; ++i) OK(cuGraphLaunch, exec, stream);
    returned = true;
    watch.join();
    OK(cuStreamSynchronize, stream);
    return in_time;
}

}  // namespace

BODY(more_nodes_than_a_queue_holds) {
    if (!in_place_can_be()) return;  // what is held up is waited for there
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    CUgraphNode last = rise.nodes.back();
    for (int i = 0; i < 1200; ++i) last = add_kernel(rise.graph, rise.adds[0]->params, last);
    const CUgraphExec exec = instantiate(rise.graph);
    launch_and_wait(exec, stream);
    EXPECT(many[0].read() == plus(pattern(kBuffer, 0), 1201));
    Gate gate;
    EXPECT(returns(exec, stream, gate));
    EXPECT(many[0].read() == plus(pattern(kBuffer, 0), 2402));
}

TEST_CASE(
    "graph steps: more nodes than the stream's queue holds, behind what the launching thread holds up") {
    run_both("more_nodes_than_a_queue_holds", Driver::Simulated, {{"SIMCUDA_GRAPH_BYTES", "0"}});
}

BODY(more_launches_than_a_queue_holds_nodes_of) {
    if (!in_place_can_be()) return;  // what is held up is waited for there
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    CUgraphNode last = rise.nodes.back();
    for (unsigned i = 0; i < 27 * kBuffers; ++i)
        last = add_kernel(rise.graph, rise.adds[i % kBuffers]->params, last);
    Gate gate;
    EXPECT(returns(instantiate(rise.graph), stream, gate, 5));
    EXPECT(many.rose(5 * 28));
}

TEST_CASE("graph steps: several launches behind what the launching thread holds up") {
    run_both("more_launches_than_a_queue_holds_nodes_of", Driver::Simulated, {{"SIMCUDA_GRAPH_BYTES", "0"}});
}

// What is allowed may have changed since the node was made.
BODY(refused_first_node) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    launch_whole(instantiate(rise.graph), stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(many.rose(in_place_can_be() ? 1 : 0));
}

TEST_CASE("graph steps: a graph whose first node is refused by itself is launched whole") {
    run_both("refused_first_node", Driver::Simulated, {{"SIMCUDA_FAIL", "cuLaunchKernel:1=1"}});
}

// As a whole it waits for what it lacks before any of it is submitted; by itself the second node waits for
// the first, which may use anything.
FAMILY_TEST("graph steps: an opaque kernel in a graph that fits, behind what the launching thread holds up") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    Crowd crowd;
    std::vector<std::unique_ptr<Add>> adds;
    const CUgraph graph = new_graph();
    struct Map {
        alignas(64) std::uint64_t words[16] = {};
    } map;
    map.words[2] = ~many[0].at();
    CUdeviceptr out = many[1].at();
    std::uint32_t zero = 0, words = kWords;
    void* arguments[] = {&out, &map, &zero, &words};
    CUDA_KERNEL_NODE_PARAMS hidden{};
    hidden.func = kernel("add_through");
    hidden.gridDimX = (kWords + 255) / 256;
    hidden.gridDimY = hidden.gridDimZ = hidden.blockDimY = hidden.blockDimZ = 1;
    hidden.blockDimX = 256;
    hidden.kernelParams = arguments;
    CUgraphNode last = add_kernel(graph, hidden);
    for (unsigned i = 2; i < 6; ++i) {
        adds.push_back(std::make_unique<Add>(many[i].at(), many[i].at(), 1));
        last = add_kernel(graph, adds.back()->params, last);
    }
    const CUgraphExec exec = instantiate(graph);
    crowd.press();
    crowd.bring_in(many[0]);
    Gate gate;
    EXPECT(returns(exec, stream, gate));
    EXPECT(many[1].read() == pattern(kBuffer, 0));
    EXPECT(many[5].read() == plus(pattern(kBuffer, 5), 1));
}

FAMILY_TEST("graph steps: a copy within host memory does not hold up the caller") {
    if (!in_place_can_be()) return;  // what is held up is waited for there
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    std::uint8_t* pinned = nullptr;
    OK(cuMemAllocHost_v2, reinterpret_cast<void**>(&pinned), 2 * kBuffer);
    std::memset(pinned, 1, kBuffer);
    CUDA_MEMCPY3D copy = copy_of(0, 0);
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pinned;
    copy.dstHost = pinned + kBuffer;
    add_copy(rise.graph, copy, gpu, rise.nodes.back());
    Gate gate;
    EXPECT(returns(instantiate(rise.graph), stream, gate));
    EXPECT(pinned[2 * kBuffer - 1] == 1);
}

FAMILY_TEST("graph steps: what a kernel was allowed when its node was made counts") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    const CUfunction function = kernel("add");
    OK(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000);
    CUDA_KERNEL_NODE_PARAMS params = rise.adds[0]->params;
    params.sharedMemBytes = 60000;
    add_kernel(rise.graph, params, rise.nodes.back());
    const CUgraphExec exec = instantiate(rise.graph);
    launch_and_wait(exec, stream);
    OK(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024);
    launch_whole(exec, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(many[0].read() == plus(pattern(kBuffer, 0), in_place_can_be() ? 4 : 2));
    EXPECT(many[1].read() == plus(pattern(kBuffer, 1), in_place_can_be() ? 2 : 1));
}

// Where another GPU's memory is set the graph says no more once it is made.
BODY(sets_of_two_devices) {
    CUcontext contexts[2];
    OK(cuInit, 0);
    for (int i = 0; i < 2; ++i) OK(cuDevicePrimaryCtxRetain, &contexts[i], i);
    CUdeviceptr far = 0;
    OK(cuCtxSetCurrent, contexts[1]);
    OK(cuMemAlloc_v2, &far, kBuffer);
    OK(cuMemsetD8_v2, far, 1, kBuffer);
    OK(cuCtxSetCurrent, contexts[0]);
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    const CUDA_MEMSET_NODE_PARAMS set = set_of(far, 7);
    const CUgraphNode after = rise.nodes.back();
    CUgraphNode node = nullptr;
    OK(cuCtxSetCurrent, contexts[1]);
    OK(cuGraphAddMemsetNode, &node, rise.graph, &after, 1, &set, contexts[1]);
    OK(cuCtxSetCurrent, contexts[0]);
    launch_whole(instantiate(rise.graph), stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(many.rose(in_place_can_be() ? 1 : 0));
    std::vector<std::uint8_t> read(kBuffer);
    OK(cuMemcpyDtoH_v2, read.data(), far, kBuffer);
    EXPECT(read == std::vector<std::uint8_t>(kBuffer, in_place_can_be() ? 7 : 1));
}

TEST_CASE("graph steps: a graph that sets another GPU's memory is launched whole") {
    run_both("sets_of_two_devices", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

// A driver gives handles out again: what stood for the end of a launch may be the program's.
FAMILY_TEST("graph steps: a graph that outlives its context takes no event of another's along") {
    const Gpu gpu;
    CUcontext other = nullptr;
    OK(cuCtxCreate_v2, &other, 0, gpu.device);
    CUfunction function = nullptr;
    OK(cuModuleGetFunction, &function, load_kernels(), "add");
    CUgraphExec exec = nullptr;
    {
        const CUstream stream = new_stream();
        const Many many;
        const CUgraph graph = new_graph();
        CUgraphNode last = nullptr;
        for (const auto& buffer : many.each) {
            Add add(buffer->at(), buffer->at(), 1);
            add.params.func = function;
            last = add_kernel(graph, add.params, last);
        }
        exec = instantiate(graph);
        launch_and_wait(exec, stream);
        EXPECT(many.rose(1));
    }
    OK(cuCtxDestroy_v2, other);
    OK(cuCtxSetCurrent, gpu.context);
    std::vector<CUevent> events(400);
    for (CUevent& event : events) OK(cuEventCreate, &event, 0);
    OK(cuGraphExecDestroy, exec);
    for (const CUevent event : events) OK(cuEventRecord, event, nullptr);
}

// The driver keeps it until launches are over that it knows of.
FAMILY_TEST("graph steps: a graph that holds a user object is launched whole", "graph-user-objects") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Many many;
    const Rise rise(many);
    CUuserObject object = nullptr;
    OK(
        cuUserObjectCreate, &object, nullptr, [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    OK(cuGraphRetainUserObject, rise.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    launch_whole(instantiate(rise.graph), stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(many.rose(in_place_can_be() ? 1 : 0));
}
