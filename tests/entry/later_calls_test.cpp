// Calls that came later than the simulated driver: those of the table's last part, and those that no row has,
// which may have done anything.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"
#include "tests/entry/overlay/later.h"

using namespace rig;

namespace {

// As a program finds what only its driver has: by a lookup in libcuda.
template <typename Function>
Function* later(const char* name) {
    void* const found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    EXPECT(found != nullptr);
    return reinterpret_cast<Function*>(found);
}
#define LATER(name) (later<decltype(::name)>(#name))

bool maps_host() {
    const char* const host_vmm = std::getenv("SIMCUDA_HOST_VMM");
    return !host_vmm || std::string_view(host_vmm) != "0";
}

using Words = std::vector<std::uint32_t>;

Words words_of(const std::vector<std::uint8_t>& bytes) {
    Words words(kWords);
    std::memcpy(words.data(), bytes.data(), kBuffer);
    return words;
}

bool all_words(const Buffer& buffer, std::uint32_t word) {
    return words_of(buffer.read()) == Words(kWords, word);
}

// Whether it holds what it held, and so much more in each word.
bool added(const Buffer& buffer, Words before, std::uint32_t more) {
    for (std::uint32_t& word : before) word += more;
    return words_of(buffer.read()) == before;
}

// Has it come in for a kernel that reads it alone: it is clean.
void bring_in_clean(const Buffer& buffer, const Buffer& out) {
    EXPECT(launch("add", kWords, nullptr, out.at(), buffer.at(), 0u, kWords) == CUDA_SUCCESS);
    OK(cuCtxSynchronize, );
    EXPECT(buffer.resident());
}

// Has `write` write into a buffer that has just come in, and so is clean, and looks whether that lasts.
template <typename Write>
void write_what_is_clean(Write write) {
    const Gpu gpu;
    Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer out(kBuffer, 3);
    Crowd crowd;
    for (int round = 0; round < 3; ++round) {
        a.fill(1);
        crowd.evict(a);
        bring_in_clean(a, out);
        write(a, b);
        OK(cuCtxSynchronize, );
        crowd.evict(a);
        EXPECT(a.holds(2));
    }
}

}  // namespace

OVERLAY_TEST("later calls: what a copy with attributes writes into a clean buffer lasts",
             "attributes-clean") {
    CUmemcpyAttributes in_order{};
    in_order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for (const auto copy : {CU(cuMemcpyWithAttributesAsync), CU(cuMemcpyWithAttributesAsync_ptsz)}) {
        write_what_is_clean([&](const Buffer& a, const Buffer& b) {
            EXPECT(copy(a.at(), b.at(), kBuffer, &in_order, nullptr) == CUDA_SUCCESS);
        });
    }
    for (const auto copy : {CU(cuMemcpy3DWithAttributesAsync), CU(cuMemcpy3DWithAttributesAsync_ptsz)}) {
        write_what_is_clean([&](const Buffer& a, const Buffer& b) {
            CUDA_MEMCPY3D_BATCH_OP whole{};
            whole.src.type = whole.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
            whole.src.op.ptr = {b.at(), kBuffer, 0, {}};
            whole.dst.op.ptr = {a.at(), kBuffer, 0, {}};
            whole.extent = {kBuffer, 1, 1};
            whole.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
            EXPECT(copy(&whole, 0, nullptr) == CUDA_SUCCESS);
        });
    }
}

OVERLAY_TEST("later calls: copies with attributes of what is out, and larger than the GPU",
             "attributes-parts") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    constexpr std::size_t kLarge = 6 * kMiB;
    const Buffer from(kLarge, 1);
    const Buffer to(kLarge, 2);
    CUmemcpyAttributes attributes{};
    for (const auto order : {CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_ANY}) {
        attributes.srcAccessOrder = order;
        OK(cuMemcpyWithAttributesAsync, to.at(), from.at(), kLarge, &attributes, stream);
        OK(cuStreamSynchronize, stream);
        EXPECT(to.holds(1));
        std::vector<std::uint8_t> words = pattern(kLarge, 3);
        OK(cuMemcpyWithAttributesAsync_ptsz, to.at(), reinterpret_cast<CUdeviceptr>(words.data()), kLarge,
           &attributes, stream);
        OK(cuStreamSynchronize, stream);
        EXPECT(to.holds(3));
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyWithAttributesAsync, to.at(), from.at(), kLarge, nullptr, stream);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyWithAttributesAsync, to.at(), from.at(), kLarge + 4 * kMiB,
          &attributes, stream);
    EXPECT(to.holds(3));
}

OVERLAY_TEST("later calls: nodes that are added or changed by the newer forms have their operands in place",
             "nodes-newer") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    CUgraphNodeParams node{};
    node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    node.memcpy.copyParams = copy_of(b.at(), a.at());
    node.memcpy.copyCtx = gpu.context;
    CUgraphNode made = nullptr;
    const CUgraph graph = new_graph();
    crowd.evict(a);
    OK(cuGraphAddNode_v3, &made, graph, nullptr, nullptr, 0, &node);
    launch_and_wait(instantiate(graph), stream);
    EXPECT(b.holds(1));
    node.memcpy.copyParams = copy_of(b.at(), c.at());
    crowd.evict(c);
    OK(cuGraphNodeSetParams_v2, made, &node);
    launch_and_wait(instantiate(graph), stream);
    EXPECT(b.holds(3));
}

OVERLAY_TEST("later calls: what is captured anew into a graph moves nothing", "capture-anew") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    kernel("add");  // loading is forbidden later
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    for (const auto begin : {CU(cuStreamBeginRecaptureToGraph), CU(cuStreamBeginRecaptureToGraph_ptsz)}) {
        crowd.evict(a);
        crowd.evict(b);
        CUgraph graph = new_graph();
        EXPECT(begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, graph, nullptr, nullptr) == CUDA_SUCCESS);
        EXPECT(launch("add", kWords, stream, b.at(), a.at(), 3u, kWords) == CUDA_SUCCESS);
        OK(cuStreamEndCapture, stream, &graph);
        EXPECT(a.evicted());
        EXPECT(b.evicted());
        std::size_t nodes = 0;
        OK(cuGraphGetNodes, graph, nullptr, &nodes);
        EXPECT(nodes == 1);
    }
}

OVERLAY_TEST("later calls: what a call that no row has writes into a clean buffer lasts") {
    for (const auto fill : {LATER(cuFutureFill), LATER(cuFutureFill_ptsz)}) {
        const Gpu gpu;
        const Buffer a(kBuffer, 1);
        const Buffer out(kBuffer, 3);
        Crowd crowd;
        for (std::uint32_t round = 0; round < 3; ++round) {
            crowd.evict(a);
            bring_in_clean(a, out);
            EXPECT(fill(a.at(), 7 + round, kWords, nullptr) == CUDA_SUCCESS);
            crowd.evict(a);
            EXPECT(all_words(a, 7 + round));
        }
    }
}

OVERLAY_TEST("later calls: nothing moves from before a call that no row has until its work is over") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer out(kBuffer, 3);
    Crowd crowd;
    crowd.press();
    bring_in_clean(a, out);
    Gate gate;
    gate.hold_up(stream);
    EXPECT(LATER(cuFutureFill)(a.at(), 9, kWords, stream) == CUDA_SUCCESS);
    // Where others cannot do without room they would wait for it.
    if (maps_host()) {
        crowd.press();
        EXPECT(a.resident());
    }
    gate.open();
    OK(cuStreamSynchronize, stream);
    crowd.evict(a);
    EXPECT(all_words(a, 9));
}

OVERLAY_TEST("later calls: nothing moves until such a call's work is over beside a capture either") {
    const Gpu gpu;
    const CUstream stream = new_stream(), captured = new_stream(), other = new_stream();
    const Buffer a(kBuffer, 1), c(kBuffer, 2), out(kBuffer, 3);
    Crowd crowd;
    crowd.evict(c);
    bring_in_clean(a, out);
    OK(cuStreamBeginCapture_v2, captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    Gate gate;
    gate.hold_up(stream);
    EXPECT(LATER(cuFutureFill)(a.at(), 9, kWords, stream) == CUDA_SUCCESS);
    if (maps_host()) {
        EXPECT(launch("add", kWords, other, out.at(), c.at(), 0u, kWords) == CUDA_SUCCESS);
        EXPECT(!c.resident());
    }
    gate.open();
    OK(cuStreamSynchronize, stream);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, captured, &graph);
    crowd.evict(a);
    EXPECT(all_words(a, 9));
}

OVERLAY_TEST(
    "later calls: later work in the stream stands for what such a call left there, earlier does not") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer out(kBuffer, 3);
    Crowd crowd;
    crowd.press();
    for (std::uint32_t round = 0; round < 4; ++round) {
        bring_in_clean(a, out);
        crowd.bring_in(b);
        launch("add", kWords, stream, b.at(), b.at(), 1u, kWords);
        EXPECT(LATER(cuFutureFill)(a.at(), round, kWords, stream) == CUDA_SUCCESS);
        if (round % 2 == 1) launch("add", kWords, stream, b.at(), b.at(), 1u, kWords);
        crowd.evict(a);
        EXPECT(all_words(a, round));
    }
}

OVERLAY_TEST("later calls: what is launched in a stream that such a call made is waited for") {
    const Gpu gpu;
    CUstream stream = nullptr;
    EXPECT(LATER(cuFutureStream)(&stream) == CUDA_SUCCESS);
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.press();
    Gate gate;
    gate.hold_up(stream);
    EXPECT(launch("add", kWords, stream, a.at(), a.at(), 5u, kWords) == CUDA_SUCCESS);
    if (maps_host()) {
        crowd.press();
        EXPECT(a.resident());
    }
    gate.open();
    OK(cuStreamSynchronize, stream);
    crowd.evict(a);
    EXPECT(added(a, words_of(pattern(kBuffer, 1)), 5));
}

OVERLAY_TEST("later calls: what such a call leaves in a stream that another made is waited for") {
    const Gpu gpu;
    for (const bool pressed : {false, true}) {
        CUstream stream = nullptr;
        EXPECT(LATER(cuFutureStream)(&stream) == CUDA_SUCCESS);
        const Buffer a(kBuffer, 1);
        const Buffer out(kBuffer, 3);
        auto crowd = pressed ? std::make_unique<Crowd>() : nullptr;
        if (crowd) crowd->press();
        bring_in_clean(a, out);
        Gate gate;
        gate.hold_up(stream);
        EXPECT(LATER(cuFutureFill)(a.at(), 9, kWords, stream) == CUDA_SUCCESS);
        if (!crowd) crowd = std::make_unique<Crowd>();
        if (maps_host()) {
            crowd->press();
            EXPECT(a.resident());
        }
        gate.open();
        OK(cuStreamSynchronize, stream);
        crowd->evict(a);
        EXPECT(all_words(a, 9));
    }
}

OVERLAY_TEST("later calls: a capture that such a call begins goes on, through others too") {
    const Gpu gpu;
    const CUstream captured = new_stream(), other = new_stream();
    const Buffer b(kBuffer, 2);
    for (const bool pressed : {false, true}) {
        const auto crowd = pressed ? std::make_unique<Crowd>() : nullptr;
        if (crowd) {
            crowd->press();
            crowd->bring_in(b);
        }
        EXPECT(LATER(cuFutureCapture)(captured) == CUDA_SUCCESS);
        EXPECT(LATER(cuFutureFill)(b.at(), 9, kWords, other) == CUDA_SUCCESS);
        CUgraph graph = nullptr;
        OK(cuStreamEndCapture, captured, &graph);
        OK(cuStreamSynchronize, other);
        EXPECT(all_words(b, 9));
    }
}

OVERLAY_TEST("later calls: one that stays in the driver holds up moves and no launches") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.press();
    crowd.bring_in(a);
    std::atomic<bool> entered = false, open = false;
    std::thread waiting([&] {
        OK(cuCtxSetCurrent, gpu.context);
        EXPECT(LATER(cuFutureWait)(&entered, &open) == CUDA_SUCCESS);
    });
    while (!entered) std::this_thread::yield();
    if (maps_host()) {
        crowd.press();
        EXPECT(a.resident());
    }
    open = true;
    waiting.join();
    crowd.evict(a);
    EXPECT(a.holds(1));
}

OVERLAY_TEST("later calls: a graph that such a call has changed reaches what it does now") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    const CUgraph graph = new_graph();
    const Add unchanged(a.at(), a.at(), 0);
    const CUgraphNode node = add_kernel(graph, unchanged.params);
    const CUgraphExec exec = instantiate(graph);
    launch_and_wait(exec, stream);
    const Add changed(b.at(), b.at(), 5);
    EXPECT(LATER(cuFutureChangeKernel)(exec, node, &changed.params) == CUDA_SUCCESS);
    const Words before = words_of(b.read());
    crowd.evict(b);
    bring_in_clean(b, a);
    launch_and_wait(exec, stream);
    crowd.evict(b);
    EXPECT(added(b, before, 5));
}

OVERLAY_TEST(
    "later calls: every kind of argument arrives, before the first move and after it, and the answer") {
    const Gpu gpu;
    const overlay::Told expected{{1, std::int64_t{1} << 40, 3, 4, 5, 6},
                                 {0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5},
                                 {{11, 12, 13, 14, 15, 16, 17, 18}}};
    for (const bool pressed : {false, true}) {
        const std::unique_ptr<Crowd> crowd = pressed ? std::make_unique<Crowd>() : nullptr;
        if (crowd) crowd->press();
        overlay::Told told{};
        EXPECT(LATER(cuFutureMany)(1, 0.5, std::int64_t{1} << 40, 1.5F, 3, 4, 5, expected.large, 6, 2.5, 3.5,
                                   4.5, 5.5, 6.5, 7.5, 8.5, &told) == CUDA_ERROR_NOT_READY);
        EXPECT(told == expected);
    }
}

OVERLAY_TEST("later calls: room is made for one that the driver has no memory for") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.press();
    std::array<CUdeviceptr, 4> unmanaged{};
    for (CUdeviceptr& each : unmanaged) EXPECT(LATER(cuFutureAllocate)(&each, kBuffer) == CUDA_SUCCESS);
    crowd.press();
    EXPECT(a.holds(1));
    for (const CUdeviceptr each : unmanaged) OK(cuMemFree_v2, each);
}

namespace {

struct Calls {
    CUdeviceptr at;
    decltype(&cuFutureFill) fill;
    std::atomic<bool> pressed{false};
    int refused = 0;
};

void call_until_pressed(void* data) {
    Calls& calls = *static_cast<Calls*>(data);
    while (!calls.pressed.load()) {
        if (calls.fill(calls.at, 7, kWords, nullptr) == CUDA_ERROR_NOT_PERMITTED) ++calls.refused;
        std::this_thread::yield();
    }
}

}  // namespace

BODY(later_calls_in_a_host_function) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.press();
    Calls calls{a.at(), LATER(cuFutureFill)};
    // Where unmapping waits for all work, moves wait for the function, which must not wait for them.
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        calls.pressed = true;
    });
    OK(cuLaunchHostFunc, stream, call_until_pressed, &calls);
    crowd.press();
    OK(cuStreamSynchronize, stream);
    later.join();
    EXPECT(calls.refused > 0);
    EXPECT(a.holds(1));
}

TEST_CASE("later calls: one in a host function is the driver's to refuse, and waits for no move") {
    run_both("later_calls_in_a_host_function", Driver::Overlay, {{"SIMCUDA_UNMAP_DRAINS", "1"}});
}

BODY(later_calls_are_named) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const auto fill = LATER(cuFutureFill);
    LATER(cuFutureFill_ptsz);  // never called
    for (int i = 0; i < 3; ++i) EXPECT(fill(a.at(), 7, kWords, nullptr) == CUDA_SUCCESS);
    EXPECT(LATER(cuFutureFill) == fill);
    EXPECT(all_words(a, 7));
}

TEST_CASE("later calls: one that no row has is named at its first call, in one line") {
    const std::string line =
        "lms: cuFutureFill is not known to this shim: its work may reach any memory, so nothing moves until "
        "it is over\n";
    CHECK(run_both("later_calls_are_named", Driver::Overlay, {}) == line + line);
}
