// What programs ask of the shim itself (<lms/lms.h>).
#include <lms/lms.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/rig.h"
#include "tests/support/process.h"
#include "tools/lms/trace_file.h"

using namespace rig;

#define ANSWERS(code, ...)                                                                                  \
    do {                                                                                                    \
        const int rig_answer = __VA_ARGS__;                                                                 \
        if (rig_answer != (code))                                                                           \
            ::rig::failed(__FILE__, __LINE__,                                                               \
                          #__VA_ARGS__ " -> " + std::to_string(rig_answer) + ", expected " RIG_TEXT(code)); \
    } while (0)

namespace {

const void* at(const Buffer& buffer, std::size_t offset = 0) {
    return reinterpret_cast<const void*>(buffer.at(offset));
}

const void* const kNowhere = reinterpret_cast<const void*>(0x1000);

lms_levels levels_of_gpu() {
    lms_levels levels{};
    levels.size = sizeof levels;
    ANSWERS(LMS_OK, lms_get_levels(0, &levels));
    return levels;
}

lms_buffer where_is(const Buffer& buffer) {
    std::size_t count = 0;
    ANSWERS(LMS_OK, lms_snapshot(nullptr, &count));
    std::vector<lms_buffer> all(count);
    ANSWERS(LMS_OK, lms_snapshot(all.data(), &count));
    for (const lms_buffer& each : all) {
        if (each.address == buffer.at()) return each;
    }
    failed(__FILE__, __LINE__, "the buffer is not in the snapshot");
    return {};
}

// What moves memory, by each name.
constexpr int (*kMoves[])(const void*, std::size_t) = {lms_pin, lms_prefetch, lms_evict};

}  // namespace

FAMILY_TEST("api: what is pinned stays through whatever others need, until that ends or it is freed") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    {
        const Buffer b(kBuffer, 2);
        Crowd crowd;
        crowd.evict(a);
        ANSWERS(LMS_OK, lms_pin(at(a), 0));
        ANSWERS(LMS_OK, lms_pin(at(a, 5), 0));  // the whole buffer too
        ANSWERS(LMS_OK, lms_pin(at(b), kBuffer / 2));
        EXPECT(a.resident());
        EXPECT(where_is(a).resident_bytes == kBuffer);
        EXPECT(where_is(a).pinned_bytes == kBuffer);
        for (int i = 0; i < 3; ++i) crowd.press();
        EXPECT(a.resident() && on_device(b.at(), kBuffer / 2));
        ANSWERS(LMS_BUSY, lms_evict(at(a), 0));
        ANSWERS(LMS_OK, lms_unpin(at(a), 0));
        crowd.press();
        EXPECT(a.resident());
        ANSWERS(LMS_OK, lms_unpin(at(a), 0));
        ANSWERS(LMS_INVALID, lms_unpin(at(a), 0));
        ANSWERS(LMS_INVALID, lms_unpin(at(b), 0));  // of another size
        crowd.evict(a);
        EXPECT(a.holds(1) && b.holds(2));
    }
    // Its pin went with b, and whoever has its memory now may be evicted.
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    crowd.evict(c);
    EXPECT(where_is(c).pinned_bytes == 0);
    EXPECT(a.holds(1) && c.holds(3));
}

FAMILY_TEST("api: a pin ends with a free in stream order, though the memory is used again") {
    const Gpu gpu;
    Crowd crowd;
    CUdeviceptr first = 0;
    OK(cuMemAllocAsync, &first, kBuffer, nullptr);
    ANSWERS(LMS_OK, lms_pin(reinterpret_cast<const void*>(first), 0));
    OK(cuMemFreeAsync, first, nullptr);
    ANSWERS(LMS_NOT_MANAGED, lms_pin(reinterpret_cast<const void*>(first), 0));
    CUdeviceptr second = 0;
    OK(cuMemAllocAsync, &second, kBuffer, nullptr);
    EXPECT(second == first);
    OK(cuMemsetD8_v2, second, 5, kBuffer);
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(off_device(second, kBuffer));
    ANSWERS(LMS_INVALID, lms_unpin(reinterpret_cast<const void*>(second), 0));
    std::vector<std::uint8_t> data(kBuffer);
    OK(cuMemcpyDtoH_v2, data.data(), second, kBuffer);
    EXPECT(data == std::vector<std::uint8_t>(kBuffer, 5));
    OK(cuMemFreeAsync, second, nullptr);
}

FAMILY_TEST("api: more is not pinned than leaves room for the rest, and nothing changes then") {
    const Gpu gpu;
    const Buffer small(kBuffer, 1);
    const Buffer large(8 * kMiB, 2);
    Crowd crowd;
    ANSWERS(LMS_NO_ROOM, lms_pin(at(large), 0));
    ANSWERS(LMS_NO_ROOM, lms_prefetch(at(large), 0));
    EXPECT(where_is(large).pinned_bytes == 0);
    // In parts no more than at once.
    std::size_t pinned = 0;
    while (pinned < large.bytes() && lms_pin(at(large, pinned), kBuffer) == LMS_OK) pinned += kBuffer;
    EXPECT(pinned > 0 && pinned < 4 * kMiB);
    ANSWERS(LMS_NO_ROOM, lms_pin(at(large, pinned), kBuffer));
    EXPECT(where_is(large).pinned_bytes == pinned);
    EXPECT(small.holds(1) && large.holds(2));
}

FAMILY_TEST("api: work that does not fit beside pins runs all the same") {
    const Gpu gpu;
    const Buffer a(3 * kMiB / 2, 1);
    const Buffer b(3 * kMiB, 2);
    Crowd crowd;
    ANSWERS(LMS_OK, lms_pin(at(a), 0));
    const std::size_t n = b.bytes() / 4;
    const CUdeviceptr out = b.at();
    const auto words = static_cast<std::uint32_t>(n);
    const std::uint32_t one = 1;
    EXPECT(launch("add", n, nullptr, out, out, one, words) == CUDA_SUCCESS);
    OK(cuStreamSynchronize, nullptr);
    std::vector<std::uint8_t> expected = pattern(b.bytes(), 2);
    for (std::size_t i = 0; i < n; ++i) {
        std::uint32_t word = 0;
        std::memcpy(&word, &expected[4 * i], 4);
        ++word;
        std::memcpy(&expected[4 * i], &word, 4);
    }
    EXPECT(b.read() == expected);
    EXPECT(a.holds(1));
}

FAMILY_TEST("api: evict and prefetch move a part of a buffer or all of it, and nothing else") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const std::size_t half = kBuffer / 2;
    // Everything fits.
    EXPECT(a.resident());
    ANSWERS(LMS_OK, lms_evict(at(a), half));
    EXPECT(off_device(a.at(), half) && on_device(a.at(half), half) && b.resident());
    ANSWERS(LMS_OK, lms_evict(at(a, 9), 0));
    EXPECT(a.evicted() && b.resident());
    ANSWERS(LMS_OK, lms_evict(at(a), 0));
    ANSWERS(LMS_OK, lms_prefetch(at(a, half), half));
    OK(cuStreamSynchronize, nullptr);
    EXPECT(off_device(a.at(), half) && on_device(a.at(half), half));
    EXPECT(a.holds(1) && b.holds(2));
    ANSWERS(LMS_OK, lms_prefetch(at(a), 0));
    EXPECT(a.resident());
    // Others make room.
    Crowd crowd;
    crowd.evict(a);
    ANSWERS(LMS_OK, lms_prefetch(at(a), 0));
    EXPECT(a.resident());
    EXPECT(a.holds(1) && b.holds(2));
}

FAMILY_TEST("api: memory that unfinished work uses is not evicted under it") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.bring_in(a);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemsetD8Async, a.at(), 7, kBuffer, stream);
    ANSWERS(LMS_BUSY, lms_evict(at(a), 0));
    EXPECT(a.resident());
    ANSWERS(LMS_BUSY, lms_pause());
    EXPECT(a.resident());
    ANSWERS(LMS_OK, lms_pin(at(a), 0));
    ANSWERS(LMS_OK, lms_unpin(at(a), 0));
    gate.open();
    OK(cuStreamSynchronize, stream);
    ANSWERS(LMS_OK, lms_evict(at(a), 0));
    EXPECT(a.evicted());
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 7));
    OK(cuStreamDestroy_v2, stream);
}

FAMILY_TEST("api: a limit is kept to at once, gives memory back to others, and is lifted again") {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 6; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    const auto all_hold = [&] {
        for (std::uint32_t i = 0; i < 6; ++i) EXPECT(buffers[i]->holds(i));
    };
    const lms_levels before = levels_of_gpu();
    EXPECT(before.resident_bytes == 6 * kBuffer);
    std::size_t free_before = 0, free_after = 0, total = 0;
    const auto info = [&](std::size_t& free) { SIM(cuMemGetInfo_v2)(&free, &total); };
    info(free_before);
    ANSWERS(LMS_OK, lms_limit(2 * kBuffer));
    info(free_after);
    EXPECT(levels_of_gpu().budget_bytes == 2 * kBuffer);
    EXPECT(levels_of_gpu().resident_bytes <= 2 * kBuffer);
    EXPECT(free_after >= free_before + 4 * kBuffer);
    for (const auto& buffer : buffers) {
        bring_in(buffer->at(), kBuffer, nullptr);
        OK(cuStreamSynchronize, nullptr);
        EXPECT(levels_of_gpu().resident_bytes <= 2 * kBuffer);
    }
    all_hold();
    ANSWERS(LMS_OK, lms_limit(0));
    EXPECT(levels_of_gpu().budget_bytes == before.budget_bytes);
    for (const auto& buffer : buffers) bring_in(buffer->at(), kBuffer, nullptr);
    OK(cuStreamSynchronize, nullptr);
    for (const auto& buffer : buffers) EXPECT(buffer->resident());
    all_hold();
}

FAMILY_TEST("api: what was in use when the limit came goes out with later work") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    for (const Buffer* each : {&a, &b, &c}) crowd.bring_in(*each);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Gate gate;
    gate.hold_up(stream);
    for (const Buffer* each : {&a, &b, &c}) bring_in(each->at(), kBuffer, stream);
    ANSWERS(LMS_OK, lms_limit(kBuffer));
    EXPECT(a.resident() && b.resident() && c.resident());
    gate.open();
    OK(cuStreamSynchronize, stream);
    // Work that names what is there already.
    for (int i = 0; i < 200 && levels_of_gpu().resident_bytes > kBuffer; ++i) {
        bring_in(c.at(), kBuffer, nullptr);
        OK(cuStreamSynchronize, nullptr);
    }
    EXPECT(levels_of_gpu().resident_bytes <= kBuffer);
    EXPECT(a.holds(1) && b.holds(2) && c.holds(3));
    OK(cuStreamDestroy_v2, stream);
}

BODY(api_limit_below_host) {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 6; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    ANSWERS(LMS_OK, lms_limit(1));
    // The host takes so much, and no more.
    const lms_levels levels = levels_of_gpu();
    EXPECT(levels.budget_bytes > kBuffer && levels.budget_bytes < 6 * kBuffer);
    for (int round = 0; round < 3; ++round) {
        for (const auto& buffer : buffers) bring_in(buffer->at(), kBuffer, nullptr);
    }
    OK(cuStreamSynchronize, nullptr);
    for (std::uint32_t i = 0; i < 6; ++i) EXPECT(buffers[i]->holds(i));
}

TEST_CASE("api: a limit below what the host has no room for leaves that on the GPU, and all work runs") {
    run_both("api_limit_below_host", Driver::Simulated, {{"LMS_HOST_LIMIT", "2M"}});
}

FAMILY_TEST("api: before there is memory a limit is noted, and of none there is nothing to say") {
    lms_levels levels{};
    levels.size = sizeof levels;
    std::size_t count = 0;
    ANSWERS(LMS_NOT_MANAGED, lms_get_levels(0, &levels));
    ANSWERS(LMS_OK, lms_snapshot(nullptr, &count));
    EXPECT(count == 0);
    ANSWERS(LMS_OK, lms_pause());
    ANSWERS(LMS_OK, lms_resume());
    for (const auto& move : kMoves) ANSWERS(LMS_NOT_MANAGED, move(kNowhere, 1));
    ANSWERS(LMS_OK, lms_limit(kMiB));
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    EXPECT(levels_of_gpu().budget_bytes == kMiB);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    EXPECT(levels_of_gpu().resident_bytes <= kMiB);
    EXPECT(a.holds(1) && b.holds(2) && c.holds(3));
}

FAMILY_TEST("api: pause gives all to others, and resume brings it back") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const std::unique_ptr<Buffer> freed = std::make_unique<Buffer>(kBuffer, 3);
    std::size_t free_before = 0, free_paused = 0, total = 0;
    SIM(cuMemGetInfo_v2)(&free_before, &total);
    ANSWERS(LMS_OK, lms_pause());
    SIM(cuMemGetInfo_v2)(&free_paused, &total);
    EXPECT(free_paused >= free_before + 3 * kBuffer);
    EXPECT(a.evicted() && b.evicted() && freed->evicted());
    OK(cuCtxSynchronize);
    EXPECT(levels_of_gpu().resident_bytes == 0);
    ANSWERS(LMS_OK, lms_pause());
    EXPECT(b.holds(2));
    ANSWERS(LMS_OK, lms_resume());
    EXPECT(a.resident() && b.resident() && freed->resident());
    EXPECT(a.holds(1) && b.holds(2) && freed->holds(3));
    // Work needs no resume().
    ANSWERS(LMS_OK, lms_pause());
    bring_in(a.at(), kBuffer, nullptr);
    OK(cuStreamSynchronize, nullptr);
    EXPECT(a.resident() && a.holds(1));
    ANSWERS(LMS_OK, lms_resume());
}

BODY(api_pause_of_a_known_program) {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 12; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    for (int round = 0; round < 30; ++round) {
        for (const auto& buffer : buffers) bring_in(buffer->at(), kBuffer, nullptr);
        OK(cuCtxSynchronize);
    }
    lms_counters counters{};
    counters.size = sizeof counters;
    ANSWERS(LMS_OK, lms_get_counters(&counters));
    EXPECT(counters.fills_ahead > 0);
    ANSWERS(LMS_OK, lms_pause());
    for (int i = 0; i < 5; ++i) OK(cuCtxSynchronize);
    EXPECT(levels_of_gpu().resident_bytes == 0);
    for (std::uint32_t i = 0; i < 12; ++i) EXPECT(buffers[i]->holds(i));
}

TEST_CASE("api: while a program is paused nothing that is foretold comes in") {
    run_both("api_pause_of_a_known_program", Driver::Simulated, {{"LMS_POLICY", "next-use"}});
}

FAMILY_TEST("api: wrong arguments are answered, and change nothing") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    CUdeviceptr small = 0;
    OK(cuMemAlloc_v2, &small, 4096);
    std::vector<std::uint8_t> host(4096);
    for (const auto& move : kMoves) {
        ANSWERS(LMS_INVALID, move(nullptr, 1));
        ANSWERS(LMS_INVALID, move(at(a), kBuffer + 1));
        ANSWERS(LMS_INVALID, move(at(a, kBuffer - 1), 2));
        ANSWERS(LMS_INVALID, move(at(a), SIZE_MAX));
        ANSWERS(LMS_INVALID, move(at(a), SIZE_MAX - a.at()));
        ANSWERS(LMS_NOT_MANAGED, move(reinterpret_cast<const void*>(small), 16));
        ANSWERS(LMS_NOT_MANAGED, move(host.data(), 16));
        ANSWERS(LMS_NOT_MANAGED, move(reinterpret_cast<const void*>(UINTPTR_MAX), 0));
    }
    ANSWERS(LMS_INVALID, lms_unpin(nullptr, 1));
    ANSWERS(LMS_NOT_MANAGED, lms_unpin(host.data(), 1));
    ANSWERS(LMS_INVALID, lms_unpin(at(a), 0));
    ANSWERS(LMS_INVALID, lms_get_counters(nullptr));
    lms_counters counters{};
    ANSWERS(LMS_INVALID, lms_get_counters(&counters));
    ANSWERS(LMS_INVALID, lms_get_levels(-1, nullptr));
    ANSWERS(LMS_INVALID, lms_get_levels(0, nullptr));
    ANSWERS(LMS_NOT_MANAGED, lms_get_levels(1, nullptr));
    ANSWERS(LMS_NOT_MANAGED, lms_get_levels(1 << 30, nullptr));
    ANSWERS(LMS_INVALID, lms_snapshot(nullptr, nullptr));
    std::size_t count = 1;
    ANSWERS(LMS_INVALID, lms_snapshot(nullptr, &count));
    ANSWERS(LMS_INVALID, lms_region_begin(nullptr));
    ANSWERS(LMS_INVALID, lms_region_end());
    EXPECT(a.resident() && a.holds(1));
    OK(cuMemFree_v2, small);
}

FAMILY_TEST("api: structs of older and newer programs are filled as far as they go") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    struct {
        lms_counters known;
        std::uint64_t later;
    } newer{};
    newer.later = 77;
    newer.known.size = sizeof newer;
    ANSWERS(LMS_OK, lms_get_counters(&newer.known));
    EXPECT(newer.known.size == sizeof newer && newer.known.allocations == 1 && newer.later == 77);
    lms_counters older{};
    older.size = offsetof(lms_counters, frees);
    older.frees = 88;
    ANSWERS(LMS_OK, lms_get_counters(&older));
    EXPECT(older.allocations == 1 && older.frees == 88);
    const auto* const api = static_cast<const lms_api* (*)(std::uint32_t)>(
        reinterpret_cast<const lms_api* (*)(std::uint32_t)>(function("lms_api_get")))(LMS_API_VERSION + 1);
    EXPECT(api == nullptr);
}

FAMILY_TEST("api: in a host function what would ask the driver is refused, and the rest answered") {
    const Gpu gpu;
    static const Buffer* buffer = nullptr;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    buffer = &a;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const auto ask = [](void*) {
        for (const auto& move : kMoves) ANSWERS(LMS_NOT_NOW, move(at(*buffer), 0));
        ANSWERS(LMS_NOT_NOW, lms_limit(1));
        ANSWERS(LMS_NOT_NOW, lms_pause());
        ANSWERS(LMS_NOT_NOW, lms_resume());
        EXPECT(levels_of_gpu().budget_bytes > kMiB);
        EXPECT(where_is(*buffer).resident_bytes == 0);
    };
    OK(cuLaunchHostFunc, stream, ask, nullptr);
    OK(cuStreamSynchronize, stream);
    OK(cuStreamDestroy_v2, stream);
    EXPECT(a.holds(1));
}

FAMILY_TEST("api: while a stream is captured memory moves, and the capture is whole") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemsetD8Async, b.at(), 9, kBuffer, stream);
    ANSWERS(LMS_OK, lms_pin(at(a), 0));
    EXPECT(where_is(a).pinned_bytes == kBuffer);
    ANSWERS(LMS_OK, lms_unpin(at(a), 0));
    // Whether work from before is over cannot be asked while that is forbidden.
    const int evicted = lms_evict(at(a), 0);
    EXPECT(evicted == LMS_OK ? where_is(a).resident_bytes == 0 : evicted == LMS_BUSY);
    ANSWERS(LMS_OK, lms_prefetch(at(a), 0));
    ANSWERS(LMS_OK, lms_limit(3 * kMiB));
    ANSWERS(LMS_OK, lms_limit(0));
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(a.holds(1));
    EXPECT(b.read() == std::vector<std::uint8_t>(kBuffer, 9));
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    OK(cuStreamDestroy_v2, stream);
}

FAMILY_TEST("api: what a copy node of a graph keeps is not let go by a pin that ends") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    CUDA_MEMSET_NODE_PARAMS set{};
    set.dst = a.at();
    set.value = 4;
    set.elementSize = 1;
    set.width = kBuffer;
    set.height = 1;
    CUgraphNode node = nullptr;
    OK(cuGraphAddMemsetNode, &node, graph, nullptr, 0, &set, gpu.context);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    ANSWERS(LMS_OK, lms_pin(at(a), 0));
    ANSWERS(LMS_OK, lms_unpin(at(a), 0));
    ANSWERS(LMS_BUSY, lms_evict(at(a), 0));
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(a.resident());
    OK(cuGraphLaunch, exec, nullptr);
    OK(cuStreamSynchronize, nullptr);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 4));
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
}

FAMILY_TEST("api: after its context a buffer is nobody's, and a new one begins anew") {
    {
        const Gpu gpu;
        Buffer a(kBuffer, 1);
        ANSWERS(LMS_OK, lms_pin(at(a), 0));
        const void* const was = at(a);
        OK(cuDevicePrimaryCtxReset_v2, gpu.device);
        for (const auto& move : kMoves) ANSWERS(LMS_NOT_MANAGED, move(was, 0));
        ANSWERS(LMS_NOT_MANAGED, lms_unpin(was, 0));
        ANSWERS(LMS_OK, lms_pause());
        ANSWERS(LMS_OK, lms_resume());
        ANSWERS(LMS_OK, lms_limit(2 * kMiB));
        std::size_t count = 0;
        ANSWERS(LMS_OK, lms_snapshot(nullptr, &count));
        EXPECT(count == 0);
    }
    const Gpu again;
    const Buffer b(kBuffer, 2);
    EXPECT(levels_of_gpu().budget_bytes == 2 * kMiB);
    Crowd crowd;
    crowd.evict(b);
    EXPECT(b.holds(2));
}

FAMILY_TEST("api: threads that pin, move, limit and look at once lose nothing") {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 12; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            OK(cuCtxSetCurrent, gpu.context);
            for (std::size_t i = 0; i < 60; ++i) {
                const Buffer& buffer = *buffers[(5 * i + 3 * thread) % buffers.size()];
                if (i % 4 == 0 && lms_pin(at(buffer), 0) == LMS_OK) ANSWERS(LMS_OK, lms_unpin(at(buffer), 0));
                if (i % 4 == 1) lms_prefetch(at(buffer), kBuffer / 2);
                if (i % 4 == 2) lms_evict(at(buffer), 0);
                if (i % 20 == 3) lms_limit(thread % 2 == 0 ? 2 * kMiB : 0);
                if (i % 30 == 7) lms_pause();
                if (i % 30 == 11) lms_resume();
                bring_in(buffer.at(), kBuffer, CU_STREAM_PER_THREAD);
                std::size_t count = 0;
                ANSWERS(LMS_OK, lms_snapshot(nullptr, &count));
                EXPECT(count == buffers.size());
            }
            OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t i = 0; i < 12; ++i) EXPECT(buffers[i]->holds(i));
}

FAMILY_TEST("api: memory that the program maps itself is named by where it is mapped") {
    const Gpu gpu;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    OK(cuMemCreate, &handle, kBuffer, &properties, 0);
    OK(cuMemAddressReserve, &address, kBuffer, 0, 0, 0);
    OK(cuMemMap, address, kBuffer, 0, handle, 0);
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess, address, kBuffer, &access, 1);
    OK(cuMemcpyHtoD_v2, address, pattern(kBuffer, 6).data(), kBuffer);
    const void* const there = reinterpret_cast<const void*>(address);
    ANSWERS(LMS_OK, lms_evict(there, 0));
    EXPECT(off_device(address, kBuffer));
    ANSWERS(LMS_OK, lms_pin(there, 0));
    EXPECT(on_device(address, kBuffer));
    std::size_t count = 1;
    lms_buffer one{};
    ANSWERS(LMS_OK, lms_snapshot(&one, &count));
    EXPECT(count == 1 && one.address == address && one.pinned_bytes == kBuffer);
    Crowd crowd;
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(on_device(address, kBuffer));
    OK(cuMemUnmap, address, kBuffer);
    ANSWERS(LMS_NOT_MANAGED, lms_unpin(there, 0));
    OK(cuMemMap, address, kBuffer, 0, handle, 0);
    OK(cuMemSetAccess, address, kBuffer, &access, 1);
    std::vector<std::uint8_t> data(kBuffer);
    OK(cuMemcpyDtoH_v2, data.data(), address, kBuffer);
    EXPECT(data == pattern(kBuffer, 6));
    OK(cuMemUnmap, address, kBuffer);
    OK(cuMemRelease, handle);
    OK(cuMemAddressFree, address, kBuffer);
}

BODY(api_regions) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    ANSWERS(LMS_OK, lms_region_begin("epoch 1"));
    ANSWERS(LMS_OK, lms_region_begin(std::string(100, 'x').c_str()));
    for (int i = 0; i < 2; ++i) crowd.press();
    std::thread([] {
        ANSWERS(LMS_INVALID, lms_region_end());
        ANSWERS(LMS_OK, lms_region_begin("loader"));
        ANSWERS(LMS_OK, lms_region_end());
    }).join();
    ANSWERS(LMS_OK, lms_region_end());
    // Deeper than any program's.
    for (int i = 0; i < 70; ++i) ANSWERS(LMS_OK, lms_region_begin("deep"));
    for (int i = 0; i < 70; ++i) ANSWERS(LMS_OK, lms_region_end());
    ANSWERS(LMS_OK, lms_region_end());
    ANSWERS(LMS_INVALID, lms_region_end());
}

TEST_CASE("api: regions are in the trace by their names, nested and by thread") {
    const std::string path = support::scratch_file("regions.lmstrace");
    CHECK(run("api_regions", Driver::Simulated, {{"LMS_TRACE", path}}).failures == "");
    lms::tool::Trace trace;
    std::string problem;
    lms::tool::read_trace_file(path, trace, problem);
    REQUIRE(problem == "");
    std::map<std::string, std::vector<lms::trace::Region>> regions;
    for (const lms::trace::Event& event : trace.events) {
        if (const auto* const region = std::get_if<lms::trace::Region>(&event))
            regions[std::string(region->name)].push_back(*region);
    }
    REQUIRE(regions.size() == 4);
    REQUIRE(regions["epoch 1"].size() == 1);
    REQUIRE(regions[std::string(63, 'x')].size() == 1);
    CHECK(regions["deep"].size() == 63);
    const lms::trace::Region& outer = regions["epoch 1"][0];
    const lms::trace::Region& inner = regions[std::string(63, 'x')][0];
    CHECK((outer.begin_ns <= inner.begin_ns && inner.end_ns <= outer.end_ns));
    CHECK(outer.thread == inner.thread);
    CHECK(regions["loader"].at(0).thread != outer.thread);

    const support::Result report = support::run({support::build_dir() + "/lms", "report", "--json", path});
    const auto json = nlohmann::json::parse(report.out, nullptr, false);
    REQUIRE(json.is_object());
    std::map<std::string, nlohmann::json> told;
    for (const nlohmann::json& each : json["regions"]) told[each["name"]] = each;
    CHECK(told.size() == 4);
    CHECK(told["deep"]["times"] == 63);
    CHECK(told["epoch 1"]["ns"] == outer.end_ns - outer.begin_ns);
    CHECK(told[std::string(63, 'x')]["bytes_in"].get<std::uint64_t>() > 0);
    CHECK(told[std::string(63, 'x')]["bytes_in"] == told["epoch 1"]["bytes_in"]);
    CHECK(told["loader"]["bytes_in"] == 0);
}

TEST_CASE("api: without a shim every call says so") {
    // This program has none.
    lms_counters counters{};
    std::size_t count = 0;
    int here = 0;
    CHECK(lms_get_counters(&counters) == LMS_ABSENT);
    CHECK(lms_snapshot(nullptr, &count) == LMS_ABSENT);
    for (const auto& move : kMoves) CHECK(move(&here, 1) == LMS_ABSENT);
    CHECK(lms_unpin(&here, 1) == LMS_ABSENT);
    CHECK(lms_limit(1) == LMS_ABSENT);
    CHECK(lms_pause() == LMS_ABSENT);
    CHECK(lms_resume() == LMS_ABSENT);
    CHECK(lms_region_begin("x") == LMS_ABSENT);
    CHECK(lms_region_end() == LMS_ABSENT);
}
