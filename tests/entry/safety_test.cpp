// LMS_SAFETY: what moves beside unfinished work, which launches are opaque, and what is said where memory
// cannot stay addressable.
#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Work that never ends, and others that need what is out: whether that moves.
// Another graph, which kernels may launch: is there one while this is launched?
enum class ForKernels { None, There, Gone };

void beside_endless_work(int device_updatable, bool moves, ForKernels for_kernels = ForKernels::None) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    Gate gate;
    const Add sum(b.at(), a.at(), 1);
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_kernel(graph, sum.params, gate.add_to(graph));
    CUkernelNodeAttrValue value{};
    value.deviceUpdatableKernelNode.deviceUpdatable = device_updatable;
    OK(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value);
    const CUgraphExec exec = instantiate(graph);
    if (for_kernels != ForKernels::None) {
        const CUgraph other_graph = new_graph();
        add_kernel(other_graph, sum.params);
        CUgraphExec launched = nullptr;
        OK(cuGraphInstantiateWithFlags, &launched, other_graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
        if (for_kernels == ForKernels::Gone) OK(cuGraphExecDestroy, launched);
    }
    // Changed from here, it is what it was.
    OK(cuGraphExecKernelNodeSetParams_v2, exec, node, &sum.params);
    crowd.evict(c);
    OK(cuGraphLaunch, exec, stream);
    EXPECT(launch("add", kWords, other, c.at(), c.at(), 1u, kWords) == CUDA_SUCCESS);
    OK(cuStreamSynchronize, other);
    EXPECT(moves ? c.resident() : c.evicted());
    EXPECT(c.read() == plus(pattern(kBuffer, 3), 1));
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 1));
    crowd.evict(b);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 1));
}

}  // namespace

BODY(endless_graph) {
    beside_endless_work(0, true);
}
BODY(endless_graph_strict) {
    beside_endless_work(0, false);
}
// What a kernel on the GPU may have given such a node cannot be seen.
BODY(endless_updatable_graph) {
    beside_endless_work(1, false);
}
// Nor what graphs its kernels launch.
BODY(endless_graph_beside_one_for_kernels) {
    beside_endless_work(0, false, ForKernels::There);
}
BODY(endless_graph_after_one_for_kernels) {
    beside_endless_work(0, true, ForKernels::Gone);
}
BODY(endless_updatable_graph_args) {
    beside_endless_work(1, true);
}

TEST_CASE("safety: what moves beside work that never ends, at each level") {
    const auto check = [](const std::string& body, const char* level) {
        CAPTURE(body);
        CHECK(rig::run(body, rig::Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}, {"LMS_SAFETY", level}})
                  .failures == "");
    };
    check("endless_graph", "args");
    check("endless_graph", "opaque");
    check("endless_graph_strict", "strict");
    check("endless_updatable_graph_args", "args");
    check("endless_updatable_graph", "opaque");
    check("endless_updatable_graph", "strict");
    check("endless_graph_beside_one_for_kernels", "opaque");
    check("endless_graph_after_one_for_kernels", "opaque");
}

// Nothing was looked at when it was submitted, and no other thread can name its stream.
BODY(before_pressure_per_thread) {
    const Gpu gpu;
    const CUstream other = new_stream();
    const Buffer a(kBuffer, 1);
    Gate gate;
    gate.hold_up(CU_STREAM_PER_THREAD);
    EXPECT(launch("add", kWords, CU_STREAM_PER_THREAD, a.at(), a.at(), 1u, kWords) == CUDA_SUCCESS);
    std::thread([&] {
        OK(cuCtxSetCurrent, gpu.context);
        std::vector<CUdeviceptr> more(12);
        for (CUdeviceptr& buffer : more) OK(cuMemAlloc_v2, &buffer, kBuffer);
        OK(cuMemsetD8Async, more.back(), 1, kBuffer, other);
        OK(cuStreamSynchronize, other);
        EXPECT(a.resident());
        gate.open();
        for (const CUdeviceptr buffer : more) OK(cuMemFree_v2, buffer);
    }).join();
    EXPECT(a.read() == plus(pattern(kBuffer, 1), 1));
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.read() == plus(pattern(kBuffer, 1), 1));
}

TEST_CASE("safety: what a per-thread default stream was given before the first move stays until it is done") {
    CHECK(rig::run("before_pressure_per_thread", rig::Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}})
              .failures == "");
}

namespace {

// add(out, in, k, n), its parameters in one packed buffer.
CUresult launch_packed(CUstream stream, CUdeviceptr out, CUdeviceptr in, unsigned k) {
    struct {
        CUdeviceptr out, in;
        unsigned k, n;
    } packed{out, in, k, kWords};
    std::size_t bytes = sizeof packed;
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    return CU(cuLaunchKernel)(kernel("add"), (kWords + 255) / 256, 1, 1, 256, 1, 1, 0, stream, nullptr,
                              extra);
}

// A launch that is unfinished, and a copy of what is out: whether the launch's own buffers came in before
// it, and whether the copied one moves beside it.
void beside_launch(bool packed, bool names, bool moves) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
    Gate gate;
    gate.hold_up(stream);
    EXPECT((packed ? launch_packed(stream, b.at(), a.at(), 1)
                   : launch("add", kWords, stream, b.at(), a.at(), 1u, kWords)) == CUDA_SUCCESS);
    EXPECT(names ? a.resident() && b.resident() : a.evicted() && b.evicted());
    bring_in(c.at(), kBuffer, other);
    OK(cuStreamSynchronize, other);
    EXPECT(moves ? c.resident() : c.evicted());
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 1));
    crowd.evict(b);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 1));
    EXPECT(c.holds(3));
}

}  // namespace

BODY(layout_told) {
    beside_launch(false, true, true);
}
BODY(layout_untold) {
    beside_launch(false, false, false);
}
BODY(layout_untold_args) {
    beside_launch(false, false, true);
}
BODY(layout_untold_packed) {
    beside_launch(true, true, true);
}

TEST_CASE("safety: a launch whose parameter layout the driver does not tell names nothing and is opaque") {
    const auto check = [](const std::string& body, const char* level, const char* without_layouts) {
        CAPTURE(body);
        CHECK(rig::run(body, rig::Driver::Overlay,
                       {{"SIMCUDA_HOST_VMM", "1"},
                        {"LMS_SAFETY", level},
                        {"OVERLAY_WITHOUT_LAYOUTS", without_layouts}})
                  .failures == "");
    };
    check("layout_told", "opaque", "0");
    check("layout_untold", "opaque", "1");
    check("layout_untold_args", "args", "1");
    // As one buffer, which needs no layout.
    check("layout_untold_packed", "opaque", "1");
}

BODY(evicts) {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
}

TEST_CASE("safety: where the GPU maps no host memory, the shim says so once") {
    for (const char* host_mapping : {"1", "0"}) {
        const std::string err =
            rig::run("evicts", rig::Driver::Simulated, {{"SIMCUDA_HOST_VMM", host_mapping}}).err;
        const auto first = err.find("does not map host memory");
        CHECK((first != std::string::npos) == (host_mapping[0] == '0'));
        if (first != std::string::npos)
            CHECK(err.find("does not map host memory", first + 1) == std::string::npos);
    }
}
