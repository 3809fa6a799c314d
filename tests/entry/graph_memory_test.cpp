// Memory that graphs allocate for themselves, beside managed buffers.
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

CUgraphNode add_allocation(CUgraph graph, CUdeviceptr& address) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    params.bytesize = kBuffer;
    CUgraphNode node = nullptr;
    OK(cuGraphAddMemAllocNode, &node, graph, nullptr, 0, &params);
    address = params.dptr;
    return node;
}

}  // namespace

// The driver knows nothing of it before the launch, and the CPU cannot read it.
FAMILY_TEST("graph memory: copies from and to what the graph allocates, whatever their sides are called") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    for (const CUmemorytype type : {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED}) {
        crowd.evict(a);
        crowd.evict(b);
        const CUgraph graph = new_graph();
        CUdeviceptr between = 0;
        const CUgraphNode made = add_allocation(graph, between);
        CUDA_MEMCPY3D copy = copy_of(between, a.at());
        copy.srcMemoryType = copy.dstMemoryType = type;
        const CUgraphNode in = add_copy(graph, copy, gpu, made);
        copy = copy_of(b.at(), between);
        copy.srcMemoryType = copy.dstMemoryType = type;
        const CUgraphNode out = add_copy(graph, copy, gpu, in);
        CUgraphNode freed = nullptr;
        OK(cuGraphAddMemFreeNode, &freed, graph, &out, 1, between);
        const CUgraphExec exec = instantiate(graph);
        for (int i = 0; i < 3; ++i) {
            launch_and_wait(exec, stream);
            EXPECT(b.read() == a.read());
        }
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, graph);
    }
    EXPECT(a.holds(1));
}

// A table in it names what the host uploads there, from the launch on.
FAMILY_TEST("graph memory: kernels are given what a graph's own table names") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer named(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    std::vector<CUdeviceptr> host(kBuffer / 8, named.at());
    const CUgraph graph = new_graph();
    CUdeviceptr table = 0;
    const CUgraphNode made = add_allocation(graph, table);
    CUDA_MEMCPY3D copy = copy_of(table, 0);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host.data();
    const CUgraphNode in = add_copy(graph, copy, gpu, made);
    const Add add(out.at(), table, 0);
    const CUgraphNode used = add_kernel(graph, add.params, in);
    CUgraphNode freed = nullptr;
    OK(cuGraphAddMemFreeNode, &freed, graph, &used, 1, table);
    const CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 2; ++i) {
        crowd.evict(named);
        launch_and_wait(exec, stream);
        EXPECT(named.resident());
        std::vector<std::uint8_t> expected(kBuffer);
        std::memcpy(expected.data(), host.data(), kBuffer);
        EXPECT(out.read() == expected);
    }
    OK(cuGraphExecDestroy, exec);
    EXPECT(named.holds(1));
}

// Nothing that it could name is there when it is made.
FAMILY_TEST("graph memory: a graph made before anything is managed is given what its tables name later") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    constexpr std::size_t kSmall = 4096;
    CUdeviceptr table = 0;
    CUdeviceptr copied = 0;
    CUdeviceptr out = 0;
    for (CUdeviceptr* each : {&table, &copied, &out}) OK(cuMemAlloc_v2, each, kSmall);
    std::vector<CUdeviceptr> host(kSmall / 8);
    const CUgraph graph = new_graph();
    CUDA_MEMCPY3D upload = copy_of(copied, 0);
    upload.srcMemoryType = CU_MEMORYTYPE_HOST;
    upload.srcHost = host.data();
    upload.WidthInBytes = kSmall;
    const CUgraphNode in = add_copy(graph, upload, gpu);
    Add first(out, table, 0);
    Add second(out, copied, 0);
    first.n = second.n = kSmall / 4;
    add_kernel(graph, second.params, add_kernel(graph, first.params, in));
    const CUgraphExec exec = instantiate(graph);
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    const CUdeviceptr pointer = a.at();
    OK(cuMemcpyHtoD_v2, table, &pointer, sizeof pointer);
    host[7] = b.at();
    for (int i = 0; i < 2; ++i) {
        crowd.evict(a);
        crowd.evict(b);
        launch_and_wait(exec, stream);
        EXPECT(a.resident());
        EXPECT(b.resident());
    }
    OK(cuGraphExecDestroy, exec);
    EXPECT(a.holds(1));
    EXPECT(b.holds(2));
}

// What stood there before may still be there when a kernel looks: the graph's place in time is not known.
FAMILY_TEST("graph memory: what a graph copies a table to names both what that held and what it did before") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    constexpr std::size_t kSmall = 4096;
    CUdeviceptr table = 0, copied = 0, out = 0;
    for (CUdeviceptr* each : {&table, &copied, &out}) OK(cuMemAlloc_v2, each, kSmall);
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    const CUdeviceptr of_a = a.at(), of_b = b.at();
    OK(cuMemcpyHtoD_v2, table + 64, &of_a, sizeof of_a);
    OK(cuMemcpyHtoD_v2, copied + 128, &of_b, sizeof of_b);
    const CUgraph graph = new_graph();
    CUDA_MEMCPY3D copy = copy_of(copied, table);
    copy.WidthInBytes = kSmall;
    add_copy(graph, copy, gpu);
    const CUgraphExec exec = instantiate(graph);
    launch_and_wait(exec, stream);
    crowd.evict(a);
    crowd.evict(b);
    const auto words = static_cast<std::uint32_t>(kSmall / 4);
    EXPECT(launch("add", words, stream, out, copied, 0u, words) == CUDA_SUCCESS);
    EXPECT(a.resident());
    EXPECT(b.resident());
    OK(cuStreamSynchronize, stream);
    // The table itself holds what it held.
    crowd.evict(a);
    crowd.evict(b);
    EXPECT(launch("add", words, stream, out, table, 0u, words) == CUDA_SUCCESS);
    EXPECT(a.resident());
    EXPECT(!b.resident());
    OK(cuStreamSynchronize, stream);
    OK(cuGraphExecDestroy, exec);
    EXPECT(a.holds(1));
    EXPECT(b.holds(2));
}
