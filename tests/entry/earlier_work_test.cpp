// Work from before the first move, which nobody looked at: nothing of it is lost, and turning to it holds up
// nobody and breaks no capture.
#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// More than the GPU holds.
class More {
  public:
    More() : buffers_(12) {
        for (CUdeviceptr& buffer : buffers_) OK(cuMemAlloc_v2, &buffer, kBuffer);
    }
    ~More() {
        for (const CUdeviceptr buffer : buffers_) CU(cuMemFree_v2)(buffer);
    }
    More(const More&) = delete;
    More& operator=(const More&) = delete;
    // Has all of them used.
    void press(CUstream stream) {
        for (const CUdeviceptr buffer : buffers_) bring_in(buffer, kBuffer, stream);
        OK(cuStreamSynchronize, stream);
    }

  private:
    std::vector<CUdeviceptr> buffers_;
};

CUstream blocking_stream() {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    return stream;
}

void allocate_in_another_thread(CUcontext context) {
    std::thread([=] {
        OK(cuCtxSetCurrent, context);
        const More more;
    }).join();
}

// Captures a kernel into `stream` while `meanwhile` runs out of memory, and launches it.
template <typename Meanwhile>
void capture_beside(CUstream stream, CUstreamCaptureMode mode, Meanwhile meanwhile) {
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    OK(cuStreamBeginCapture_v2, stream, mode);
    OK(cuMemsetD8Async, b.at(), 9, kBuffer / 2, stream);
    meanwhile();
    OK(cuMemcpyDtoDAsync_v2, b.at(), a.at(), 256, stream);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    OK(cuStreamIsCapturing, stream, &status);
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    std::size_t nodes = 0;
    OK(cuGraphGetNodes, graph, nullptr, &nodes);
    EXPECT(nodes == 2);
    Crowd crowd;
    crowd.evict(a);
    launch_and_wait(instantiate(graph), stream);
    std::vector<std::uint8_t> expected = pattern(kBuffer, 2);
    std::fill_n(expected.begin(), kBuffer / 2, 9);
    const std::vector<std::uint8_t> first = pattern(kBuffer, 1);
    std::copy_n(first.begin(), 256, expected.begin());
    EXPECT(b.read() == expected);
}

}  // namespace

FAMILY_TEST("earlier work: a relaxed capture stays whole when its thread runs out of memory") {
    const Gpu gpu;
    capture_beside(new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED, [] { const More more; });
}

FAMILY_TEST("earlier work: a capture of a blocking stream stays whole when its thread runs out of memory") {
    const Gpu gpu;
    capture_beside(blocking_stream(), CU_STREAM_CAPTURE_MODE_RELAXED, [] { const More more; });
}

FAMILY_TEST("earlier work: a capture stays whole when another thread runs out of memory") {
    const Gpu gpu;
    capture_beside(new_stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                   [&] { allocate_in_another_thread(gpu.context); });
}

FAMILY_TEST(
    "earlier work: a capture of a blocking stream stays whole when another thread runs out of memory") {
    const Gpu gpu;
    capture_beside(blocking_stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                   [&] { allocate_in_another_thread(gpu.context); });
}

FAMILY_TEST("earlier work: what a stream was given before its capture is waited for") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, stream);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const More more;
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        gate.open();
    });
    Crowd crowd;
    crowd.evict(a);
    opener.join();
    OK(cuStreamSynchronize, stream);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 5));
}

namespace {

// Has the capture in `stream` reach `reached`.
void fork_and_join(CUstream stream, CUstream reached, decltype(&cuStreamWaitEvent) wait) {
    CUevent fork = nullptr;
    CUevent join = nullptr;
    OK(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    OK(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING);
    OK(cuEventRecord, fork, stream);
    EXPECT(wait(reached, fork, 0) == CUDA_SUCCESS);
    OK(cuEventRecord, join, reached);
    OK(cuStreamWaitEvent, stream, join, 0);
}

// Evicts `a`, which becomes fives when `gate` opens, while `stream` is captured.
void evict_beside_capture(const Buffer& a, Gate& gate, CUstream stream) {
    const auto end_capture = [=] {
        CUgraph graph = nullptr;
        OK(cuStreamEndCapture, stream, &graph);
    };
    const CUstream other = new_stream();
    More more;
    std::promise<void> opened;
    std::promise<void> done;
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        gate.open();
        opened.set_value();
        // What waits for the capture would wait for ever.
        const bool waits = done.get_future().wait_for(std::chrono::seconds(10)) != std::future_status::ready;
        EXPECT(!waits);
        end_capture();
    });
    more.press(other);
    opened.get_future().wait();
    more.press(other);
    EXPECT(a.evicted());
    done.set_value();
    opener.join();
    OK(cuCtxSynchronize);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 5));
}

}  // namespace

FAMILY_TEST(
    "earlier work: what a stream was given before a capture reached it is waited for, the capture is not",
    "capture-reaches") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream reached = new_stream();
    const Buffer a(kBuffer, 1);
    Gate gate;
    gate.hold_up(reached);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, reached);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    fork_and_join(stream, reached, CU(cuStreamWaitEvent));
    evict_beside_capture(a, gate, stream);
}

FAMILY_TEST(
    "earlier work: what the legacy stream is given before a capture reaches a blocking one is waited for",
    "capture-reaches-ptsz") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream reached = blocking_stream();
    const Buffer a(kBuffer, 1);
    Gate gate;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    gate.hold_up(nullptr);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, nullptr);
    fork_and_join(stream, reached, CU(cuStreamWaitEvent_ptsz));
    evict_beside_capture(a, gate, stream);
}

FAMILY_TEST(
    "earlier work: what a thread's own stream was given before a blocking one is captured is waited for") {
    const Gpu gpu;
    const CUstream stream = blocking_stream();
    const Buffer a(kBuffer, 1);
    Gate gate;
    gate.hold_up(CU_STREAM_PER_THREAD);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, CU_STREAM_PER_THREAD);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    evict_beside_capture(a, gate, stream);
}

FAMILY_TEST(
    "earlier work: what a thread's own stream is given while a blocking one is captured is waited for") {
    const Gpu gpu;
    const CUstream stream = blocking_stream();
    const Buffer a(kBuffer, 1);
    Gate gate;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    gate.hold_up(CU_STREAM_PER_THREAD);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, CU_STREAM_PER_THREAD);
    evict_beside_capture(a, gate, stream);
}

FAMILY_TEST(
    "earlier work: blocking streams that wait for one another through the host go on beside a capture") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const CUstream first = blocking_stream();
    const CUstream second = blocking_stream();
    const CUstream captured = blocking_stream();
    Gate gate;
    gate.hold_up(first);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, first);
    OK(cuStreamBeginCapture_v2, captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemsetD8Async, b.at(), 6, kBuffer, second);
    OK(cuStreamSynchronize, second);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, captured, &graph);
    gate.open();
    OK(cuStreamSynchronize, first);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 5));
    EXPECT(b.read() == std::vector<std::uint8_t>(kBuffer, 6));
}

FAMILY_TEST("earlier work: a capture that is begun where it cannot be leaves others whole") {
    const Gpu gpu;
    const CUstream stream = blocking_stream();
    capture_beside(stream, CU_STREAM_CAPTURE_MODE_RELAXED, [&] {
        EXPECT(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS);
        EXPECT(CU(cuStreamBeginCapture_v2)(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS);
        const More more;
    });
}

FAMILY_TEST("earlier work: a capture that goes with its context holds nothing up") {
    const Gpu gpu;
    CUcontext context = nullptr;
    OK(cuCtxCreate_v2, &context, 0, gpu.device);
    OK(cuStreamBeginCapture_v2, new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuCtxDestroy_v2, context);
    OK(cuCtxSetCurrent, gpu.context);
    const Buffer a(kBuffer, 1);
    const More more;
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
}

FAMILY_TEST("earlier work: a capture that goes with its stream holds nothing up") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamDestroy_v2, stream);
    const More more;
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
}

FAMILY_TEST("earlier work: who runs out of memory does not wait for a thread that is inside the driver") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Gate gate;
    std::atomic<bool> copying{false};
    gate.hold_up(nullptr);
    std::vector<std::uint8_t> bytes(kBuffer);
    std::thread copier([&] {
        OK(cuCtxSetCurrent, gpu.context);
        copying = true;
        OK(cuMemcpyDtoH_v2, bytes.data(), a.at(), kBuffer);
    });
    while (!copying) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // more likely inside the driver
    const More more;
    gate.open();
    copier.join();
    EXPECT(bytes == pattern(kBuffer, 1));
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
}

FAMILY_TEST("earlier work: blocking streams that wait for one another through the host go on") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const CUstream first = blocking_stream();
    const CUstream second = blocking_stream();
    Gate gate;
    gate.hold_up(first);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, first);
    const More more;
    OK(cuMemsetD8Async, b.at(), 6, kBuffer, second);
    OK(cuStreamSynchronize, second);
    gate.open();
    OK(cuStreamSynchronize, first);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 5));
}

BODY(earlier_graph_elsewhere) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Add add(b.at(), a.at(), 3);
    const CUgraph graph = new_graph();
    Gate gate;
    const CUgraphNode held = gate.add_to(graph);
    add_kernel(graph, add.params, held);
    const CUgraphExec exec = instantiate(graph);
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    OK(cuCtxSetCurrent, other);
    const Buffer there(kBuffer, 3);
    const CUstream stream = new_stream();
    OK(cuGraphLaunch, exec, stream);
    auto pressed = std::async(std::launch::async, [&] {
        OK(cuCtxSetCurrent, gpu.context);
        More().press(new_stream());
    });
    // What is moved beside the graph is by then.
    pressed.wait_for(std::chrono::milliseconds(200));
    gate.open();
    pressed.get();
    OK(cuStreamSynchronize, stream);
    OK(cuCtxSetCurrent, gpu.context);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 3));
}

TEST_CASE("earlier work: a graph that runs on the GPU from another's stream is waited for") {
    run_both("earlier_graph_elsewhere", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

namespace {

// From and to a GPU's buffers, in another's stream, which needs no access to them. `before(stream)` comes
// before memory moves, and `after(stream)` at the end.
template <typename Before, typename After>
void copies_elsewhere(Before before, After after) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    OK(cuCtxSetCurrent, other);
    const Buffer there(kBuffer, 4);
    const Buffer from(kBuffer, 5);
    const CUstream stream = new_stream();
    CUDA_MEMCPY3D_PEER box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcContext = other;
    box.dstContext = gpu.context;
    box.srcDevice = from.at();
    box.dstDevice = c.at();
    box.WidthInBytes = kBuffer / 16;
    box.Height = 16;
    box.Depth = 1;
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemcpyPeerAsync, there.at(), other, a.at(), gpu.context, kBuffer, stream);
    OK(cuMemcpyDtoDAsync_v2, b.at(), from.at(), kBuffer, stream);
    OK(cuMemcpy3DPeerAsync, &box, stream);
    before(stream);
    auto pressed = std::async(std::launch::async, [&] {
        OK(cuCtxSetCurrent, gpu.context);
        More().press(new_stream());
    });
    // What is moved beside the copies is by then.
    pressed.wait_for(std::chrono::milliseconds(200));
    gate.open();
    pressed.get();
    after(stream);
    OK(cuCtxSynchronize);
    EXPECT(there.holds(1));
    OK(cuCtxSetCurrent, gpu.context);
    EXPECT(b.holds(5));
    EXPECT(c.holds(5));
}

}  // namespace

BODY(earlier_copies_elsewhere) {
    copies_elsewhere([](CUstream) {}, [](CUstream) {});
}

BODY(earlier_copies_in_destroyed) {
    copies_elsewhere([](CUstream stream) { OK(cuStreamDestroy_v2, stream); }, [](CUstream) {});
}

BODY(earlier_copies_in_captured) {
    copies_elsewhere(
        [](CUstream stream) { OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED); },
        [](CUstream stream) {
            CUgraph graph = nullptr;
            OK(cuStreamEndCapture, stream, &graph);
        });
}

TEST_CASE("earlier work: copies between GPUs in another's stream are waited for") {
    for (const char* body :
         {"earlier_copies_elsewhere", "earlier_copies_in_destroyed", "earlier_copies_in_captured"})
        run_both(body, Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}
