// cuMemFree while something is captured: it waits for the work that may use the memory, and the capture goes
// on.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

CUstream stream_of(unsigned flags) {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, flags);
    return stream;
}

// Frees memory that a copy behind a gate in `works` reads, while `captured`, which may be the same stream, is
// captured; by the thread that captures, or by another.
void free_beside(CUcontext context, CUstream works, CUstream captured, bool elsewhere) {
    const Buffer to(kBuffer, 2), other(kBuffer, 3);
    const std::vector<std::uint8_t> ones = pattern(kBuffer, 1);
    CUdeviceptr freed = 0;
    OK(cuMemAlloc_v2, &freed, kBuffer);
    OK(cuMemcpyHtoD_v2, freed, ones.data(), kBuffer);
    Gate gate;
    std::atomic<bool> opened{false};
    gate.hold_up(works);
    OK(cuMemcpyDtoDAsync_v2, to.at(), freed, kBuffer, works);
    OK(cuStreamBeginCapture_v2, captured,
       elsewhere ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_RELAXED);
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        opened = true;
        gate.open();
    });
    const auto free = [&] {
        OK(cuCtxSetCurrent, context);
        OK(cuMemFree_v2, freed);
        EXPECT(opened.load());
    };
    if (elsewhere) {
        std::thread(free).join();
    } else {
        free();
    }
    opener.join();
    OK(cuMemsetD8Async, other.at(), 9, kBuffer, captured);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    OK(cuStreamIsCapturing, captured, &status);
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, captured, &graph);
    std::size_t nodes = 0;
    OK(cuGraphGetNodes, graph, nullptr, &nodes);
    EXPECT(nodes == 1);
    OK(cuCtxSynchronize);
    EXPECT(to.holds(1));
    launch_and_wait(instantiate(graph), captured);
    EXPECT(other.read() == std::vector<std::uint8_t>(kBuffer, 9));
    OK(cuGraphDestroy, graph);
}

void free_beside_each(const Gpu& gpu) {
    for (const unsigned flags : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
        const CUstream captured = stream_of(flags);
        const CUstream streams[] = {captured, stream_of(CU_STREAM_NON_BLOCKING), stream_of(CU_STREAM_DEFAULT),
                                    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
        for (const CUstream works : streams) {
            for (const bool elsewhere : {false, true}) free_beside(gpu.context, works, captured, elsewhere);
        }
    }
}

}  // namespace

FAMILY_TEST("free beside a capture: waits for the work of each stream, where all has fitted so far") {
    const Gpu gpu;
    free_beside_each(gpu);
}

FAMILY_TEST("free beside a capture: waits for the work of each stream, where memory has moved") {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
    free_beside_each(gpu);
}

namespace {

// One thread frees, another begins and ends captures, at any moments of each other.
void free_among_captures(CUcontext context) {
    constexpr int kTimes = 300;
    std::atomic<bool> over{false};
    std::thread captures([&] {
        OK(cuCtxSetCurrent, context);
        const Buffer other(kBuffer, 3);
        const CUstream captured = stream_of(CU_STREAM_NON_BLOCKING);
        while (!over) {
            OK(cuStreamBeginCapture_v2, captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
            OK(cuMemsetD8Async, other.at(), 9, kBuffer, captured);
            CUgraph graph = nullptr;
            OK(cuStreamEndCapture, captured, &graph);
            OK(cuGraphDestroy, graph);
        }
        OK(cuStreamDestroy_v2, captured);
    });
    const CUstream works = stream_of(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < kTimes; ++i) {
        CUdeviceptr freed = 0;
        OK(cuMemAlloc_v2, &freed, kBuffer);
        OK(cuMemsetD8Async, freed, 1, kBuffer, works);
        OK(cuMemFree_v2, freed);
    }
    over = true;
    captures.join();
    OK(cuStreamDestroy_v2, works);
}

}  // namespace

FAMILY_TEST("free beside a capture: one begins at any moment of a free, where all has fitted so far") {
    const Gpu gpu;
    free_among_captures(gpu.context);
}

FAMILY_TEST("free beside a capture: one begins at any moment of a free, where memory has moved") {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
    free_among_captures(gpu.context);
}
