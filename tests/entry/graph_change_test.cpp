// Nodes of executable graphs that are changed: what they had before they no longer read, name or keep.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Host memory that is gone once nobody needs it: reading it then is a fault.
class HostBuffer {
  public:
    explicit HostBuffer(std::uint32_t seed) {
        memory_ = mmap(nullptr, kBuffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(memory_ != MAP_FAILED);
        std::memcpy(memory_, pattern(kBuffer, seed).data(), kBuffer);
    }
    ~HostBuffer() { munmap(memory_, kBuffer); }
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    void* get() const { return memory_; }

  private:
    void* memory_;
};

CUDA_MEMCPY3D upload_of(CUdeviceptr to, const HostBuffer& from) {
    CUDA_MEMCPY3D copy = copy_of(to, 0);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from.get();
    return copy;
}

CUgraphNodeParams general(const CUDA_MEMCPY3D& copy, const Gpu& gpu) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    params.memcpy.copyParams = copy;
    params.memcpy.copyCtx = gpu.context;
    return params;
}

CUgraphNodeParams general(CUgraph child) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = child;
    return params;
}

void update(CUgraphExec exec, CUgraph graph) {
    CUgraphExecUpdateResultInfo info{};
    OK(cuGraphExecUpdate_v2, exec, graph, &info);
}

// An executable graph with one node in a child graph in a child graph, as the driver names it there.
struct Nested {
    explicit Nested(const std::function<void(CUgraph)>& add) {
        const CUgraph innermost = new_graph();
        add(innermost);
        const CUgraph middle = new_graph();
        CUgraphNode node = nullptr;
        OK(cuGraphAddChildGraphNode, &node, middle, nullptr, 0, innermost);
        graph = new_graph();
        OK(cuGraphAddChildGraphNode, &outer, graph, nullptr, 0, middle);
        inner = only_node(child(only_node(child(outer))));
        exec = instantiate(graph);
    }
    static CUgraph child(CUgraphNode node) {
        CUgraph found = nullptr;
        OK(cuGraphChildGraphNodeGetGraph, node, &found);
        return found;
    }
    static CUgraphNode only_node(CUgraph graph) {
        CUgraphNode node = nullptr;
        std::size_t count = 1;
        OK(cuGraphGetNodes, graph, &node, &count);
        return node;
    }
    CUgraph graph = nullptr;
    CUgraphNode outer = nullptr;
    CUgraphNode inner = nullptr;
    CUgraphExec exec = nullptr;
};

}  // namespace

FAMILY_TEST("graph changes: a copy does not read the host memory it had before, by any form of change") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 9);
    using Change = std::function<void(const Nested&, const CUDA_MEMCPY3D&)>;
    const auto fresh = [&](const CUDA_MEMCPY3D& copy) {
        return Nested([&](CUgraph graph) { add_copy(graph, copy, gpu); });
    };
    const auto check = [&](const Change& change) {
        auto first = std::make_unique<HostBuffer>(1);
        const HostBuffer second(2);
        const Nested nested = fresh(upload_of(a.at(), *first));
        launch_and_wait(nested.exec, stream);
        EXPECT(a.holds(1));
        change(nested, upload_of(a.at(), second));
        first.reset();
        for (int i = 0; i < 2; ++i) {
            launch_and_wait(nested.exec, stream);
            EXPECT(a.holds(2));
        }
        OK(cuGraphExecDestroy, nested.exec);
    };
    check([&](const Nested& nested, const CUDA_MEMCPY3D& copy) {
        OK(cuGraphExecMemcpyNodeSetParams, nested.exec, nested.inner, &copy, gpu.context);
    });
    check([&](const Nested& nested, const CUDA_MEMCPY3D& copy) {
        CUgraphNodeParams params = general(copy, gpu);
        OK(cuGraphExecNodeSetParams, nested.exec, nested.inner, &params);
    });
    check([&](const Nested& nested, const CUDA_MEMCPY3D& copy) {
        OK(cuGraphMemcpyNodeSetParams, nested.inner, &copy);
        update(nested.exec, nested.graph);
    });
    check([&](const Nested& nested, const CUDA_MEMCPY3D& copy) {
        const Nested other = fresh(copy);
        update(nested.exec, other.graph);
        OK(cuGraphDestroy, other.graph);
    });
    check([&](const Nested& nested, const CUDA_MEMCPY3D& copy) {
        OK(cuGraphMemcpyNodeSetParams, nested.inner, &copy);
        OK(cuGraphExecChildGraphNodeSetParams, nested.exec, nested.outer, Nested::child(nested.outer));
    });
    check([&](const Nested& nested, const CUDA_MEMCPY3D& copy) {
        OK(cuGraphMemcpyNodeSetParams, nested.inner, &copy);
        CUgraphNodeParams params = general(Nested::child(nested.outer));
        OK(cuGraphExecNodeSetParams, nested.exec, nested.outer, &params);
    });
    // A node of the graph that it was made of is changed after an update from another.
    check([&](const Nested& nested, const CUDA_MEMCPY3D& copy) {
        const HostBuffer between(3);
        update(nested.exec, fresh(upload_of(a.at(), between)).graph);
        OK(cuGraphExecMemcpyNodeSetParams, nested.exec, nested.inner, &copy, gpu.context);
    });
}

// The one place that knows where a copy of pointers came from before.
FAMILY_TEST("graph changes: host memory that a copy had before is not taken for a pointer table") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer table(kBuffer, 1);
    const Buffer named(kBuffer, 2);
    const Buffer out(kBuffer, 3);
    const HostBuffer first(4);
    const HostBuffer second(5);
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_copy(graph, upload_of(table.at(), first), gpu);
    const CUgraphExec exec = instantiate(graph);
    const CUDA_MEMCPY3D other = upload_of(table.at(), second);
    OK(cuGraphExecMemcpyNodeSetParams, exec, node, &other, gpu.context);
    const CUdeviceptr address = named.at();
    std::memcpy(first.get(), &address, sizeof address);
    launch_and_wait(exec, stream);
    Crowd crowd;
    crowd.evict(named);
    EXPECT(launch("add", kWords, nullptr, out.at(), table.at(), 1u, kWords) == CUDA_SUCCESS);
    EXPECT(named.evicted());
    EXPECT(out.read() == plus(pattern(kBuffer, 5), 1));
}

FAMILY_TEST("graph changes: what copies and sets worked on before goes, what they work on now stays") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const Buffer d(kBuffer, 4);
    Crowd crowd;
    const auto check = [&](const Nested& nested, const std::function<void(const Nested&)>& change) {
        crowd.press();
        EXPECT(a.resident());
        EXPECT(b.resident());
        change(nested);
        crowd.evict(a);
        crowd.evict(b);
        EXPECT(c.resident());
        EXPECT(d.resident());
        launch_and_wait(nested.exec, stream);
        EXPECT(a.evicted());
        EXPECT(b.evicted());
        OK(cuGraphExecDestroy, nested.exec);
        crowd.evict(c);
        crowd.evict(d);
    };
    const CUDA_MEMCPY3D copy = copy_of(d.at(), c.at());
    const auto of_copy = [&] {
        return Nested([&](CUgraph graph) { add_copy(graph, copy_of(b.at(), a.at()), gpu); });
    };
    check(of_copy(), [&](const Nested& nested) {
        OK(cuGraphExecMemcpyNodeSetParams, nested.exec, nested.inner, &copy, gpu.context);
    });
    check(of_copy(), [&](const Nested& nested) {
        OK(cuGraphMemcpyNodeSetParams, nested.inner, &copy);
        OK(cuGraphExecChildGraphNodeSetParams, nested.exec, nested.outer, Nested::child(nested.outer));
    });
    check(of_copy(), [&](const Nested& nested) {
        OK(cuGraphMemcpyNodeSetParams, nested.inner, &copy);
        update(nested.exec, nested.graph);
    });
    // As one node, sets are of one buffer.
    const CUDA_MEMSET_NODE_PARAMS set = set_of(d.at(), 7);
    const Nested nested([&](CUgraph graph) { add_set(graph, set_of(a.at(), 7), gpu); });
    crowd.press();
    EXPECT(a.resident());
    OK(cuGraphExecMemsetNodeSetParams, nested.exec, nested.inner, &set, gpu.context);
    crowd.evict(a);
    EXPECT(d.resident());
    // Refused, it has what it had.
    const CUDA_MEMSET_NODE_PARAMS bad = set_of(0, 7);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams, nested.exec, nested.inner, &bad,
          gpu.context);
    crowd.press();
    EXPECT(d.resident());
    EXPECT(a.evicted());
}

FAMILY_TEST("graph changes: buffers that kernels named before are left where they are") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const Buffer d(kBuffer, 4);
    const Add first(b.at(), a.at(), 1);
    const Add second(d.at(), c.at(), 2);
    const Nested nested([&](CUgraph graph) { add_kernel(graph, first.params); });
    Crowd crowd;
    OK(cuGraphExecKernelNodeSetParams_v2, nested.exec, nested.inner, &second.params);
    for (const Buffer* buffer : {&a, &b, &c, &d}) crowd.evict(*buffer);
    launch_and_wait(nested.exec, stream);
    for (const Buffer* buffer : {&a, &b}) EXPECT(buffer->evicted());
    for (const Buffer* buffer : {&c, &d}) EXPECT(buffer->resident());
    EXPECT(d.read() == plus(pattern(kBuffer, 3), 2));
    EXPECT(b.holds(2));
}

FAMILY_TEST("graph changes: again and again, each fits that fits beside the one before") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    constexpr std::size_t kLarge = 3 * kMiB / 2;
    const Buffer buffers[] = {Buffer(kLarge, 0), Buffer(kLarge, 1), Buffer(kLarge, 2), Buffer(kLarge, 3)};
    const auto set = [&](int i) {
        CUDA_MEMSET_NODE_PARAMS params = set_of(buffers[i].at(), 7);
        params.width = kLarge;
        return params;
    };
    const Nested nested([&](CUgraph graph) { add_set(graph, set(0), gpu); });
    Crowd crowd;
    const auto changed_to = [&](int i) {
        crowd.press();
        for (int j = 0; j < 4; ++j) EXPECT(buffers[j].resident() == (j == i));
    };
    changed_to(0);
    for (const int i : {1, 2, 3, 0, 2}) {
        const CUDA_MEMSET_NODE_PARAMS params = set(i);
        OK(cuGraphExecMemsetNodeSetParams, nested.exec, nested.inner, &params, gpu.context);
        changed_to(i);
    }
    for (const int i : {1, 2, 3, 0}) {
        const CUDA_MEMSET_NODE_PARAMS params = set(i);
        OK(cuGraphMemsetNodeSetParams, nested.inner, &params);
        update(nested.exec, nested.graph);
        changed_to(i);
    }
    launch_and_wait(nested.exec, stream);
    EXPECT(buffers[0].read() == std::vector<std::uint8_t>(kLarge, 7));
    for (int j = 1; j < 4; ++j) EXPECT(buffers[j].holds(j));
    // Of another shape it is refused, and all stays as it was.
    const CUgraph other = new_graph();
    add_set(other, set(1), gpu);
    CUgraphExecUpdateResultInfo info{};
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2, nested.exec, other, &info);
    changed_to(0);
    launch_and_wait(nested.exec, stream);
}

// The driver looks at what an operand is mapped to, so what cannot come in is no operand.
FAMILY_TEST("graph changes: what finds no room is refused, and all stays as it was") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Crowd crowd;
    std::vector<std::unique_ptr<Buffer>> kept;
    std::vector<CUgraphExec> execs;
    CUgraphNode first = nullptr;
    // Each keeps its own operand there, until there is no room for one more.
    for (bool fits = true; fits && kept.size() < 16;) {
        kept.push_back(std::make_unique<Buffer>(kBuffer, 10 + kept.size()));
        const CUDA_MEMSET_NODE_PARAMS set = set_of(kept.back()->at(), 7);
        const CUgraph graph = new_graph();
        CUgraphNode node = nullptr;
        const CUresult status = CU(cuGraphAddMemsetNode)(&node, graph, nullptr, 0, &set, gpu.context);
        fits = status == CUDA_SUCCESS;
        EXPECT(fits || status == CUDA_ERROR_OUT_OF_MEMORY);
        if (!first) first = node;
        if (fits) execs.push_back(instantiate(graph));
    }
    EXPECT(execs.size() > 2 && execs.size() + 1 == kept.size());
    const Buffer& out = *kept.back();
    EXPECT(!out.resident());
    const CUDA_MEMSET_NODE_PARAMS set = set_of(out.at(), 8);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuGraphExecMemsetNodeSetParams, execs[0], first, &set, gpu.context);
    for (const CUgraphExec exec : execs) launch_and_wait(exec, stream);
    EXPECT(out.holds(10 + execs.size()));
    for (std::size_t i = 0; i < execs.size(); ++i)
        EXPECT(kept[i]->read() == std::vector<std::uint8_t>(kBuffer, 7));
    // With room again it is changed.
    OK(cuGraphExecDestroy, execs[1]);
    OK(cuGraphExecMemsetNodeSetParams, execs[0], first, &set, gpu.context);
    kept[0]->fill(1);
    launch_and_wait(execs[0], stream);
    EXPECT(out.read() == std::vector<std::uint8_t>(kBuffer, 8));
    EXPECT(kept[0]->holds(1));
}

FAMILY_TEST("graph changes: a node in the body of a conditional one") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_set(add_branch(graph, gpu, true), set_of(a.at(), 7), gpu);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    crowd.press();
    EXPECT(a.resident());
    const CUDA_MEMSET_NODE_PARAMS set = set_of(b.at(), 7);
    OK(cuGraphExecMemsetNodeSetParams, exec, node, &set, gpu.context);
    crowd.evict(a);
    EXPECT(b.resident());
    launch_and_wait(exec, stream);
    EXPECT(a.holds(1));
    EXPECT(b.read() == std::vector<std::uint8_t>(kBuffer, 7));
}

// Which node is which is told by what comes after what.
FAMILY_TEST("graph changes: nodes of an update made in another order") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const Buffer d(kBuffer, 4);
    const Buffer e(kBuffer, 5);
    const CUgraph graph = new_graph();
    const CUgraphNode first = add_set(graph, set_of(a.at(), 1), gpu);
    const CUgraphNode second = add_set(graph, set_of(b.at(), 1), gpu, first);
    const CUgraphExec exec = instantiate(graph);
    const CUgraph other = new_graph();
    const CUgraphNode other_second = add_set(other, set_of(d.at(), 1), gpu);
    const CUgraphNode other_first = add_set(other, set_of(c.at(), 1), gpu);
    OK(cuGraphAddDependencies_v2, other, &other_first, &other_second, nullptr, 1);
    update(exec, other);
    Crowd crowd;
    crowd.evict(a);
    crowd.evict(b);
    const CUDA_MEMSET_NODE_PARAMS set = set_of(e.at(), 1);
    OK(cuGraphExecMemsetNodeSetParams, exec, second, &set, gpu.context);
    crowd.evict(d);
    EXPECT(c.resident());
    EXPECT(e.resident());
    OK(cuGraphExecMemsetNodeSetParams, exec, first, &set, gpu.context);
    crowd.evict(c);
    EXPECT(e.resident());
}

FAMILY_TEST("graph changes: a copy that is off is not read, whatever else is changed") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 9);
    const Buffer b(kBuffer, 8);
    auto first = std::make_unique<HostBuffer>(1);
    const HostBuffer second(2);
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_copy(graph, upload_of(a.at(), *first), gpu);
    const CUgraphNode on = add_copy(graph, upload_of(b.at(), second), gpu);
    const CUgraphExec exec = instantiate(graph);
    OK(cuGraphNodeSetEnabled, exec, node, 0);
    update(exec, graph);
    first.reset();
    const auto check = [&](std::uint32_t in_a, std::uint32_t in_b) {
        launch_and_wait(exec, stream);
        EXPECT(a.holds(in_a));
        EXPECT(b.holds(in_b));
    };
    check(9, 2);
    const HostBuffer third(3);
    CUDA_MEMCPY3D copy = upload_of(b.at(), third);
    OK(cuGraphExecMemcpyNodeSetParams, exec, on, &copy, gpu.context);
    check(9, 3);
    copy = upload_of(a.at(), third);
    OK(cuGraphExecMemcpyNodeSetParams, exec, node, &copy, gpu.context);
    OK(cuGraphNodeSetEnabled, exec, node, 1);
    check(3, 3);
}

FAMILY_TEST("graph changes: a copy that is on again is seen again") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer table(kBuffer, 1);
    const Buffer named(kBuffer, 2);
    const Buffer out(kBuffer, 3);
    const HostBuffer host(4);
    const CUdeviceptr address = named.at();
    std::memcpy(host.get(), &address, sizeof address);
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_copy(graph, upload_of(table.at(), host), gpu);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    const auto names = [&] {
        crowd.evict(named);
        launch_and_wait(exec, stream);
        EXPECT(launch("add", kWords, nullptr, out.at(), table.at(), 1u, kWords) == CUDA_SUCCESS);
        OK(cuCtxSynchronize);
        return named.resident();
    };
    OK(cuGraphNodeSetEnabled, exec, node, 0);
    EXPECT(!names());
    OK(cuGraphNodeSetEnabled, exec, node, 1);
    EXPECT(names());
}

// As JAX does with arrays from a pool: a node is changed only where its buffer is not at the address it had
// before.
FAMILY_TEST("graph changes: memory that a copy's node reads is freed and allocated anew between launches") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer target(kBuffer, 9);
    Crowd crowd;
    const CUgraph graph = new_graph();
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    std::vector<CUdeviceptr> sources;
    for (std::uint32_t round = 0; round < 4; ++round) {
        CUdeviceptr source = 0;
        OK(cuMemAlloc_v2, &source, kBuffer);
        OK(cuMemcpyHtoD_v2, source, pattern(kBuffer, round).data(), kBuffer);
        const CUDA_MEMCPY3D copy = copy_of(target.at(), source);
        if (!exec) {
            node = add_copy(graph, copy, gpu);
            exec = instantiate(graph);
        } else if (source != sources.back()) {
            OK(cuGraphExecMemcpyNodeSetParams, exec, node, &copy, gpu.context);
        }
        launch_and_wait(exec, stream);
        EXPECT(target.read() == pattern(kBuffer, round));
        OK(cuMemFree_v2, source);
        sources.push_back(source);
        crowd.press();
    }
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    // All those addresses can be had again.
    std::vector<std::unique_ptr<Buffer>> many;
    const auto had = [&](CUdeviceptr source) {
        return std::ranges::any_of(many, [&](const auto& buffer) { return buffer->at() == source; });
    };
    while (many.size() < 24) many.push_back(std::make_unique<Buffer>(kBuffer));
    for (const CUdeviceptr source : sources) EXPECT(had(source));
}
