// Frees: what they wait for, and what they do not.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/overlay/record.h"

using namespace rig;

namespace {

CUcontext new_context() {
    CUcontext context = nullptr;
    OK(cuCtxCreate_v2, &context, 0, 0);
    return context;
}

CUdeviceptr take(std::uint32_t seed) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2, &address, kBuffer);
    OK(cuMemcpyHtoD_v2, address, pattern(kBuffer, seed).data(), kBuffer);
    return address;
}

// Frees memory of one context that a copy behind a gate in another reads.
void free_beside_another_context(bool moved, bool captures) {
    OK(cuInit, 0);
    const CUcontext one = new_context();
    const CUcontext two = new_context();
    std::unique_ptr<Crowd> crowd;
    if (moved) {
        crowd = std::make_unique<Crowd>();
        crowd->press();
        OK(cuCtxSynchronize);
    }
    OK(cuCtxSetCurrent, one);
    const CUstream captured = new_stream();
    const CUdeviceptr freed = take(1);
    OK(cuCtxSetCurrent, two);
    const Buffer to(kBuffer, 2);
    const CUstream works = new_stream();
    Gate gate;
    std::atomic<bool> opened{false};
    gate.hold_up(works);
    OK(cuMemcpyDtoDAsync_v2, to.at(), freed, kBuffer, works);
    OK(cuCtxSetCurrent, one);
    if (captures) OK(cuStreamBeginCapture_v2, captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        opened = true;
        gate.open();
    });
    OK(cuMemFree_v2, freed);
    EXPECT(opened.load());
    opener.join();
    CUgraph graph = nullptr;
    if (captures) OK(cuStreamEndCapture, captured, &graph);
    OK(cuCtxSetCurrent, two);
    OK(cuStreamSynchronize, works);
    EXPECT(to.holds(1));
}

}  // namespace

FAMILY_TEST("free: waits for all contexts of the GPU, where all has fitted so far") {
    free_beside_another_context(false, false);
}

FAMILY_TEST("free: waits for all contexts of the GPU, where memory has moved") {
    free_beside_another_context(true, false);
}

FAMILY_TEST("free: waits for all contexts of the GPU beside a capture, where all has fitted so far") {
    free_beside_another_context(false, true);
}

FAMILY_TEST("free: waits for all contexts of the GPU beside a capture, where memory has moved") {
    free_beside_another_context(true, true);
}

BODY(free_of_another_gpu) {
    OK(cuInit, 0);
    CUcontext contexts[2] = {};
    for (int i = 0; i < 2; ++i) OK(cuDevicePrimaryCtxRetain, &contexts[i], i);
    OK(cuCtxSetCurrent, contexts[0]);
    const CUdeviceptr freed = take(1);
    OK(cuCtxSynchronize);
    OK(cuCtxSetCurrent, contexts[1]);
    const Buffer other(kBuffer, 2);
    const CUstream works = new_stream();
    Gate gate;
    gate.hold_up(works);
    OK(cuMemFree_v2, freed);
    gate.open();
    OK(cuStreamSynchronize, works);
}

TEST_CASE("free: does not wait for another GPU, which is the current one") {
    run_both("free_of_another_gpu", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

FAMILY_TEST("free: a context that is gone may be current") {
    OK(cuInit, 0);
    new_context();
    const CUdeviceptr freed = take(1);
    const CUcontext gone = new_context();
    std::thread([&] { OK(cuCtxDestroy_v2, gone); }).join();
    OK(cuMemFree_v2, freed);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, freed);
}

FAMILY_TEST("free: what is refused waits for nothing") {
    const Gpu gpu;
    const Buffer buffer(kBuffer, 1);
    const CUdeviceptr freed = take(2);
    OK(cuMemFree_v2, freed);
    const CUstream works = new_stream();
    Gate gate;
    gate.hold_up(works);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, freed);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, buffer.at(64));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, buffer.at(64), works);
    gate.open();
    OK(cuStreamSynchronize, works);
    EXPECT(buffer.holds(1));
}

FAMILY_TEST("free: memory counts as free once its stream has come to that") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    CUdeviceptr address = 0;
    OK(cuMemAllocAsync, &address, kBuffer, stream);
    OK(cuMemsetD8Async, address, 1, kBuffer, stream);
    std::size_t before = 0, after = 0;
    OK(cuMemGetInfo_v2, &before, nullptr);
    OK(cuMemFreeAsync, address, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuMemGetInfo_v2, &after, nullptr);
    EXPECT(after >= before + kBuffer);
}

namespace {

// Takes buffers in the order of a stream, and gives each back; the stream has come to none of that.
void take_and_give(CUstream stream, std::size_t count, const auto& bytes, const auto& before) {
    for (std::size_t i = 0; i < count; ++i) {
        before(i);
        CUdeviceptr address = 0;
        OK(cuMemAllocAsync, &address, bytes(i), stream);
        OK(cuMemFreeAsync, address, stream);
    }
}

}  // namespace

namespace {

// cuda.h: the caller has waited for what uses a pool's memory, and cuMemFree waits for nothing.
void free_of_a_pools_memory(bool moved) {
    const Gpu gpu;
    std::unique_ptr<Crowd> crowd;
    if (moved) {
        crowd = std::make_unique<Crowd>();
        crowd->press();
        OK(cuCtxSynchronize);
    }
    const CUstream used = new_stream();
    const CUstream held = new_stream();
    CUdeviceptr freed = 0;
    OK(cuMemAllocAsync, &freed, kBuffer, used);
    OK(cuMemsetD8Async, freed, 1, kBuffer, used);
    OK(cuStreamSynchronize, used);
    const Buffer other(kBuffer, 2);
    Gate gate;
    gate.hold_up(held);
    OK(cuMemsetD8Async, other.at(), 3, kBuffer, held);
    std::atomic<bool> done{false};
    std::thread opener([&] {
        for (int i = 0; i < 200 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        gate.open();
    });
    OK(cuMemFree_v2, freed);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, freed);
    EXPECT(CU(cuStreamQuery)(held) == CUDA_ERROR_NOT_READY);
    done = true;
    opener.join();
    OK(cuStreamSynchronize, held);
    EXPECT(other.read() == std::vector<std::uint8_t>(kBuffer, 3));
}

}  // namespace

BODY(free_of_a_pools_memory_where_all_fits) {
    free_of_a_pools_memory(false);
}
BODY(free_of_a_pools_memory_under_pressure) {
    free_of_a_pools_memory(true);
}

TEST_CASE("free: of a pool's memory waits for no work") {
    run_both("free_of_a_pools_memory_where_all_fits", Driver::Simulated, {});
    run_both("free_of_a_pools_memory_under_pressure", Driver::Simulated, {});
}

BODY(free_of_larger) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    Gate gate;
    gate.hold_up(stream);
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        gate.open();
    });
    take_and_give(
        stream, 8, [](std::size_t i) { return 2 * kMiB - i * kGranule; }, [](std::size_t) {});
    opener.join();
    OK(cuStreamSynchronize, stream);
}

TEST_CASE("free: where there is no room, smaller memory is what its stream gave back before") {
    run_both("free_of_larger", Driver::Simulated, {{"LMS_HOST_LIMIT", "4M"}});
}

BODY(free_one_by_one) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    std::vector<Gate> gates(5);
    std::thread opener([&] {
        for (Gate& gate : gates) {
            std::this_thread::sleep_for(std::chrono::milliseconds(600));
            gate.open();
        }
    });
    take_and_give(
        stream, 9, [](std::size_t i) { return kMiB + i * kGranule; },
        [&](std::size_t i) {
            if (i < gates.size()) gates[i].hold_up(stream);
        });
    CUdeviceptr large = 0;
    OK(cuMemAllocAsync, &large, 3 * kMiB, stream);
    opener.join();
    OK(cuStreamSynchronize, stream);
}

TEST_CASE("free: an allocation waits for as long as streams come to frees") {
    run_both("free_one_by_one", Driver::Simulated, {{"LMS_HOST_LIMIT", "4M"}});
}

// Of the primary context's, one of whose two holders another thread gives up meanwhile.
OVERLAY_TEST("frees: memory of a context that might go is freed after the work there") {
    const Gpu gpu;
    static CUcontext context = nullptr;
    OK(cuDevicePrimaryCtxRetain, &context, gpu.device);
    static CUdeviceptr freed = 0;
    freed = take(1);
    const CUstream works = new_stream();
    Gate gate;
    gate.hold_up(works);
    OK(cuMemsetD8Async, freed, 7, kBuffer, works);
    static std::atomic<bool> over{false};
    static std::thread frees;
    overlay::record().context_goes = [] {
        frees = std::thread([] {
            OK(cuCtxSetCurrent, context);
            OK(cuMemFree_v2, freed);
            over = true;
        });
        for (int i = 0; i < 100 && !over; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    OK(cuDevicePrimaryCtxRelease_v2, gpu.device);
    EXPECT(overlay::record().context_goes == nullptr);
    EXPECT(!over);
    gate.open();
    frees.join();
    OK(cuStreamSynchronize, works);
}
