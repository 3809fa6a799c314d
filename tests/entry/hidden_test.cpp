// What work reaches though its arguments do not tell, because its code cannot be seen or because kernels
// wrote the addresses: it does not move beside such work, and goes out with what that has written.
#include <cstring>
#include <numeric>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"
#include "tests/entry/overlay/record.h"
#include "tests/entry/where.h"
#include "tests/support/kernels.h"

using namespace rig;

namespace {

// poke(hidden, k, n): word i of the memory at the address that is `hidden` with every bit flipped becomes i +
// k.
std::string poke_kernel() {
    return support::kPtxHead + support::word_kernel("poke",
                                                    ".param .u64 hidden, .param .u32 k, .param .u32 n",
                                                    "ld.param.u64 %a1, [hidden];\nld.param.u32 %r1, [k];\n"
                                                    "ld.param.u32 %n, [n];\nnot.b64 %a1, %a1;\n",
                                                    R"(
    add.u64 %a1, %a1, %o;
    add.u32 %r2, %i, %r1;
    st.global.u32 [%a1], %r2;
)");
}

std::vector<std::uint8_t> poked(unsigned k) {
    std::vector<std::uint32_t> words(kWords);
    std::iota(words.begin(), words.end(), k);
    std::vector<std::uint8_t> bytes(kBuffer);
    std::memcpy(bytes.data(), words.data(), kBuffer);
    return bytes;
}

// copy(out, n): the words from the address in the variable `source`.
std::string copy_kernel() {
    return support::kPtxHead + ".visible .global .align 8 .u64 source;\n" +
           support::word_kernel("copy", ".param .u64 out, .param .u32 n",
                                "ld.param.u64 %a1, [out];\nld.global.u64 %a2, [source];\n"
                                "ld.param.u32 %n, [n];\n",
                                R"(
    add.u64 %a1, %a1, %o;
    add.u64 %a2, %a2, %o;
    ld.global.u32 %r1, [%a2];
    st.global.u32 [%a1], %r1;
)");
}

// Loaded past the shim, which so knows as much of it as of code without PTX.
CUmodule load_unseen(const std::string& image) {
    CUmodule module = nullptr;
    EXPECT(SIM(cuModuleLoadData)(&module, image.c_str()) == CUDA_SUCCESS);
    return module;
}

CUfunction function_of(CUmodule module, const char* name) {
    CUfunction function = nullptr;
    OK(cuModuleGetFunction, &function, module, name);
    return function;
}

// Of poke, as a node. Must stay where it is.
struct Poke {
    Poke(CUdeviceptr address, unsigned k_) : hidden(~address), k(k_) {
        params.func = function_of(load_unseen(poke_kernel()), "poke");
        params.gridDimX = kWords / 256;
        params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
        params.blockDimX = 256;
        params.kernelParams = arguments;
    }
    Poke(const Poke&) = delete;
    Poke& operator=(const Poke&) = delete;

    void launch(CUstream stream) {
        OK(cuLaunchKernel, params.func, kWords / 256, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
    }

    CUdeviceptr hidden;
    unsigned k;
    unsigned n = kWords;
    void* arguments[3] = {&hidden, &k, &n};
    CUDA_KERNEL_NODE_PARAMS params{};
};

CUgraph as_child(CUgraph graph) {
    const CUgraph outer = new_graph();
    CUgraphNode node = nullptr;
    OK(cuGraphAddChildGraphNode, &node, outer, nullptr, 0, graph);
    return outer;
}

// Brings `buffer` in by a kernel that only reads it, so that its host copy would do.
void read_by_kernel(const Buffer& buffer, const Buffer& into) {
    EXPECT(launch("add", kWords, nullptr, into.at(), buffer.at(), 0u, kWords) == CUDA_SUCCESS);
    OK(cuStreamSynchronize, nullptr);
    EXPECT(buffer.resident());
}

}  // namespace

FAMILY_TEST("hidden: what code that cannot be seen wrote goes out with that, also from a graph in a graph") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Buffer a(kBuffer, 1);
    const Buffer into(kBuffer, 2);
    Crowd crowd;
    Poke poke(a.at(), 5);
    const auto check = [&](auto&& submit) {
        a.fill(1);
        crowd.evict(a);
        read_by_kernel(a, into);
        submit();
        OK(cuStreamSynchronize, stream);
        crowd.evict(a);
        EXPECT(a.read() == poked(5));
    };
    check([&] { poke.launch(stream); });
    const CUgraph graph = new_graph();
    add_kernel(graph, poke.params);
    for (const CUgraph each : {graph, as_child(graph), as_child(as_child(graph))}) {
        const CUgraphExec exec = instantiate(each);
        check([&] { OK(cuGraphLaunch, exec, stream); });
        check([&] { OK(cuGraphLaunch, exec, stream); });
    }
}

// A graph's nodes run on the GPUs they were made for, whosever stream it is launched into.
BODY(hidden_write_by_a_graph_elsewhere) {
    const Gpu gpu;
    Buffer a(kBuffer, 1);
    const Buffer into(kBuffer, 2);
    Crowd crowd;
    Poke poke(a.at(), 5);
    const CUgraph graph = new_graph();
    add_kernel(graph, poke.params);
    const CUgraphExec exec = instantiate(graph);
    CUcontext other = nullptr;
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    OK(cuCtxSetCurrent, other);
    const Buffer there(kBuffer, 3);
    const CUstream stream = new_stream();
    OK(cuCtxSetCurrent, gpu.context);
    crowd.evict(a);
    read_by_kernel(a, into);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    crowd.evict(a);
    EXPECT(a.read() == poked(5));
}

TEST_CASE("hidden: what a graph wrote that was launched into another GPU's stream goes out with that") {
    run_both("hidden_write_by_a_graph_elsewhere", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

BODY(hidden_write_by_a_strange_node) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Buffer a(kBuffer, 1);
    const Buffer into(kBuffer, 2);
    Crowd crowd;
    overlay::record().strange_nodes = true;
    const CUgraph graph = new_graph();
    const Add add(a.at(), into.at(), 5);
    add_kernel(graph, add.params);
    const CUgraphExec exec = instantiate(graph);
    crowd.evict(a);
    read_by_kernel(a, into);
    launch_and_wait(exec, stream);
    crowd.evict(a);
    EXPECT(a.read() == plus(into.read(), 5));
}

TEST_CASE("hidden: what a node of a type that is not known wrote goes out with that") {
    run_both("hidden_write_by_a_strange_node", Driver::Overlay, {});
}

// It begins in host memory, and is written there.
BODY(hidden_write_to_new_memory) {
    const Gpu gpu;
    const CUstream writer = new_stream();
    const CUstream reader = new_stream();
    Crowd crowd;
    const Buffer seen(kBuffer, 2);
    const Buffer a(kBuffer);
    EXPECT(a.evicted());
    Poke(a.at(), 5).launch(reader);
    OK(cuStreamSynchronize, reader);
    Gate gate;
    gate.hold_up(writer);
    OK(cuMemsetD8Async, a.at(), 7, kBuffer, writer);
    OK(cuMemcpyDtoDAsync_v2, seen.at(), a.at(), kBuffer, reader);
    OK(cuStreamSynchronize, reader);
    gate.open();
    OK(cuStreamSynchronize, writer);
    EXPECT(seen.read() == poked(5));
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 7));
}

TEST_CASE("hidden: what such code wrote to memory that nobody has named is there until that is overwritten") {
    for (const char* retain : {"1", "0"}) {
        CAPTURE(retain);
        CHECK(run("hidden_write_to_new_memory", Driver::Simulated,
                  {{"SIMCUDA_HOST_VMM", "1"}, {"LMS_RETAIN", retain}})
                  .failures == "");
    }
}

namespace {

// A kernel that waits, which reads through a variable, and another buffer that is wanted meanwhile: whether
// that comes in. `by_kernel`: the variable's address was written by a kernel, and copied there.
void beside_variable(bool by_kernel, bool moves) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const Buffer table(kBuffer, 4);
    const CUmodule module = load_unseen(copy_kernel());
    CUdeviceptr variable = 0;
    OK(cuModuleGetGlobal_v2, &variable, nullptr, module, "source");
    CUdeviceptr address = in.at();
    if (by_kernel) {
        // No address before a kernel has added to both of its words.
        constexpr unsigned kApart = 0x40000000;
        std::uint32_t words[2];
        std::memcpy(words, &address, sizeof words);
        for (std::uint32_t& word : words) word -= kApart;
        OK(cuMemcpyHtoD_v2, table.at(), words, sizeof words);
        EXPECT(launch("add", 2, nullptr, table.at(), table.at(), kApart, 2u) == CUDA_SUCCESS);
        OK(cuMemcpyDtoD_v2, variable, table.at(), sizeof address);
    } else {
        OK(cuMemcpyHtoD_v2, variable, &address, sizeof address);
    }
    OK(cuCtxSynchronize);
    Crowd crowd;
    crowd.evict(c);
    rig::bring_in(in.at(), kBuffer, stream);
    OK(cuStreamSynchronize, stream);

    Gate gate;
    gate.hold_up(stream);
    CUdeviceptr to = out.at();
    unsigned n = kWords;
    void* parameters[] = {&to, &n};
    OK(cuLaunchKernel, function_of(module, "copy"), kWords / 256, 1, 1, 256, 1, 1, 0, stream, parameters,
       nullptr);
    rig::bring_in(c.at(), kBuffer, other);
    OK(cuStreamSynchronize, other);
    EXPECT(moves ? c.resident() : c.evicted());
    EXPECT(in.resident());
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(out.holds(1));
    EXPECT(in.holds(1));
    EXPECT(c.holds(3));
}

}  // namespace

BODY(variable_of_the_host) {
    beside_variable(false, true);
}
BODY(variable_of_a_kernel) {
    beside_variable(true, false);
}

TEST_CASE("hidden: nothing moves beside work that reads through a variable which kernels may have written") {
    const auto failures = [](const char* body) {
        return run(body, Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}}).failures;
    };
    CHECK(failures("variable_of_the_host") == "");
    CHECK(failures("variable_of_a_kernel") == "");
}

// A kernel that waits, of a module with variables, which is given no buffer; its graph has one that is.
BODY(nothing_moves_beside_a_kernel_without_buffers) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    const CUmodule module = load_unseen(copy_kernel());
    CUdeviceptr variable = 0, address = in.at();
    OK(cuModuleGetGlobal_v2, &variable, nullptr, module, "source");
    OK(cuMemcpyHtoD_v2, variable, &address, sizeof address);
    CUdeviceptr nothing = 0;
    unsigned none = 0;
    void* arguments[] = {&nothing, &none};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function_of(module, "copy");
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    const CUgraph graph = new_graph();
    const CUgraphNode first = add_kernel(graph, params);
    const Add names(out.at(), in.at(), 0);
    add_kernel(graph, names.params, first);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    const auto nothing_moves = [&](auto&& submit) {
        crowd.evict(c);
        rig::bring_in(in.at(), kBuffer, stream);
        rig::bring_in(out.at(), kBuffer, stream);
        OK(cuStreamSynchronize, stream);
        Gate gate;
        gate.hold_up(stream);
        submit();
        rig::bring_in(c.at(), kBuffer, other);
        OK(cuStreamSynchronize, other);
        EXPECT(c.evicted());
        gate.open();
        OK(cuStreamSynchronize, stream);
    };
    nothing_moves([&] { OK(cuLaunchKernel, params.func, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr); });
    nothing_moves([&] { OK(cuGraphLaunch, exec, stream); });
    EXPECT(out.holds(1));
}

TEST_CASE("hidden: nothing moves beside a kernel that is given no buffer, alone and in a graph with others") {
    CHECK(run("nothing_moves_beside_a_kernel_without_buffers", Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}})
              .failures == "");
}

// At this level a graph may reach what it does not name, on the GPUs that its nodes were made for.
BODY(nothing_moves_beside_a_graph_elsewhere) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1), c(kBuffer, 3), into(kBuffer, 2);
    Crowd crowd;
    const CUgraph graph = new_graph();
    CUcontext there = nullptr;
    OK(cuDevicePrimaryCtxRetain, &there, 1);
    OK(cuCtxSetCurrent, there);
    const Buffer b(kBuffer, 4);
    const Add add(b.at(), b.at(), 0);
    add_kernel(graph, add.params);
    const CUgraphExec exec = instantiate(graph);
    const CUstream stream = new_stream();
    OK(cuCtxSetCurrent, gpu.context);
    const CUstream other = new_stream();
    crowd.evict(c);
    OK(cuCtxSynchronize);
    Gate gate;
    gate.hold_up(stream);
    OK(cuCtxSetCurrent, there);
    OK(cuGraphLaunch, exec, stream);
    OK(cuCtxSetCurrent, gpu.context);
    rig::bring_in(c.at(), kBuffer, other);
    OK(cuStreamSynchronize, other);
    EXPECT(c.evicted());
    gate.open();
    OK(cuStreamSynchronize, stream);
}

TEST_CASE("hidden: in strict nothing moves on any GPU beside a graph") {
    CHECK(run("nothing_moves_beside_a_graph_elsewhere", Driver::Simulated,
              {{"SIMCUDA_HOST_VMM", "1"}, {"SIMCUDA_DEVICES", "2"}, {"LMS_SAFETY", "strict"}})
              .failures == "");
}
