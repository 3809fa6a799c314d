// What programs ask of the shim itself (<lms/lms.h>): who may call, when, with what, and what is answered.
#include "tests/entry/api.h"
#include "tests/entry/own.h"

#include <cstring>
#include <memory>
#include <thread>

using namespace rig;

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
    Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const auto ask = [](void* given) {
        const Buffer& buffer = *static_cast<const Buffer*>(given);
        for (const auto& move : kMoves) ANSWERS(LMS_NOT_NOW, move(at(buffer), 0));
        ANSWERS(LMS_NOT_NOW, lms_limit(1));
        ANSWERS(LMS_NOT_NOW, lms_pause());
        ANSWERS(LMS_NOT_NOW, lms_resume());
        EXPECT(levels_of_gpu().budget_bytes > kMiB);
        EXPECT(where_is(buffer).resident_bytes == 0);
    };
    OK(cuLaunchHostFunc, stream, ask, &a);
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

FAMILY_TEST("api: what is pinned by a mapping of the program's own goes with that mapping") {
    const Gpu gpu;
    const Buffer other(kBuffer, 2);
    const CUmemGenericAllocationHandle handle = create(kBuffer);
    const CUdeviceptr first = reserve(kBuffer);
    const CUdeviceptr second = reserve(kBuffer);
    map(first, kBuffer, handle);
    map(second, kBuffer, handle);
    write(second, kBuffer, 1);
    const auto pointer = reinterpret_cast<const void*>(first);
    ANSWERS(LMS_OK, lms_pin(pointer, kBuffer));
    ANSWERS(LMS_OK, lms_pin(at(other), 0));
    OK(cuMemUnmap, first, kBuffer);
    ANSWERS(LMS_NOT_MANAGED, lms_unpin(pointer, kBuffer));
    std::size_t count = 8;
    lms_buffer buffers[8];
    ANSWERS(LMS_OK, lms_snapshot(buffers, &count));
    for (std::size_t i = 0; i < count; ++i)
        EXPECT(buffers[i].pinned_bytes == (buffers[i].address == other.at() ? kBuffer : 0));
    EXPECT(reads(second, kBuffer, 1));
    OK(cuMemUnmap, second, kBuffer);
    OK(cuMemRelease, handle);
    for (const CUdeviceptr each : {first, second}) OK(cuMemAddressFree, each, kBuffer);
    ANSWERS(LMS_OK, lms_unpin(at(other), 0));
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
