// Host memory that the copies of a graph read, and that is not there, or is nothing to them, when the graph
// is launched.
#include <sys/mman.h>

#include <cstring>

#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

CUDA_MEMCPY3D upload_of(CUdeviceptr to, const void* from) {
    CUDA_MEMCPY3D copy = copy_of(to, 0);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    return copy;
}

// Host memory of a buffer's size, at `at` where that is told.
void* map_host(void* at = nullptr) {
    void* const host =
        mmap(at, kBuffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    EXPECT(host != MAP_FAILED);
    return host;
}

}  // namespace

FAMILY_TEST("graphs: host memory of a copy that its condition keeps from running may be gone") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    void* const host = map_host();
    const CUgraph graph = new_graph();
    add_copy(add_branch(graph, gpu, false), upload_of(a.at(), host), gpu);
    const CUgraphExec exec = instantiate(graph);
    // Its second half, and all of it.
    const std::size_t half = kBuffer / 2;
    for (const std::size_t rest : {half, std::size_t{0}}) {
        munmap(static_cast<std::byte*>(host) + rest, half);
        launch_and_wait(exec, stream);
        EXPECT(a.holds(1));
    }
}

FAMILY_TEST("graphs: host memory of a copy may be there for the copy alone") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    void* const host = map_host();
    const CUgraph graph = new_graph();
    CUDA_HOST_NODE_PARAMS make{};
    make.userData = host;
    make.fn = [](void* at) {
        const std::vector<std::uint8_t> sevens = pattern(kBuffer, 7);
        std::memcpy(map_host(at), sevens.data(), kBuffer);
    };
    CUDA_HOST_NODE_PARAMS drop{};
    drop.userData = host;
    drop.fn = [](void* at) { munmap(at, kBuffer); };
    CUgraphNode made = nullptr;
    OK(cuGraphAddHostNode, &made, graph, nullptr, 0, &make);
    const CUgraphNode copied = add_copy(graph, upload_of(a.at(), host), gpu, made);
    CUgraphNode dropped = nullptr;
    OK(cuGraphAddHostNode, &dropped, graph, &copied, 1, &drop);
    const CUgraphExec exec = instantiate(graph);
    munmap(host, kBuffer);
    launch_and_wait(exec, stream);
    EXPECT(a.holds(7));
}

FAMILY_TEST("graphs: a switched-off copy's host memory is nothing to anybody, and may be gone",
            "graph-switched-off") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1), out(kBuffer, 2), named(kBuffer, 3);
    Crowd crowd;
    void* const host = map_host();
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_copy(graph, upload_of(a.at(), host), gpu);
    const CUgraphExec exec = instantiate(graph);
    OK(cuGraphNodeSetEnabled, exec, node, 0);
    const CUdeviceptr address = named.at();
    std::memcpy(host, &address, sizeof address);
    launch_and_wait(exec, stream);
    crowd.evict(named);
    EXPECT(launch("add", kWords, stream, out.at(), a.at(), 0u, kWords) == CUDA_SUCCESS);
    OK(cuStreamSynchronize, stream);
    EXPECT(named.evicted());
    munmap(host, kBuffer);
    launch_and_wait(exec, stream);
    EXPECT(a.holds(1));
}
