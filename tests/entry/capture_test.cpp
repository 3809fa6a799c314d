// Captures, begun and ended by every form.
#include <functional>
#include <thread>

#include "tests/entry/graph_rig.h"
#include "tests/entry/overlay/record.h"

using namespace rig;

namespace {

struct WaitForm {
    std::function<CUresult(CUstream, CUgraph)> begin;
    CUresult (*end)(CUstream, CUgraph*);
};

std::vector<WaitForm> wait_forms() {
    constexpr CUstreamCaptureMode kMode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    const auto plain = [](auto begin) { return [=](CUstream stream, CUgraph) { return begin(stream); }; };
    const auto with_mode = [](auto begin) {
        return [=](CUstream stream, CUgraph) { return begin(stream, kMode); };
    };
    const auto to_graph = [](auto begin) {
        return
            [=](CUstream stream, CUgraph graph) { return begin(stream, graph, nullptr, nullptr, 0, kMode); };
    };
    const auto end = CU(cuStreamEndCapture);
    const auto end_ptsz = CU(cuStreamEndCapture_ptsz);
    return {{plain(CU(cuStreamBeginCapture)), end},
            {plain(CU(cuStreamBeginCapture_ptsz)), end_ptsz},
            {with_mode(CU(cuStreamBeginCapture_v2)), end},
            {with_mode(CU(cuStreamBeginCapture_v2_ptsz)), end_ptsz},
            {to_graph(CU(cuStreamBeginCaptureToGraph)), end},
            {to_graph(CU(cuStreamBeginCaptureToGraph_ptsz)), end_ptsz}};
}

// What is captured is alone in its graph, and moves nothing.
CUgraph capture_and_end(const Buffer& from, const Buffer& to, CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT(launch("add", kWords, stream, to.at(), from.at(), 3u, kWords) == CUDA_SUCCESS);
    OK(cuStreamEndCapture, stream, &graph);
    EXPECT(from.evicted());
    EXPECT(to.evicted());
    std::size_t nodes = 0;
    OK(cuGraphGetNodes, graph, nullptr, &nodes);
    EXPECT(nodes == 1);
    return graph;
}

}  // namespace

FAMILY_TEST("capture: however begun, what is captured moves nothing and is alone in the graph",
            "capture-begun") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    kernel("add");  // loading is forbidden later
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    for (const WaitForm& form : wait_forms()) {
        crowd.evict(a);
        crowd.evict(b);
        CUgraph graph = new_graph();
        EXPECT(form.begin(stream, graph) == CUDA_SUCCESS);
        EXPECT(launch("add", kWords, stream, b.at(), a.at(), 3u, kWords) == CUDA_SUCCESS);
        CUstreamCaptureStatus status;
        OK(cuStreamIsCapturing, stream, &status);
        EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        EXPECT(form.end(stream, &graph) == CUDA_SUCCESS);
        EXPECT(a.evicted());
        EXPECT(b.evicted());
        std::size_t nodes = 0;
        OK(cuGraphGetNodes, graph, nullptr, &nodes);
        EXPECT(nodes == 1);
        const CUgraphExec exec = instantiate(graph);
        launch_and_wait(exec, stream);
        EXPECT(b.read() == plus(pattern(kBuffer, 1), 3));
        OK(cuGraphExecDestroy, exec);
        OK(cuMemsetD8_v2, b.at(), 9, kBuffer);
    }
}

FAMILY_TEST("capture: one that another thread tries to end goes on, and moves nothing still") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    kernel("add");
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    crowd.evict(b);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUresult others = CUDA_SUCCESS;
    CUgraph graph = nullptr;
    std::thread([&] {
        CU(cuCtxSetCurrent)(gpu.context);
        others = CU(cuStreamEndCapture)(stream, &graph);
    }).join();
    EXPECT(others == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    launch_and_wait(instantiate(capture_and_end(a, b, stream)), stream);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 3));
}

FAMILY_TEST("capture: one that a host function tries to end goes on, and moves nothing still") {
    const Gpu gpu;
    static CUstream stream = new_stream();
    kernel("add");
    const Buffer a(kBuffer, 1), b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    crowd.evict(b);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const CUstream other = new_stream();
    const CUhostFn tries = [](void*) {
        CUgraph none = nullptr;
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuStreamEndCapture, stream, &none);
    };
    OK(cuLaunchHostFunc, other, tries, nullptr);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode, &mode);
    OK(cuStreamSynchronize, other);
    launch_and_wait(instantiate(capture_and_end(a, b, stream)), stream);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 3));
}

// Threads' own streams have one name: what does not end the capture that forked to one ends no other's.
FAMILY_TEST("capture: a thread's own goes on when another fails to end one in its own stream") {
    const Gpu gpu;
    kernel("add");
    const Buffer a(kBuffer, 1), b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    crowd.evict(b);
    const CUstream first = new_stream();
    CUevent fork = nullptr;
    OK(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    OK(cuStreamBeginCapture_v2, CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamBeginCapture_v2, first, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord, fork, first);
    CUgraph graph = nullptr;
    std::thread([&] {
        OK(cuCtxSetCurrent, gpu.context);
        OK(cuStreamWaitEvent, CU_STREAM_PER_THREAD, fork, 0);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture, CU_STREAM_PER_THREAD, &graph);
    }).join();
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, first, &graph);
    launch_and_wait(instantiate(capture_and_end(a, b, CU_STREAM_PER_THREAD)), first);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 3));
}

// Batches are not for that stream, captured or not. Where memory comes in for one, nothing is left in the
// stream, which the capture forbids to use.
FAMILY_TEST("capture: goes on beside a batch of copies that the legacy stream is refused") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1), b(kBuffer, 2);
    Crowd crowd;
    CUstream blocking = nullptr;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    CUdeviceptr to = b.at(), from = a.at();
    std::size_t bytes = kBuffer, start = 0;
    CUmemcpyAttributes in_order{};
    in_order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for (const bool out : {true, false}) {
        if (out) {
            crowd.evict(a);
        } else {
            crowd.bring_in(a);
        }
        OK(cuStreamBeginCapture_v2, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyBatchAsync_v2, &to, &from, &bytes, 1, &in_order, &start, 1,
              CU_STREAM_LEGACY);
        CUgraph graph = nullptr;
        OK(cuStreamEndCapture, blocking, &graph);
        EXPECT(b.holds(2));
    }
}

// What a caching allocator would give back is not to be given back while a graph is captured.
BODY(capture_soft_limit) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    std::size_t bytes = 2 * kMiB;
    for (const WaitForm& form : wait_forms()) {
        CUgraph graph = new_graph();
        CUdeviceptr buffer = 0;
        EXPECT(form.begin(stream, graph) == CUDA_SUCCESS);
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        OK(cuThreadExchangeStreamCaptureMode, &mode);
        OK(cuMemAlloc_v2, &buffer, bytes);
        OK(cuThreadExchangeStreamCaptureMode, &mode);
        EXPECT(form.end(stream, &graph) == CUDA_SUCCESS);
        OK(cuMemFree_v2, buffer);
        FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &buffer, bytes);
        OK(cuMemAlloc_v2, &buffer, bytes);
        OK(cuMemFree_v2, buffer);
        bytes += kMiB / 8;  // the limit has followed
    }
}

TEST_CASE("capture: no allocation fails for LMS_SOFT_LIMIT until it is ended, and then they do" *
          doctest::test_suite("capture-soft-limit")) {
    run_both("capture_soft_limit", Driver::Simulated, {{"LMS_SOFT_LIMIT", "1M"}});
}

namespace {

CUstream made = nullptr;

}  // namespace

OVERLAY_TEST("capture: one that begins on a handle before its last stream's destruction is over goes on") {
    const Gpu gpu;
    kernel("add");
    const Buffer a(kBuffer, 1), b(kBuffer, 2);
    Crowd crowd;
    for (const bool captured : {false, true}) {
        crowd.evict(a);
        crowd.evict(b);
        const CUstream destroyed = new_stream();
        if (captured) OK(cuStreamBeginCapture_v2, destroyed, CU_STREAM_CAPTURE_MODE_RELAXED);
        overlay::record().handle_free = [] {
            made = new_stream();
            OK(cuStreamBeginCapture_v2, made, CU_STREAM_CAPTURE_MODE_RELAXED);
        };
        OK(cuStreamDestroy_v2, destroyed);
        EXPECT(made == destroyed);
        capture_and_end(a, b, made);
        // And none is left behind: work of the stream runs, with what it names brought in.
        EXPECT(launch("add", kWords, made, b.at(), a.at(), 3u, kWords) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, made);
        EXPECT(b.read() == plus(pattern(kBuffer, 1), 3));
    }
}

OVERLAY_TEST("capture: it goes on where the driver does not destroy its stream") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    kernel("add");
    const Buffer a(kBuffer, 1), b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    crowd.evict(b);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    overlay::record().keeps_streams = true;
    FAILS(CUDA_ERROR_UNKNOWN, cuStreamDestroy_v2, stream);
    capture_and_end(a, b, stream);
}
