// Which buffers a launch names by pointers that are not where, or not what, one looks for first.
#include <cstring>

#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Adds 5 to `in`, which the kernel is given as `named`, while it is out.
template <typename Named>
void add_while_out(const char* name, Crowd& crowd, const Buffer& in, const Named& named) {
    const Buffer out(kBuffer, 9);
    crowd.evict(in);
    EXPECT(launch(name, kWords, nullptr, out.at(), named, 5u, kWords) == CUDA_SUCCESS);
    EXPECT(in.resident());
    EXPECT(out.read() == plus(in.read(), 5));
}

}  // namespace

FAMILY_TEST("names: a pointer to just before the lowest buffer, and to just past the highest") {
    const Gpu gpu;
    const Buffer lowest(kBuffer, 1);
    Crowd crowd;
    const Buffer highest(kBuffer, 2);
    add_while_out("add_just_after", crowd, lowest, lowest.at() - 4);
    add_while_out("add_far_after", crowd, lowest, lowest.at() - 49152);
    add_while_out("add_before", crowd, highest, highest.at(kBuffer));
}

FAMILY_TEST("names: a table holds a pointer to just before the lowest buffer") {
    const Gpu gpu;
    const Buffer lowest(kBuffer, 1);
    Crowd crowd;
    const Buffer table(kBuffer, 3);
    const CUdeviceptr before = lowest.at() - 4;
    OK(cuMemcpyHtoD_v2, table.at(), &before, sizeof before);
    const Buffer out(kBuffer, 9);
    crowd.evict(lowest);
    EXPECT(launch("add", kWords, nullptr, out.at(), table.at(), 0u, kWords) == CUDA_SUCCESS);
    EXPECT(lowest.resident());
    OK(cuCtxSynchronize);
}

FAMILY_TEST("names: a table that leads to another was written before there was a buffer") {
    const Gpu gpu;
    constexpr unsigned kTableWords = 16;
    CUdeviceptr first = 0, second = 0;
    OK(cuMemAlloc_v2, &first, kTableWords * sizeof(std::uint32_t));
    OK(cuMemAlloc_v2, &second, kTableWords * sizeof(std::uint32_t));
    OK(cuMemcpyHtoD_v2, first, &second, sizeof second);
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 9);
    Crowd crowd;
    const CUdeviceptr pointer = in.at();
    OK(cuMemcpyHtoD_v2, second, &pointer, sizeof pointer);
    crowd.evict(in);
    EXPECT(launch("add", kTableWords, nullptr, out.at(), first, 0u, kTableWords) == CUDA_SUCCESS);
    EXPECT(in.resident());
    OK(cuCtxSynchronize);
}

FAMILY_TEST("names: a table that was freed holds nothing, whatever its memory is next") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    const Buffer out(kBuffer, 9);
    CUdeviceptr table = 0, next = 0;
    OK(cuMemAlloc_v2, &table, kBuffer);
    const CUdeviceptr pointer = a.at();
    OK(cuMemcpyHtoD_v2, table, &pointer, sizeof pointer);
    OK(cuMemFree_v2, table);
    OK(cuMemAlloc_v2, &next, kBuffer);
    EXPECT(next == table);
    crowd.evict(a);
    EXPECT(launch("add", kWords, nullptr, out.at(), next, 0u, kWords) == CUDA_SUCCESS);
    EXPECT(!a.resident());
    OK(cuCtxSynchronize);
    OK(cuMemFree_v2, next);
}

FAMILY_TEST("names: a table whose free is refused holds what it held") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer table(kBuffer, 3);
    const Buffer out(kBuffer, 9);
    Crowd crowd;
    const CUstream gone = new_stream();
    OK(cuStreamDestroy_v2, gone);
    const CUdeviceptr pointer = a.at();
    OK(cuMemcpyHtoD_v2, table.at(), &pointer, sizeof pointer);
    EXPECT(CU(cuMemFreeAsync)(table.at(), gone) != CUDA_SUCCESS);
    crowd.evict(a);
    EXPECT(launch("add", kWords, nullptr, out.at(), table.at(), 0u, kWords) == CUDA_SUCCESS);
    EXPECT(a.resident());
    OK(cuCtxSynchronize);
}

FAMILY_TEST("names: a table in memory that is not managed holds what it held after frees that are refused") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer out(kBuffer, 9);
    constexpr std::size_t kSmall = 256;
    CUdeviceptr table = 0;
    OK(cuMemAlloc_v2, &table, kSmall);
    Crowd crowd;
    const CUstream stream = new_stream();
    const CUstream gone = new_stream();
    OK(cuStreamDestroy_v2, gone);
    const CUdeviceptr pointer = a.at();
    OK(cuMemcpyHtoD_v2, table, &pointer, sizeof pointer);
    constexpr unsigned kSmallWords = kSmall / 4;
    const auto held = [&] {
        crowd.evict(a);
        EXPECT(launch("add", kSmallWords, nullptr, out.at(), table, 0u, kSmallWords) == CUDA_SUCCESS);
        EXPECT(a.resident());
        OK(cuCtxSynchronize);
    };
    EXPECT(CU(cuMemFreeAsync)(table, gone) != CUDA_SUCCESS);
    held();
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFree_v2, table);
    CUgraph graph = nullptr;
    CU(cuStreamEndCapture)(stream, &graph);
    held();
    OK(cuMemFree_v2, table);
}

FAMILY_TEST("names: a pointer at any byte of a packed struct") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    struct [[gnu::packed]] {
        char other[3] = {1, 2, 3};
        CUdeviceptr pointer = 0;
        char rest[5] = {4, 5, 6, 7, 8};
    } packed;
    packed.pointer = a.at();
    add_while_out("add_packed", crowd, a, packed);
}

// To the driver page-locked host memory is memory of the GPU's as well.
FAMILY_TEST("names: a table of which page-locked host memory is copied as memory of the GPU's") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer table(kBuffer, 3);
    const Buffer out(kBuffer, 9);
    Crowd crowd;
    const CUstream stream = new_stream();
    void* host = nullptr;
    OK(cuMemAllocHost_v2, &host, kBuffer);
    CUdeviceptr from = 0;
    OK(cuMemHostGetDevicePointer_v2, &from, host, 0);
    const CUdeviceptr pointer = a.at();
    std::memcpy(host, &pointer, sizeof pointer);
    const auto check = [&](auto&& copy) {
        OK(cuMemsetD8_v2, table.at(), 0, kBuffer);
        crowd.evict(a);
        copy();
        EXPECT(launch("add", kWords, stream, out.at(), table.at(), 0u, kWords) == CUDA_SUCCESS);
        EXPECT(a.resident());
        OK(cuCtxSynchronize);
    };
    check([&] { OK(cuMemcpyDtoD_v2, table.at(), from, 64); });
    check([&] { OK(cuMemcpyDtoDAsync_v2, table.at(), from, 64, stream); });
    check([&] { OK(cuMemcpyPeer, table.at(), gpu.context, from, gpu.context, 64); });
    check([&] { OK(cuMemcpy, table.at(), from, 64); });
    CUDA_MEMCPY3D copy = copy_of(table.at(), from);
    check([&] { OK(cuMemcpy3DAsync_v2, &copy, stream); });
    const CUgraph graph = new_graph();
    add_copy(graph, copy, gpu);
    const CUgraphExec exec = instantiate(graph);
    check([&] { OK(cuGraphLaunch, exec, stream); });
    OK(cuMemFreeHost, host);
}
