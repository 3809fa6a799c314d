// Stream capture at the driver: what becomes of what is captured, and what is forbidden meanwhile.
#include <thread>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr unsigned kWords = 1000;

struct Rig {
    Rig() {
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        OK(cuStreamCreate, &side, CU_STREAM_NON_BLOCKING);
        OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
        OK(cuMemAlloc, &a, 4 * kWords);
        OK(cuMemAlloc, &b, 4 * kWords);
    }

    void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED) {
        OK(cuStreamBeginCapture, stream, mode);
    }

    CUgraph end() {
        CUgraph graph = nullptr;
        OK(cuStreamEndCapture, stream, &graph);
        return graph;
    }

    void expect_invalidated() {
        CUstreamCaptureStatus status{};
        OK(cuStreamIsCapturing, stream, &status);
        EXPECT(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        CUgraph graph = reinterpret_cast<CUgraph>(1);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
        EXPECT(graph == nullptr);
        OK(cuStreamIsCapturing, stream, &status);
        EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    }

    std::size_t count(CUgraph graph) {
        std::size_t nodes = 0;
        OK(cuGraphGetNodes, graph, nullptr, &nodes);
        return nodes;
    }

    Gpu gpu;
    Kernels kernels;
    CUstream stream = nullptr, side = nullptr;
    CUevent event = nullptr;
    CUdeviceptr a = 0, b = 0;
};

CUresult allocate_elsewhere(CUstreamCaptureMode mode) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
        OK(cuCtxSetCurrent, Gpu().context);
        OK(cuThreadExchangeStreamCaptureMode, &mode);
        CUdeviceptr p = 0;
        result = CU(cuMemAlloc)(&p, 256);
    }).join();
    return result;
}

SIM_TEST("capture: nothing runs until the graph is launched, then as often as it is", {}) {
    Rig rig;
    OK(cuMemsetD32, rig.a, 1, kWords);
    OK(cuCtxSynchronize);
    rig.begin();
    LAUNCH(rig.kernels["increment"], 4, 256, rig.stream, rig.a, rig.a, kWords);
    CUgraph graph = rig.end();
    EXPECT(rig.count(graph) == 1);
    OK(cuStreamSynchronize, rig.stream);
    EXPECT(read_back(rig.a, 4) == std::vector<std::uint8_t>({1, 0, 0, 0}));
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate, &exec, graph, 0);
    for (int i = 0; i < 5; ++i) OK(cuGraphLaunch, exec, i % 2 ? rig.stream : rig.side);
    OK(cuCtxSynchronize);
    EXPECT(read_back(rig.a, 4) == std::vector<std::uint8_t>({6, 0, 0, 0}));
}

SIM_TEST("capture: which unsafe calls are prohibited depends on both threads' modes", {}) {
    struct {
        CUstreamCaptureMode capture, thread;
        bool prohibited;
    } const cases[] = {
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, true},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, false},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false},
        {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, false},
    };
    Rig rig;
    for (const auto& test : cases) {
        rig.begin(test.capture);
        EXPECT(allocate_elsewhere(test.thread) ==
               (test.prohibited ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS));
        if (test.prohibited) {
            rig.expect_invalidated();
        } else {
            rig.end();
        }
    }
    // The capturing thread itself.
    CUdeviceptr p = 0;
    for (auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
        rig.begin(mode);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc, &p, 256);
        rig.expect_invalidated();
    }
    rig.begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemAlloc, &p, 256);
    rig.end();
    rig.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode, &relaxed);
    EXPECT(relaxed == CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAlloc, &p, 256);
    OK(cuThreadExchangeStreamCaptureMode, &relaxed);
    rig.end();
}

SIM_TEST("capture: the legacy stream is an error while a blocking stream captures, and only then", {}) {
    Rig rig;
    CUstream blocking = nullptr;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    OK(cuStreamBeginCapture, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async, rig.a, 0, 4, nullptr);
    CUgraph graph = nullptr;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, blocking, &graph);
    rig.begin();
    OK(cuMemsetD8Async, rig.a, 0, 4, nullptr);
    OK(cuStreamSynchronize, nullptr);
    rig.end();
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture, nullptr,
          CU_STREAM_CAPTURE_MODE_RELAXED);
}

SIM_TEST("capture: two captures cannot be merged, nor an event used after its capture", {}) {
    Rig rig;
    rig.begin();
    OK(cuStreamBeginCapture, rig.side, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord, rig.event, rig.stream);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent, rig.side, rig.event, 0);
    CUgraph graph = nullptr;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, rig.side, &graph);
    rig.expect_invalidated();
    FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery, rig.event);
    OK(cuEventRecord, rig.event, rig.side);
    OK(cuEventSynchronize, rig.event);
}

SIM_TEST("capture: ended by the thread and stream that began it, unless relaxed", {}) {
    Rig rig;
    rig.begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    std::thread([&] {
        OK(cuCtxSetCurrent, rig.gpu.context);
        CUgraph graph = nullptr;
        FAILS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture, rig.stream, &graph);
    }).join();
    rig.end();
    rig.begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    std::thread([&] {
        OK(cuCtxSetCurrent, rig.gpu.context);
        rig.end();
    }).join();
    CUgraph graph = nullptr;
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture, rig.stream, &graph);
    rig.begin();
    FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture, rig.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    rig.end();
}

SIM_TEST("capture: forks and joins become edges, and the position can be asked for and changed", {}) {
    Rig rig;
    rig.begin();
    OK(cuMemsetD32Async, rig.a, 1, kWords, rig.stream);
    OK(cuEventRecord, rig.event, rig.stream);
    OK(cuStreamWaitEvent, rig.side, rig.event, 0);
    OK(cuMemsetD32Async, rig.b, 2, kWords, rig.side);
    OK(cuMemsetD32Async, rig.a, 3, kWords, rig.stream);
    CUevent join = nullptr;
    OK(cuEventCreate, &join, 0);
    OK(cuEventRecord, join, rig.side);
    OK(cuStreamWaitEvent, rig.stream, join, 0);

    CUstreamCaptureStatus status{};
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* nodes = nullptr;
    std::size_t count = 0;
    OK(cuStreamGetCaptureInfo, rig.stream, &status, &id, &graph, &nodes, nullptr, &count);
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(count == 2);
    EXPECT(id != 0);
    CUgraphNode extra = nullptr;
    OK(cuGraphAddEmptyNode, &extra, graph, nodes, count);
    OK(cuStreamUpdateCaptureDependencies, rig.stream, &extra, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    OK(cuMemcpyDtoDAsync, rig.b, rig.a, 4, rig.stream);
    EXPECT(rig.end() == graph);
    std::size_t edges = 0;
    OK(cuGraphGetEdges, graph, nullptr, nullptr, nullptr, &edges);
    EXPECT(rig.count(graph) == 5);
    EXPECT(edges == 5);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate, &exec, graph, 0);
    OK(cuGraphLaunch, exec, rig.stream);
    OK(cuStreamSynchronize, rig.stream);
    EXPECT(read_back(rig.b, 8) == std::vector<std::uint8_t>({3, 0, 0, 0, 2, 0, 0, 0}));
}

SIM_TEST("capture: into a graph that has nodes already", {}) {
    Rig rig;
    CUgraph graph = nullptr;
    CUgraphNode first = nullptr;
    OK(cuGraphCreate, &graph, 0);
    OK(cuGraphAddEmptyNode, &first, graph, nullptr, 0);
    OK(cuStreamBeginCaptureToGraph, rig.stream, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemsetD32Async, rig.a, 9, kWords, rig.stream);
    EXPECT(rig.end() == graph);
    std::size_t edges = 0;
    OK(cuGraphGetEdges, graph, nullptr, nullptr, nullptr, &edges);
    EXPECT(edges == 1);
}

SIM_TEST("capture: work left unjoined, waiting inside, and synchronising are errors", {}) {
    Rig rig;
    rig.begin();
    OK(cuEventRecord, rig.event, rig.stream);
    OK(cuStreamWaitEvent, rig.side, rig.event, 0);
    OK(cuMemsetD32Async, rig.b, 2, kWords, rig.side);
    CUgraph graph = nullptr;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture, rig.stream, &graph);
    CUstreamCaptureStatus status{};
    OK(cuStreamIsCapturing, rig.side, &status);
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    for (int which = 0; which < 3; ++which) {
        rig.begin();
        if (which == 0) FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize, rig.stream);
        if (which == 1) FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery, rig.stream);
        if (which == 2) {
            OK(cuEventRecord, rig.event, rig.stream);
            FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize, rig.event);
        }
        rig.expect_invalidated();
    }
}

}  // namespace
