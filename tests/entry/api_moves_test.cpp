// What programs have the shim move, keep or leave to others (<lms/lms.h>).
#include <cstring>
#include <memory>

#include "tests/entry/api.h"
#include "tests/entry/gate.h"
#include "tests/entry/own.h"

using namespace rig;

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

FAMILY_TEST("api: memory of a handle is shared though it is pinned, and its pin ends") {
    const Gpu gpu;
    const CUmemGenericAllocationHandle handle = create_shareable(kBuffer);
    const CUdeviceptr address = reserve(kBuffer);
    map(address, kBuffer, handle);
    write(address, kBuffer, 1);
    ANSWERS(LMS_OK, lms_pin(reinterpret_cast<const void*>(address), 0));
    EXPECT(share(handle) == CUDA_SUCCESS);
    EXPECT(reads(address, kBuffer, 1));
    ANSWERS(LMS_NOT_MANAGED, lms_unpin(reinterpret_cast<const void*>(address), 0));
    OK(cuMemUnmap, address, kBuffer);
    OK(cuMemRelease, handle);
    OK(cuMemAddressFree, address, kBuffer);
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

// A graph's copies cannot run beside pins that leave them no room, but they may be all that has been made.
FAMILY_TEST("api: pins are given up for a graph's copies that find no room beside them, and for no others") {
    const Gpu gpu;
    const Buffer pinned(3 * kMiB / 2, 1);
    const Buffer small(kBuffer, 2);
    const Buffer large(5 * kMiB / 2, 3);
    Crowd crowd;
    const auto set = [&](const Buffer& buffer) {
        CUgraph graph = nullptr;
        OK(cuGraphCreate, &graph, 0);
        CUDA_MEMSET_NODE_PARAMS params{};
        params.dst = buffer.at();
        params.elementSize = 1;
        params.width = buffer.bytes();
        params.height = 1;
        params.value = 7;
        CUgraphNode node = nullptr;
        OK(cuGraphAddMemsetNode, &node, graph, nullptr, 0, &params, gpu.context);
        CUgraphExec exec = nullptr;
        OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
        OK(cuGraphLaunch, exec, nullptr);
        OK(cuStreamSynchronize, nullptr);
    };
    crowd.evict(small);
    // Pins first, or the graph.
    ANSWERS(LMS_OK, lms_pin(at(pinned), 0));
    set(small);
    EXPECT(where_is(pinned).pinned_bytes == pinned.bytes());
    ANSWERS(LMS_OK, lms_unpin(at(pinned), 0));
    crowd.evict(pinned);
    ANSWERS(LMS_OK, lms_pin(at(pinned), 0));
    EXPECT(pinned.resident() && small.resident());
    EXPECT(small.read() == std::vector<std::uint8_t>(kBuffer, 7));
    // What does not fit beside it.
    set(large);
    EXPECT(where_is(pinned).pinned_bytes == 0);
    EXPECT(large.read() == std::vector<std::uint8_t>(large.bytes(), 7));
    EXPECT(pinned.holds(1));
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
    const std::size_t free_before = free_on_gpu();
    ANSWERS(LMS_OK, lms_limit(2 * kBuffer));
    const std::size_t free_after = free_on_gpu();
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

FAMILY_TEST("api: pause gives all to others, and resume brings it back") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const std::unique_ptr<Buffer> freed = std::make_unique<Buffer>(kBuffer, 3);
    const std::size_t free_before = free_on_gpu();
    ANSWERS(LMS_OK, lms_pause());
    EXPECT(free_on_gpu() >= free_before + 3 * kBuffer);
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

FAMILY_TEST("api: memory that the program maps itself is named by where it is mapped") {
    const Gpu gpu;
    const Own own(kBuffer, 6);
    const void* const there = reinterpret_cast<const void*>(own.at());
    ANSWERS(LMS_OK, lms_evict(there, 0));
    EXPECT(off_device(own.at(), kBuffer));
    ANSWERS(LMS_OK, lms_pin(there, 0));
    EXPECT(on_device(own.at(), kBuffer));
    std::size_t count = 1;
    lms_buffer one{};
    ANSWERS(LMS_OK, lms_snapshot(&one, &count));
    EXPECT(count == 1 && one.address == own.at() && one.pinned_bytes == kBuffer);
    Crowd crowd;
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(on_device(own.at(), kBuffer));
    OK(cuMemUnmap, own.at(), kBuffer);
    ANSWERS(LMS_NOT_MANAGED, lms_unpin(there, 0));
    map(own.at(), kBuffer, own.handle());
    EXPECT(own.holds(6));
}
