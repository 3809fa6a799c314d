// Forms of copies and sets that differ in little: the stream that handle 0 means, elements of several bytes,
// what returns at once.
#include <cstring>
#include <functional>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

std::vector<std::uint8_t> words(std::uint32_t value) {
    std::vector<std::uint8_t> bytes(kBuffer);
    for (std::size_t at = 0; at < kBuffer; at += 4) std::memcpy(bytes.data() + at, &value, 4);
    return bytes;
}

}  // namespace

// Work for the legacy stream, and what waits for it, would wait for the gate.
FAMILY_TEST("forms: what is for the thread's own stream waits for nothing in the legacy one") {
    const Gpu gpu;
    CUstream blocking = nullptr;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    const Buffer a(kBuffer, 1);
    Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.press();
    void* pinned = nullptr;
    OK(cuMemAllocHost_v2, &pinned, kBuffer);
    std::memcpy(pinned, pattern(kBuffer, 1).data(), kBuffer);
    CUDA_MEMCPY3D box = copy_of(b.at(), a.at());
    box.WidthInBytes = kBuffer / 16;
    box.Height = 4;
    box.Depth = 4;
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = a.at();
    rows.dstDevice = b.at();
    rows.WidthInBytes = kBuffer / 16;
    rows.Height = 16;
    CUDA_MEMCPY3D_PEER peer{};
    peer.srcMemoryType = peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    peer.srcContext = peer.dstContext = gpu.context;
    peer.srcDevice = a.at();
    peer.dstDevice = b.at();
    peer.WidthInBytes = kBuffer;
    peer.Height = peer.Depth = 1;
    const CUgraph graph = new_graph();
    // Of a kernel: what copies work on would stay on the GPU.
    const Add sum(b.at(), a.at(), 0);
    add_kernel(graph, sum.params);
    const auto check = [&](const char* name, const std::vector<std::uint8_t>& expected, auto&& call) {
        b.fill(2);
        crowd.evict(a);
        crowd.evict(b);
        Gate gate;
        gate.hold_up(blocking);
        if (const CUresult result = call(); result != CUDA_SUCCESS)
            failed(__FILE__, __LINE__, name + (" -> " + error_text(result)));
        OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
        gate.open();
        OK(cuCtxSynchronize);
        if (b.read() != expected)
            failed(__FILE__, __LINE__, name + std::string(" has copied something else"));
    };
    const auto copied = pattern(kBuffer, 1);
    const std::vector<std::uint8_t> bytes(kBuffer, 7);
    CUstream none = nullptr;
#define CHECK_FORM(expected, name, ...) check(#name, expected, [&] { return CU(name)(__VA_ARGS__); })
    CHECK_FORM(copied, cuMemcpy_ptds, b.at(), a.at(), kBuffer);
    CHECK_FORM(copied, cuMemcpyAsync_ptsz, b.at(), a.at(), kBuffer, none);
    CHECK_FORM(copied, cuMemcpyHtoD_v2_ptds, b.at(), pinned, kBuffer);
    CHECK_FORM(copied, cuMemcpyHtoDAsync_v2_ptsz, b.at(), pinned, kBuffer, none);
    CHECK_FORM(copied, cuMemcpyDtoD_v2_ptds, b.at(), a.at(), kBuffer);
    CHECK_FORM(copied, cuMemcpyDtoDAsync_v2_ptsz, b.at(), a.at(), kBuffer, none);
    CHECK_FORM(copied, cuMemcpyPeerAsync_ptsz, b.at(), gpu.context, a.at(), gpu.context, kBuffer, none);
    CHECK_FORM(copied, cuMemcpy2D_v2_ptds, &rows);
    CHECK_FORM(copied, cuMemcpy2DUnaligned_v2_ptds, &rows);
    CHECK_FORM(copied, cuMemcpy2DAsync_v2_ptsz, &rows, none);
    CHECK_FORM(copied, cuMemcpy3D_v2_ptds, &box);
    CHECK_FORM(copied, cuMemcpy3DAsync_v2_ptsz, &box, none);
    CHECK_FORM(copied, cuMemcpy3DPeerAsync_ptsz, &peer, none);
    CHECK_FORM(bytes, cuMemsetD8_v2_ptds, b.at(), 7, kBuffer);
    CHECK_FORM(bytes, cuMemsetD8Async_ptsz, b.at(), 7, kBuffer, none);
    CHECK_FORM(bytes, cuMemsetD16_v2_ptds, b.at(), 0x0707, kBuffer / 2);
    CHECK_FORM(bytes, cuMemsetD16Async_ptsz, b.at(), 0x0707, kBuffer / 2, none);
    CHECK_FORM(bytes, cuMemsetD32_v2_ptds, b.at(), 0x07070707, kBuffer / 4);
    CHECK_FORM(bytes, cuMemsetD32Async_ptsz, b.at(), 0x07070707, kBuffer / 4, none);
    CHECK_FORM(bytes, cuMemsetD2D8_v2_ptds, b.at(), kBuffer / 4, 7, kBuffer / 4, 4);
    CHECK_FORM(bytes, cuMemsetD2D8Async_ptsz, b.at(), kBuffer / 4, 7, kBuffer / 4, 4, none);
    CHECK_FORM(bytes, cuMemsetD2D16_v2_ptds, b.at(), kBuffer / 4, 0x0707, kBuffer / 8, 4);
    CHECK_FORM(bytes, cuMemsetD2D16Async_ptsz, b.at(), kBuffer / 4, 0x0707, kBuffer / 8, 4, none);
    CHECK_FORM(bytes, cuMemsetD2D32_v2_ptds, b.at(), kBuffer / 4, 0x07070707, kBuffer / 16, 4);
    CHECK_FORM(bytes, cuMemsetD2D32Async_ptsz, b.at(), kBuffer / 4, 0x07070707, kBuffer / 16, 4, none);
    const CUgraphExec exec = instantiate(graph);
    CHECK_FORM(copied, cuGraphLaunch_ptsz, exec, none);
#undef CHECK_FORM
}

FAMILY_TEST("forms: one row of wide values names all of it") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Buffer a(kBuffer, 1);
    Crowd crowd;
    const auto check = [&](std::uint32_t value, auto&& call) {
        crowd.evict(a);
        EXPECT(call() == CUDA_SUCCESS);
        EXPECT(a.read() == words(value));
    };
    check(0x01020102, [&] { return CU(cuMemsetD2D16_v2)(a.at(), kBuffer, 0x0102, kBuffer / 2, 1); });
    check(0x01020304, [&] { return CU(cuMemsetD2D32_v2)(a.at(), kBuffer, 0x01020304, kBuffer / 4, 1); });
    check(0x05060506, [&] { return CU(cuMemsetD16_v2)(a.at(), 0x0506, kBuffer / 2); });
    check(0x05060708, [&] { return CU(cuMemsetD32_v2)(a.at(), 0x05060708, kBuffer / 4); });
    CUDA_MEMSET_NODE_PARAMS set = set_of(a.at(), 0x090a0b0c);
    set.elementSize = 4;
    set.width = kBuffer / 4;
    const CUgraph graph = new_graph();
    add_set(graph, set, gpu);
    crowd.evict(a);
    const CUgraphExec exec = instantiate(graph);
    crowd.press();
    EXPECT(a.resident());
    launch_and_wait(exec, stream);
    EXPECT(a.read() == words(0x090a0b0c));
}

FAMILY_TEST("forms: asynchronous copies of rows return at once, behind what is unfinished") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    void* pinned = nullptr;
    OK(cuMemAllocHost_v2, &pinned, kBuffer);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = pinned;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = a.at();
    rows.WidthInBytes = kBuffer / 16;
    rows.Height = 16;
    CUDA_MEMCPY3D box = copy_of(0, a.at());
    box.dstMemoryType = CU_MEMORYTYPE_HOST;
    box.dstHost = pinned;
    crowd.evict(a);
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemcpy2DAsync_v2, &rows, stream);
    std::memcpy(pinned, pattern(kBuffer, 3).data(), kBuffer);
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(a.holds(3));
    crowd.evict(a);
    Gate second;
    second.hold_up(stream);
    OK(cuMemcpy3DAsync_v2, &box, stream);
    std::memset(pinned, 0, kBuffer);
    second.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(std::memcmp(pinned, pattern(kBuffer, 3).data(), kBuffer) == 0);
}

FAMILY_TEST("forms: captured copies and sets of rows stay one node each, however large") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    constexpr std::size_t kLarge = 3 * kMiB / 2;
    const Buffer a(kLarge, 1);
    const Buffer b(kLarge, 2);
    Crowd crowd;
    crowd.press();
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = a.at();
    rows.dstDevice = b.at();
    rows.WidthInBytes = kLarge / 16;
    rows.Height = 16;
    CUDA_MEMCPY3D box = copy_of(b.at(), a.at());
    box.WidthInBytes = kLarge / 16;
    box.Height = 4;
    box.Depth = 4;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemcpy2DAsync_v2, &rows, stream);
    OK(cuMemcpy3DAsync_v2, &box, stream);
    OK(cuMemcpyDtoDAsync_v2, b.at(), a.at(), kLarge, stream);
    OK(cuMemsetD2D8Async, a.at(), kLarge / 16, 5, kLarge / 16, 16, stream);
    OK(cuMemsetD8Async, a.at(), 5, kLarge, stream);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    std::size_t nodes = 0;
    OK(cuGraphGetNodes, graph, nullptr, &nodes);
    EXPECT(nodes == 5);
    const CUgraphExec exec = instantiate(graph);
    launch_and_wait(exec, stream);
    EXPECT(b.holds(1));
    EXPECT(a.read() == std::vector<std::uint8_t>(kLarge, 5));
}
