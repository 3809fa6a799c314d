// Streams that the program fills up to the depth of their launch queue before it opens the gate they stand
// behind.
#include <cstring>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Of 1024 that the simulated driver's queues hold, the gate's included.
constexpr std::uint32_t kGiven = 940;

// Whether `give` comes back from so many calls while the gate is closed.
template <typename Give>
void give_behind(Gate& gate, std::uint32_t count, Give give) {
    std::atomic<bool> given{false};
    std::thread watching([&] {
        for (int ms = 0; ms < 20'000 && !given; ++ms)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT(given);
        gate.open();
    });
    for (std::uint32_t i = 0; i < count; ++i) give(i);
    given = true;
    watching.join();
}

// The first words of a buffer, of which every fourth piece of work changes all.
constexpr std::uint32_t kChanged = 256;

void add_one(const Buffer& buffer, CUstream stream) {
    const CUdeviceptr at = buffer.at();
    const std::uint32_t one = 1;
    EXPECT(launch("add", kChanged, stream, at, at, one, kChanged) == CUDA_SUCCESS);
}

std::vector<std::uint8_t> with_added(std::uint32_t seed, std::uint32_t times) {
    std::vector<std::uint8_t> bytes = pattern(kBuffer, seed);
    for (std::uint32_t i = 0; i < kChanged; ++i) {
        std::uint32_t word = 0;
        std::memcpy(&word, &bytes[4 * i], 4);
        word += times;
        std::memcpy(&bytes[4 * i], &word, 4);
    }
    return bytes;
}

// Launches, sets, copies and graphs over buffers that have to come in first.
void fill(CUstream stream) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const CUgraph graph = new_graph();
    const Add node(c.at(), b.at(), 5);
    add_kernel(graph, node.params);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    for (const Buffer* const buffer : {&a, &b, &c}) crowd.evict(*buffer);
    Gate gate;
    gate.hold_up(stream);
    const CUdeviceptr half = b.at(kBuffer / 2);
    std::uint32_t added = 0;
    give_behind(gate, kGiven, [&](std::uint32_t i) {
        switch (i % 4) {
            case 0:
                add_one(a, stream);
                ++added;
                break;
            case 1:
                OK(cuMemsetD8Async, half, static_cast<std::uint8_t>(i), kBuffer / 2, stream);
                break;
            case 2:
                OK(cuMemcpyDtoDAsync_v2, b.at(), half, kBuffer / 2, stream);
                break;
            default:
                OK(cuGraphLaunch, exec, stream);
        }
    });
    OK(cuStreamSynchronize, stream);
    EXPECT(a.read() == with_added(1, added));
    const auto last = static_cast<std::uint8_t>((kGiven - 1) / 4 * 4 + 1);
    EXPECT(b.read() == std::vector<std::uint8_t>(kBuffer, last));
    std::uint32_t word = 0;
    std::memset(&word, last, 4);
    word += 5;
    OK(cuMemsetD32_v2, b.at(), word, kBuffer / 4);
    EXPECT(c.read() == b.read());
    // What it used goes again.
    crowd.evict(a);
    EXPECT(a.read() == with_added(1, added));
}

CUstream blocking_stream() {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    return stream;
}

}  // namespace

FAMILY_TEST("queues: a stream takes as much behind a gate as its queue holds") {
    const Gpu gpu;
    fill(new_stream());
}

FAMILY_TEST("queues: so does a blocking one") {
    const Gpu gpu;
    fill(blocking_stream());
}

FAMILY_TEST("queues: so does the legacy default stream") {
    fill(nullptr);
}

namespace {

// Work in a deep queue, the last of it over a buffer of its own, which stays until the gate is open. `begin`
// is done to the stream meanwhile, and `end` before the gate opens.
template <typename Begin, typename End>
void stays_behind_gate(CUstream stream, Begin begin, End end) {
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    Gate gate;
    gate.hold_up(stream);
    for (std::uint32_t i = 0; i < 200; ++i) add_one(a, stream);
    add_one(b, stream);
    begin();
    const CUstream other = new_stream();
    for (int round = 0; round < 2; ++round) {
        std::vector<CUdeviceptr> more(12);
        for (CUdeviceptr& buffer : more) OK(cuMemAllocAsync, &buffer, kBuffer, other);
        for (const CUdeviceptr buffer : more) OK(cuMemsetD8Async, buffer, 1, kBuffer, other);
        for (const CUdeviceptr buffer : more) OK(cuMemFreeAsync, buffer, other);
        OK(cuStreamSynchronize, other);
    }
    EXPECT(a.resident());
    EXPECT(b.resident());
    end();
    gate.open();
    OK(cuCtxSynchronize);
    EXPECT(a.read() == with_added(1, 200));
    EXPECT(b.read() == with_added(2, 1));
    crowd.evict(b);
    EXPECT(b.read() == with_added(2, 1));
}

}  // namespace

FAMILY_TEST("queues: what the last work of a deep queue uses stays") {
    const Gpu gpu;
    stays_behind_gate(
        new_stream(), [] {}, [] {});
}

FAMILY_TEST("queues: it stays though the stream is destroyed") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    stays_behind_gate(
        stream, [&] { OK(cuStreamDestroy_v2, stream); }, [] {});
}

FAMILY_TEST("queues: it stays though a capture begins on the stream") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    CUgraph graph = nullptr;
    stays_behind_gate(
        stream, [&] { OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED); },
        [&] { OK(cuStreamEndCapture, stream, &graph); });
}

// The stream is not asked while the capture lasts.
FAMILY_TEST("queues: it stays in the legacy stream though a capture forbids to use that") {
    const Gpu gpu;
    const CUstream captured = blocking_stream();
    CUgraph graph = nullptr;
    stays_behind_gate(
        nullptr, [&] { OK(cuStreamBeginCapture_v2, captured, CU_STREAM_CAPTURE_MODE_RELAXED); },
        [&] { OK(cuStreamEndCapture, captured, &graph); });
}
