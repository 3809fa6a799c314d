// Values that streams and graphs write to and wait for in managed memory.
#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/entry/graph_rig.h"
#include "tests/support/kernels.h"

using namespace rig;

namespace {

template <typename Word>
Word word_at(CUdeviceptr address) {
    Word word = 0;
    OK(cuMemcpyDtoH_v2, &word, address, sizeof word);
    return word;
}

CUstreamBatchMemOpParams write_64(CUdeviceptr address, cuuint64_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operation.writeValue.address = address;
    operation.writeValue.value64 = value;
    return operation;
}

CUstreamBatchMemOpParams wait_32(CUdeviceptr address, cuuint32_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operation.waitValue.address = address;
    operation.waitValue.value = value;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return operation;
}

}  // namespace

FAMILY_TEST("memory operations: writes reach evicted buffers, in every form", "memory-writes") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Buffer a(kBuffer, 1);
    Crowd crowd;
    auto expected = pattern(kBuffer, 1);
    std::uint32_t value = 0;
    const auto check = [&](std::size_t at, auto word, auto&& write) {
        crowd.evict(a);
        write(stream, a.at(at), word, 0);
        OK(cuStreamSynchronize, stream);
        std::memcpy(expected.data() + at, &word, sizeof word);
        EXPECT(a.read() == expected);
    };
    const auto next = [&](std::size_t at, auto&& write) { check(at, ++value, write); };
    const auto next_64 = [&](std::size_t at, auto&& write) { check(at, cuuint64_t{++value} << 33, write); };
    next(0, [](auto... arguments) { OK(cuStreamWriteValue32, arguments...); });
    next(kBuffer - 4, [](auto... arguments) { OK(cuStreamWriteValue32_ptsz, arguments...); });
    next(128, [](auto... arguments) { OK(cuStreamWriteValue32_v2, arguments...); });
    next(132, [](auto... arguments) { OK(cuStreamWriteValue32_v2_ptsz, arguments...); });
    next_64(136, [](auto... arguments) { OK(cuStreamWriteValue64, arguments...); });
    next_64(kBuffer - 8, [](auto... arguments) { OK(cuStreamWriteValue64_ptsz, arguments...); });
    next_64(144, [](auto... arguments) { OK(cuStreamWriteValue64_v2, arguments...); });
    next_64(152, [](auto... arguments) { OK(cuStreamWriteValue64_v2_ptsz, arguments...); });
}

FAMILY_TEST("memory operations: the address of a buffer with a word that was waited for can be had again") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    CUdeviceptr before = 0;
    OK(cuMemAlloc_v2, &before, kBuffer);
    OK(cuStreamWriteValue32_v2, stream, before, 1, 0);
    OK(cuStreamWaitValue32_v2, stream, before, 1, CU_STREAM_WAIT_VALUE_EQ);
    OK(cuStreamSynchronize, stream);
    OK(cuMemFree_v2, before);
    std::vector<std::unique_ptr<Buffer>> many;
    while (many.size() < 8) many.push_back(std::make_unique<Buffer>(kBuffer));
    EXPECT(std::any_of(many.begin(), many.end(), [&](const auto& buffer) { return buffer->at() == before; }));
}

FAMILY_TEST("memory operations: a wait that is refused keeps nothing on the GPU") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer flag(kBuffer, 1);
    Crowd crowd;
    crowd.evict(flag);
    constexpr unsigned kUnknown = 64;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2, stream, flag.at(), 1, kUnknown);
    CUstreamBatchMemOpParams operations[] = {wait_32(flag.at(4), 1)};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2, stream, 1, operations, kUnknown);
    crowd.evict(flag);
    EXPECT(flag.holds(1));
}

FAMILY_TEST("memory operations: a wait that is captured stays for as long as its graph is there to run") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer flag(kBuffer, 1);
    Crowd crowd;
    crowd.evict(flag);
    CUstreamBatchMemOpParams operations[] = {wait_32(flag.at(4), 1)};
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamWaitValue32_v2, stream, flag.at(), 1, CU_STREAM_WAIT_VALUE_EQ);
    OK(cuStreamBatchMemOp_v2, stream, 1, operations, 0);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    crowd.evict(flag);
    const CUgraphExec exec = instantiate(graph);
    crowd.press();
    EXPECT(on_device(flag.at(), kGranule));
    OK(cuGraphExecDestroy, exec);
    crowd.evict(flag);
    EXPECT(flag.holds(1));
}

// JAX's vmm allocator does so from threads of its own.
FAMILY_TEST("memory operations: writes and waits of a thread without a context, in a stream that is named") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Buffer a(kBuffer, 1);
    Crowd crowd;
    auto expected = pattern(kBuffer, 1);
    const cuuint64_t value = 77;
    std::memcpy(expected.data() + 8, &value, sizeof value);
    crowd.evict(a);
    OK(cuCtxSetCurrent, nullptr);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamWriteValue64_v2, nullptr, a.at(8), value, 0);
    OK(cuStreamWriteValue64_v2, stream, a.at(8), value, 0);
    OK(cuStreamWaitValue64_v2, stream, a.at(8), value, CU_STREAM_WAIT_VALUE_EQ);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuStreamSynchronize, stream);
    EXPECT(a.read() == expected);
}

FAMILY_TEST("memory operations: batches of writes", "memory-batches") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    cuuint64_t value = 1000;
    const auto check = [&](auto&& batch) {
        crowd.evict(a);
        crowd.evict(b);
        CUstreamBatchMemOpParams operations[] = {write_64(a.at(8), ++value), write_64(b.at(16), value + 7)};
        batch(stream, 2, operations, 0);
        OK(cuStreamSynchronize, stream);
        EXPECT(word_at<cuuint64_t>(a.at(8)) == value);
        EXPECT(word_at<cuuint64_t>(b.at(16)) == value + 7);
    };
    check([](auto... arguments) { OK(cuStreamBatchMemOp, arguments...); });
    check([](auto... arguments) { OK(cuStreamBatchMemOp_ptsz, arguments...); });
    check([](auto... arguments) { OK(cuStreamBatchMemOp_v2, arguments...); });
    check([](auto... arguments) { OK(cuStreamBatchMemOp_v2_ptsz, arguments...); });
}

FAMILY_TEST("memory operations: an address that one writes names its buffer for those who read it") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const std::string text =
        support::kPtxHead + ".visible .const .align 8 .u64 target;\n" +
        support::word_kernel("fill", ".param .u32 k, .param .u32 n",
                             "ld.const.u64 %a1, [target];\nld.param.u32 %r1, [k];\nld.param.u32 %n, [n];\n",
                             "add.u64 %a1, %a1, %o;\nst.global.u32 [%a1], %r1;\n");
    CUmodule module = nullptr;
    CUfunction fill = nullptr;
    CUdeviceptr target = 0;
    OK(cuModuleLoadData, &module, text.c_str());
    OK(cuModuleGetFunction, &fill, module, "fill");
    OK(cuModuleGetGlobal_v2, &target, nullptr, module, "target");
    Crowd crowd;
    unsigned value = 0x01010101;
    const auto check = [&](auto&& write) {
        const Buffer a(kBuffer, 1);
        crowd.evict(a);
        write(stream, a.at());
        unsigned n = kWords;
        void* parameters[] = {&value, &n};
        OK(cuLaunchKernel, fill, kWords / 256, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr);
        OK(cuStreamSynchronize, stream);
        EXPECT(a.resident());
        EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, static_cast<std::uint8_t>(value)));
        value += 0x01010101;
    };
    check([&](CUstream where, CUdeviceptr to) { OK(cuStreamWriteValue64_v2, where, target, to, 0); });
    check([&](CUstream where, CUdeviceptr to) {
        CUstreamBatchMemOpParams operation = write_64(target, to);
        OK(cuStreamBatchMemOp_v2, where, 1, &operation, 0);
    });
    CUstreamBatchMemOpParams operation = write_64(target, 0);
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{gpu.context, 1, &operation, 0};
    check([&](CUstream where, CUdeviceptr to) {
        operation = write_64(target, to);
        const CUgraph graph = new_graph();
        CUgraphNode node = nullptr;
        OK(cuGraphAddBatchMemOpNode, &node, graph, nullptr, 0, &batch);
        const CUgraphExec exec = instantiate(graph);
        OK(cuGraphLaunch, exec, where);
        OK(cuStreamSynchronize, where);
        OK(cuGraphExecDestroy, exec);
    });
}

// What ends the wait has to be brought in while the wait lasts, and so has much else.
FAMILY_TEST("memory operations: a wait holds up no move, and what it waits for stays", "memory-waits") {
    const Gpu gpu;
    const CUstream waiting = new_stream();
    const CUstream working = new_stream();
    const Buffer out(kBuffer, 1);
    Crowd crowd;
    cuuint32_t value = 0;
    const auto check = [&](auto&& wait) {
        const Buffer flag(kGranule);
        OK(cuMemsetD32_v2, flag.at(), 0, 16);
        crowd.evict(flag);
        ++value;
        wait(waiting, flag.at(4), value);
        OK(cuMemsetD8Async, out.at(), static_cast<unsigned char>(value), kBuffer, waiting);
        crowd.press();
        EXPECT(flag.resident());
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, waiting);
        OK(cuStreamWriteValue32_v2, working, flag.at(4), value, 0);
        OK(cuStreamSynchronize, waiting);
        EXPECT(out.read() == std::vector<std::uint8_t>(kBuffer, static_cast<std::uint8_t>(value)));
        for (int i = 0; i < 3; ++i) crowd.press();
        EXPECT(flag.resident());
    };
    check([](auto... at) { OK(cuStreamWaitValue32, at..., CU_STREAM_WAIT_VALUE_EQ); });
    check([](auto... at) { OK(cuStreamWaitValue32_ptsz, at..., CU_STREAM_WAIT_VALUE_EQ); });
    check([](auto... at) { OK(cuStreamWaitValue32_v2, at..., CU_STREAM_WAIT_VALUE_EQ); });
    check([](auto... at) { OK(cuStreamWaitValue32_v2_ptsz, at..., CU_STREAM_WAIT_VALUE_EQ); });
    check([](CUstream stream, CUdeviceptr address, cuuint32_t word) {
        CUstreamBatchMemOpParams operation = wait_32(address, word);
        OK(cuStreamBatchMemOp_v2, stream, 1, &operation, 0);
    });
    const auto wide = [](CUdeviceptr address) { return address - 4; };
    check([&](CUstream stream, CUdeviceptr address, cuuint64_t word) {
        OK(cuStreamWaitValue64, stream, wide(address), word << 32, CU_STREAM_WAIT_VALUE_EQ);
    });
    check([&](CUstream stream, CUdeviceptr address, cuuint64_t word) {
        OK(cuStreamWaitValue64_ptsz, stream, wide(address), word << 32, CU_STREAM_WAIT_VALUE_EQ);
    });
    check([&](CUstream stream, CUdeviceptr address, cuuint64_t word) {
        OK(cuStreamWaitValue64_v2, stream, wide(address), word << 32, CU_STREAM_WAIT_VALUE_EQ);
    });
    check([&](CUstream stream, CUdeviceptr address, cuuint64_t word) {
        OK(cuStreamWaitValue64_v2_ptsz, stream, wide(address), word << 32, CU_STREAM_WAIT_VALUE_EQ);
    });
}

// Not even at the level where nothing moves beside unfinished work: what ends the wait may have to come in.
BODY(endless_wait) {
    const Gpu gpu;
    const CUstream waiting = new_stream();
    const CUstream working = new_stream();
    const Buffer flag(kGranule);
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    OK(cuMemsetD32_v2, flag.at(), 0, kGranule / 4);
    cuuint32_t value = 0;
    const auto check = [&](auto&& wait) {
        crowd.evict(a);
        wait(flag.at(), ++value);
        EXPECT(launch("add", kWords, working, a.at(), a.at(), 1u, kWords) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, working);
        EXPECT(a.resident());
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, waiting);
        OK(cuStreamWriteValue32_v2, working, flag.at(), value, 0);
        OK(cuStreamSynchronize, waiting);
        EXPECT(a.read() == plus(pattern(kBuffer, 1), value));
    };
    check([&](CUdeviceptr address, cuuint32_t word) {
        OK(cuStreamWaitValue32_v2, waiting, address, word, CU_STREAM_WAIT_VALUE_EQ);
    });
    check([&](CUdeviceptr address, cuuint32_t word) {
        OK(cuStreamWaitValue64_v2, waiting, address, word, CU_STREAM_WAIT_VALUE_EQ);
    });
    check([&](CUdeviceptr address, cuuint32_t word) {
        CUstreamBatchMemOpParams operation = wait_32(address, word);
        OK(cuStreamBatchMemOp_v2, waiting, 1, &operation, 0);
    });
}

TEST_CASE("memory operations: an endless wait holds up no move, at any level") {
    for (const char* level : {"args", "opaque", "strict"}) {
        CAPTURE(level);
        CHECK(rig::run("endless_wait", rig::Driver::Simulated,
                       {{"SIMCUDA_HOST_VMM", "1"}, {"LMS_SAFETY", level}})
                  .failures == "");
    }
}

// The words of graph nodes stay, also those that an executable graph is given later.
FAMILY_TEST("memory operations: nodes of graphs write and wait for words that were out", "memory-nodes") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream working = new_stream();
    const Buffer flag(kGranule);
    const Buffer out(kBuffer, 1);
    const Buffer later(kBuffer, 2);
    OK(cuMemsetD32_v2, flag.at(), 0, kGranule / 4);
    CUstreamBatchMemOpParams operations[] = {wait_32(flag.at(4), 1), write_64(out.at(8), 77)};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{gpu.context, 2, operations, 0};
    const CUgraph graph = new_graph();
    CUgraphNode node = nullptr;
    OK(cuGraphAddBatchMemOpNode, &node, graph, nullptr, 0, &batch);
    Crowd crowd;
    for (const Buffer* buffer : {&flag, &out}) crowd.evict(*buffer);
    // The driver looks where the words are.
    CUgraphNode second = nullptr;
    OK(cuGraphAddBatchMemOpNode, &second, graph, nullptr, 0, &batch);
    for (const Buffer* buffer : {&flag, &out}) crowd.evict(*buffer);
    OK(cuGraphBatchMemOpNodeSetParams, second, &batch);
    OK(cuGraphDestroyNode, second);
    const CUgraphExec exec = instantiate(graph);
    const auto runs = [&](const Buffer& written, std::uint32_t seed, cuuint32_t awaited, cuuint64_t value) {
        crowd.press();
        EXPECT(flag.resident());
        EXPECT(on_device(written.at(), kGranule));
        OK(cuGraphLaunch, exec, stream);
        crowd.press();
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
        OK(cuStreamWriteValue32_v2, working, flag.at(4), awaited, 0);
        OK(cuStreamSynchronize, stream);
        auto expected = pattern(kBuffer, seed);
        std::memcpy(&expected[8], &value, sizeof value);
        EXPECT(written.read() == expected);
    };
    runs(out, 1, 1, 77);
    crowd.evict(later);
    operations[0] = wait_32(flag.at(4), 2);
    operations[1] = write_64(later.at(8), 88);
    OK(cuGraphExecBatchMemOpNodeSetParams, exec, node, &batch);
    runs(later, 2, 2, 88);
    OK(cuGraphExecDestroy, exec);
    crowd.evict(later);
    auto expected = pattern(kBuffer, 2);
    expected[8] = 88;
    std::memset(&expected[9], 0, 7);
    EXPECT(later.read() == expected);
}
