// Contexts: what is in one goes with it; several on a GPU share its memory; one that is made anew works.
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/overlay/record.h"

using namespace rig;

namespace {

// In the simulated driver itself, past the shim. (The granule below which it cannot count is given away.)
std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    SIM(cuMemGetInfo_v2)(&free, &total);
    return free;
}

CUcontext new_context(CUdevice device) {
    CUcontext context = nullptr;
    OK(cuCtxCreate_v2, &context, 0, device);
    return context;
}

// Works through buffers of more than the GPU has; each context has kernels of its own.
void work_under_pressure() {
    CUmodule module = load_kernels();
    CUfunction add = nullptr;
    OK(cuModuleGetFunction, &add, module, "add");
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 12; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    for (std::uint32_t i = 0; i < 11; ++i) {
        CUdeviceptr to = buffers[i + 1]->at();
        CUdeviceptr from = buffers[i]->at();
        std::uint32_t zero = 0;
        std::uint32_t words = kBuffer / 4;
        void* parameters[] = {&to, &from, &zero, &words};
        OK(cuLaunchKernel, add, words / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
    }
    for (const auto& buffer : buffers) EXPECT(buffer->holds(0));
    OK(cuModuleUnload, module);
}

}  // namespace

OVERLAY_TEST("contexts: buffers and memory go with theirs, by whatever call, and the next one starts anew",
             "contexts-end") {
    OK(cuInit, 0);
    for (const auto destroy : {CU(cuCtxDestroy_v2), CU(cuCtxDestroy), CU(cuCtxDetach)}) {
        const CUcontext context = new_context(0);
        const std::size_t before = free_bytes();
        work_under_pressure();
        CUdeviceptr left = 0;
        OK(cuMemAlloc_v2, &left, 2 * kBuffer);
        // Not finished when the context goes.
        OK(cuMemsetD8Async, left, 1, 2 * kBuffer, nullptr);
        EXPECT(destroy(context) == CUDA_SUCCESS);
        EXPECT(CU(cuMemFree_v2)(left) != CUDA_SUCCESS);
        const CUcontext next = new_context(0);
        EXPECT(free_bytes() >= before);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, left);
        OK(cuCtxDestroy_v2, next);
    }
}

FAMILY_TEST("contexts: a reset of the device, and the last release of the primary context, end it too",
            "primary-contexts-end") {
    OK(cuInit, 0);
    const auto check = [](auto&& end) {
        CUcontext context = nullptr;
        OK(cuDevicePrimaryCtxRetain, &context, 0);
        OK(cuCtxSetCurrent, context);
        const std::size_t before = free_bytes();
        CUdeviceptr left = 0;
        OK(cuMemAlloc_v2, &left, 6 * kMiB);
        work_under_pressure();
        end();
        OK(cuDevicePrimaryCtxRetain, &context, 0);
        OK(cuCtxSetCurrent, context);
        EXPECT(free_bytes() >= before);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, left);
        work_under_pressure();
        OK(cuDevicePrimaryCtxReset_v2, 0);
    };
    check([] { OK(cuDevicePrimaryCtxReset, 0); });
    check([] { OK(cuDevicePrimaryCtxReset_v2, 0); });
    check([] { OK(cuDevicePrimaryCtxRelease, 0); });
    check([] { OK(cuDevicePrimaryCtxRelease_v2, 0); });
}

FAMILY_TEST("contexts: a release that is not the last takes nothing away") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    CUcontext again = nullptr;
    OK(cuDevicePrimaryCtxRetain, &again, gpu.device);
    OK(cuDevicePrimaryCtxRelease_v2, gpu.device);
    EXPECT(a.holds(1));
    crowd.evict(a);
    EXPECT(a.holds(1));
}

namespace {

CUcontext stays = nullptr;  // while another goes

void work_where_it_stays() {
    std::thread([] {
        OK(cuCtxSetCurrent, stays);
        work_under_pressure();
    }).join();
}

}  // namespace

// Another thread's work in the other context, before the destroying call is back.
OVERLAY_TEST("contexts: of one that the driver has destroyed nothing is asked") {
    OK(cuInit, 0);
    // The shim works through the one that is used first.
    for (const bool first_goes : {true, false}) {
        const CUcontext one = new_context(0);
        work_under_pressure();
        const CUcontext two = new_context(0);
        work_under_pressure();
        stays = first_goes ? two : one;
        const CUcontext goes = first_goes ? one : two;
        OK(cuCtxSetCurrent, goes);
        CUstream stream = nullptr;
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        const Buffer left(kBuffer, 1);
        // Nobody has seen it to be over.
        OK(cuMemsetD8Async, left.at(), 1, kBuffer, stream);
        OK(cuMemsetD8Async, left.at(), 1, kBuffer, nullptr);
        OK(cuCtxSetCurrent, stays);
        overlay::record().context_gone = work_where_it_stays;
        OK(cuCtxDestroy_v2, goes);
        EXPECT(overlay::record().dead_queries == 0);
        OK(cuCtxDestroy_v2, stays);
    }
}

// Its work has used memory of the other GPU, where another thread moves more.
BODY(last_of_a_gpu_that_reached_another) {
    OK(cuInit, 0);
    const CUcontext goes = new_context(0);
    stays = new_context(1);
    const Buffer reached(kBuffer, 1);
    work_under_pressure();
    OK(cuCtxSetCurrent, goes);
    OK(cuCtxEnablePeerAccess, stays, 0);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemsetD8Async, reached.at(), 1, kBuffer, stream);
    OK(cuMemsetD8Async, reached.at(), 1, kBuffer, nullptr);
    overlay::record().context_gone = work_where_it_stays;
    OK(cuCtxDestroy_v2, goes);
    EXPECT(overlay::record().dead_queries == 0);
    OK(cuCtxSetCurrent, stays);
    EXPECT(reached.read() == std::vector<std::uint8_t>(kBuffer, 1));
}

TEST_CASE("contexts: of the last one of a GPU that reached another's memory nothing is asked there") {
    run_both("last_of_a_gpu_that_reached_another", Driver::Overlay, {{"SIMCUDA_DEVICES", "2"}});
}

// A release that is not the last: the context goes on, and what another thread gives it meanwhile, before
// anything has moved, is no work from before.
BODY(submitted_while_one_might_end) {
    const Gpu gpu;
    const CUcontext other = new_context(gpu.device);
    OK(cuCtxSetCurrent, gpu.context);
    kernel("add");
    const Buffer a(kBuffer, 1);
    CUcontext again = nullptr;
    OK(cuDevicePrimaryCtxRetain, &again, gpu.device);
    static CUstream stream = nullptr;
    static CUdeviceptr to = 0;
    static Gate* gate = nullptr;
    static std::optional<Crowd> crowd;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    to = a.at();
    Gate closed;
    gate = &closed;
    overlay::record().context_synchronized = [] {
        gate->hold_up(stream);
        OK(cuMemsetD8Async, to, 7, kBuffer, stream);
        crowd.emplace();
    };
    OK(cuDevicePrimaryCtxRelease_v2, gpu.device);
    EXPECT(overlay::record().context_synchronized == nullptr);
    for (int i = 0; i < 3; ++i) crowd->press();
    EXPECT(a.resident());
    closed.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 7));
    crowd.reset();
    OK(cuCtxDestroy_v2, other);
}

// Where evicted memory is unmapped, nothing moves before such work has ended.
TEST_CASE("contexts: what is submitted while one might end keeps its memory where it is") {
    CHECK(run("submitted_while_one_might_end", Driver::Overlay, {{"SIMCUDA_HOST_VMM", "1"}}).failures == "");
}

namespace {

// Another thread's context, made before the call that destroys the last one of that handle is back, which
// stands still until `made`, or for a while: it may be waited for.
struct Successor {
    explicit Successor(std::function<CUcontext()> make) : make_(std::move(make)) {
        thread_ = std::thread([this] {
            context = make_();
            OK(cuCtxSetCurrent, context);
            OK(cuMemAlloc_v2, &buffer, kBuffer);
            OK(cuMemcpyHtoD_v2, buffer, pattern(kBuffer, 5).data(), kBuffer);
            module = load_kernels();
            ready = true;
        });
        for (int i = 0; i < 300 && !ready; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // All that it has is there, and pressure in it takes nothing away.
    void check() {
        thread_.join();
        OK(cuCtxSetCurrent, context);
        std::vector<std::uint8_t> out(kBuffer);
        OK(cuMemcpyDtoH_v2, out.data(), buffer, kBuffer);
        EXPECT(out == pattern(kBuffer, 5));
        work_under_pressure();
        OK(cuMemcpyDtoH_v2, out.data(), buffer, kBuffer);
        EXPECT(out == pattern(kBuffer, 5));
        OK(cuMemFree_v2, buffer);
        OK(cuModuleUnload, module);
    }

    std::function<CUcontext()> make_;
    std::thread thread_;
    std::atomic<bool> ready = false;
    CUcontext context = nullptr;
    CUdeviceptr buffer = 0;
    CUmodule module = nullptr;
};

std::optional<Successor> successor;

}  // namespace

OVERLAY_TEST("contexts: one that is made before the destruction of the last is back keeps what it has") {
    OK(cuInit, 0);
    const CUcontext goes = new_context(0);
    work_under_pressure();
    overlay::record().context_gone = [] { successor.emplace([] { return new_context(0); }); };
    OK(cuCtxDestroy_v2, goes);
    successor->check();
}

OVERLAY_TEST("contexts: a primary context that is made anew at once is another") {
    OK(cuInit, 0);
    CUcontext goes = nullptr;
    OK(cuDevicePrimaryCtxRetain, &goes, 0);
    OK(cuCtxSetCurrent, goes);
    CUdeviceptr left = 0;
    OK(cuMemAlloc_v2, &left, kBuffer);
    work_under_pressure();
    overlay::record().context_gone = [] {
        successor.emplace([] {
            CUcontext made = nullptr;
            OK(cuDevicePrimaryCtxRetain, &made, 0);
            return made;
        });
    };
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    successor->check();
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, left);
}

// Two threads' contexts that end at once beside a third, which goes on.
OVERLAY_TEST("contexts: one that ends while another does leaves a third what it has") {
    OK(cuInit, 0);
    static CUcontext first = nullptr;
    first = new_context(0);
    work_under_pressure();
    const CUcontext second = new_context(0);
    const CUcontext third = new_context(0);
    const Buffer kept(kBuffer, 5);
    static std::thread beside;
    overlay::record().context_gone = [] {
        static std::atomic<bool> done;
        beside = std::thread([] {
            OK(cuCtxDestroy_v2, first);
            done = true;
        });
        // It may wait for this one.
        for (int i = 0; i < 300 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    OK(cuCtxDestroy_v2, second);
    beside.join();
    OK(cuCtxSetCurrent, third);
    EXPECT(kept.holds(5));
    work_under_pressure();
    EXPECT(kept.holds(5));
}

// As before, but that nothing has moved yet.
OVERLAY_TEST("contexts: of one that the driver has destroyed nothing is asked when memory runs out") {
    OK(cuInit, 0);
    const CUcontext goes = new_context(0);
    stays = new_context(0);
    const Buffer there(kBuffer, 1);
    OK(cuCtxSetCurrent, goes);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemsetD8Async, there.at(), 1, kBuffer, stream);
    static std::thread beside;
    overlay::record().context_gone = [] {
        static std::atomic<bool> done;
        beside = std::thread([] {
            OK(cuCtxSetCurrent, stays);
            work_under_pressure();
            done = true;
        });
        // It may wait until this call is back.
        for (int i = 0; i < 300 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    OK(cuCtxDestroy_v2, goes);
    beside.join();
    EXPECT(overlay::record().dead_queries == 0);
    OK(cuCtxSetCurrent, stays);
    EXPECT(there.read() == std::vector<std::uint8_t>(kBuffer, 1));
}

// A wait for their context would end them, whatever their mode; the simulated driver lets it pass.
OVERLAY_TEST("contexts: a release that is not the last leaves captures whole") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const CUcontext other = new_context(gpu.device);
    OK(cuCtxSetCurrent, gpu.context);
    CUcontext again = nullptr;
    OK(cuDevicePrimaryCtxRetain, &again, gpu.device);
    for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
        OK(cuDevicePrimaryCtxRetain, &again, gpu.device);
        CUstream stream = nullptr;
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        OK(cuStreamBeginCapture_v2, stream, mode);
        OK(cuMemsetD8Async, a.at(), 1, kBuffer, stream);
        const int waits = overlay::record().context_waits;
        OK(cuDevicePrimaryCtxRelease_v2, gpu.device);
        EXPECT(overlay::record().context_waits == waits);
        CUgraph graph = nullptr;
        OK(cuStreamEndCapture, stream, &graph);
        OK(cuGraphDestroy, graph);
    }
    OK(cuCtxDestroy_v2, other);
}

// The driver is still about to destroy it when it has made another.
OVERLAY_TEST("contexts: one that is made while the last takes long to end keeps what it has") {
    OK(cuInit, 0);
    const CUcontext goes = new_context(0);
    work_under_pressure();
    overlay::record().context_goes = [] {
        successor.emplace([] { return new_context(0); });
        while (!successor->ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    OK(cuCtxDestroy_v2, goes);
    successor->check();
}

FAMILY_TEST("contexts: two on a GPU share its memory, and each outlives the other", "two-contexts") {
    OK(cuInit, 0);
    // The shim works through the one that is used first.
    for (const bool first_goes : {true, false}) {
        const CUcontext one = new_context(0);
        auto* const a = new Buffer(6 * kBuffer, 1);
        const CUcontext two = new_context(0);
        auto* const b = new Buffer(6 * kBuffer, 2);
        work_under_pressure();
        OK(cuCtxSetCurrent, one);
        work_under_pressure();
        EXPECT(a->holds(1));
        OK(cuCtxSetCurrent, two);
        EXPECT(b->holds(2));

        const Buffer* const left = first_goes ? b : a;
        OK(cuCtxSetCurrent, first_goes ? two : one);
        OK(cuCtxDestroy_v2, first_goes ? one : two);
        EXPECT(left->holds(first_goes ? 2 : 1));
        work_under_pressure();
        EXPECT(left->holds(first_goes ? 2 : 1));
        CUcontext owner = nullptr;
        OK(cuPointerGetAttribute, &owner, CU_POINTER_ATTRIBUTE_CONTEXT, left->at());
        EXPECT(owner == (first_goes ? two : one));
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, (first_goes ? a : b)->at());
        OK(cuCtxDestroy_v2, first_goes ? two : one);
    }
}

// Work in one context is known to work in the other: nothing moves under it.
FAMILY_TEST("contexts: a buffer does not move while another context's stream uses it", "context-streams") {
    OK(cuInit, 0);
    const CUcontext one = new_context(0);
    const Buffer a(kBuffer, 1);
    const CUcontext two = new_context(0);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    for (std::uint32_t i = 0; i < 20; ++i) {
        OK(cuCtxSetCurrent, two);
        OK(cuMemcpyDtoDAsync_v2, a.at(), b.at(), kBuffer, nullptr);
        OK(cuCtxSetCurrent, one);
        crowd.press();
        OK(cuCtxSetCurrent, two);
        OK(cuStreamSynchronize, nullptr);
        EXPECT(a.holds(2));
    }
    static_cast<void>(one);
}

FAMILY_TEST("contexts: memory of the GPU's pool outlives a context beside another", "context-pools") {
    const Gpu gpu;
    const CUcontext other = new_context(0);
    CUdeviceptr a = 0;
    OK(cuMemAllocAsync, &a, kBuffer, nullptr);
    // Also what may lie where memory of the context's lay.
    CUdeviceptr plain = 0, b = 0;
    OK(cuMemAlloc_v2, &plain, kBuffer);
    OK(cuMemFreeAsync, plain, nullptr);
    OK(cuMemAllocAsync, &b, kBuffer, nullptr);
    for (const CUdeviceptr memory : {a, b}) OK(cuMemcpyHtoD_v2, memory, pattern(kBuffer, 7).data(), kBuffer);
    OK(cuCtxDestroy_v2, other);
    OK(cuCtxSetCurrent, gpu.context);
    for (const CUdeviceptr memory : {a, b}) {
        std::vector<std::uint8_t> data(kBuffer);
        OK(cuMemcpyDtoH_v2, data.data(), memory, kBuffer);
        EXPECT(data == pattern(kBuffer, 7));
        OK(cuMemFreeAsync, memory, nullptr);
    }
}

FAMILY_TEST("contexts: a free waits for the context that the buffer is in") {
    OK(cuInit, 0);
    const CUcontext one = new_context(0);
    const CUmodule module = load_kernels();
    CUfunction add = nullptr;
    OK(cuModuleGetFunction, &add, module, "add");
    const Buffer out(kBuffer, 2);
    const CUcontext two = new_context(0);
    for (std::uint32_t i = 0; i < 10; ++i) {
        OK(cuCtxSetCurrent, one);
        auto* const a = new Buffer(kBuffer, i);
        CUdeviceptr to = out.at();
        CUdeviceptr from = a->at();
        std::uint32_t zero = 0;
        std::uint32_t words = kBuffer / 4;
        void* parameters[] = {&to, &from, &zero, &words};
        OK(cuLaunchKernel, add, words / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
        OK(cuCtxSetCurrent, two);
        delete a;
        OK(cuCtxSetCurrent, one);
        EXPECT(out.holds(i));
    }
}

namespace {

// Copies out are slow, so that some, ahead of need, are under way when it returns.
std::vector<CUdeviceptr> press_in(std::size_t count) {
    std::vector<CUdeviceptr> buffers(count);
    for (CUdeviceptr& buffer : buffers) OK(cuMemAlloc_v2, &buffer, kBuffer);
    for (const CUdeviceptr buffer : buffers) OK(cuMemsetD8Async, buffer, 1, kBuffer, nullptr);
    return buffers;
}

}  // namespace

BODY(contexts_copies_out) {
    OK(cuInit, 0);
    // The last of its GPU.
    for (int round = 0; round < 3; ++round) {
        const CUcontext context = new_context(0);
        press_in(12);
        OK(cuCtxDestroy_v2, context);
    }
    // One beside another, which goes on.
    const CUcontext first = new_context(0);
    const CUcontext second = new_context(0);
    const Buffer kept(kBuffer, 5);
    OK(cuCtxSetCurrent, first);
    press_in(12);
    OK(cuCtxDestroy_v2, first);
    OK(cuCtxSetCurrent, second);
    EXPECT(kept.holds(5));
    // Freed one by one, and what they had given to others.
    for (const CUdeviceptr buffer : press_in(12)) OK(cuMemFree_v2, buffer);
    const Buffer large(3 * kMiB, 6);
    EXPECT(large.holds(6));
    EXPECT(kept.holds(5));
}

TEST_CASE("contexts: one that goes while buffers are copied out ahead of need") {
    run_both("contexts_copies_out", Driver::Simulated, {{"SIMCUDA_D2H_GBPS", "0.02"}});
}

BODY(contexts_end_beside_the_trial) {
    OK(cuInit, 0);
    const CUcontext first = new_context(0);
    CUdeviceptr small = 0;
    OK(cuMemAlloc_v2, &small, 1 << 16);
    const CUcontext second = new_context(0);
    std::atomic<bool> nears{false};
    std::thread allocating([&] {
        OK(cuCtxSetCurrent, second);
        for (int i = 0; i < 30; ++i) {
            nears = i >= 13;  // the first that does not fit begins the trial
            CUdeviceptr buffer = 0;
            OK(cuMemAlloc_v2, &buffer, 1 << 18);
        }
    });
    while (!nears) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(std::atoi(std::getenv("ENDS_AFTER_US"))));
    OK(cuCtxDestroy_v2, first);
    allocating.join();
}

TEST_CASE("contexts: one that goes beside the trial of moves, which is made in it") {
    for (int microseconds = 500; microseconds < 50'000; microseconds += 4000) {
        CAPTURE(microseconds);
        const Outcome outcome =
            run("contexts_end_beside_the_trial", Driver::Simulated,
                {{"SIMCUDA_VMM_US", "3000"}, {"ENDS_AFTER_US", std::to_string(microseconds)}});
        CHECK(outcome.failures == "");
    }
}

// What is out is pinned in the context that goes, and a copy in another one has yet to write there.
FAMILY_TEST("contexts: one that goes while a copy in another waits for its turn") {
    OK(cuInit, 0);
    const CUcontext first = new_context(0);
    const auto in_first = std::make_unique<Buffer>(kBuffer, 1);
    const CUcontext second = new_context(0);
    const Buffer a(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    CUstream blocking = nullptr;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    Gate gate;
    gate.hold_up(blocking);
    std::thread writer([&] {
        OK(cuCtxSetCurrent, second);
        OK(cuMemcpyHtoD_v2, a.at(), pattern(kBuffer, 3).data(), kBuffer);
    });
    // The one may go only after the other, where it is in the way; to be early is all that can go wrong.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::thread destroyer([&] { OK(cuCtxDestroy_v2, first); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
    writer.join();
    destroyer.join();
    EXPECT(a.evicted());
    EXPECT(a.holds(3));
}

// What its stream frees is out, pinned in the context that goes, and is given out again.
FAMILY_TEST("contexts: one that goes while memory of another waits for its free") {
    OK(cuInit, 0);
    const CUcontext first = new_context(0);
    const auto in_first = std::make_unique<Buffer>(kBuffer, 1);
    const CUcontext second = new_context(0);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUdeviceptr freed = 0, again = 0;
    OK(cuMemAllocAsync, &freed, kBuffer, stream);
    OK(cuMemsetD8Async, freed, 1, kBuffer, stream);
    OK(cuStreamSynchronize, stream);
    Crowd crowd;
    for (int i = 0; i < 10 && !off_device(freed, kBuffer); ++i) crowd.press();
    EXPECT(off_device(freed, kBuffer));
    OK(cuMemFreeAsync, freed, stream);
    OK(cuCtxDestroy_v2, first);
    OK(cuCtxSetCurrent, second);
    OK(cuMemAllocAsync, &again, kBuffer, stream);
    EXPECT(again == freed);
    const auto halves = [&](std::uint8_t value) {
        OK(cuMemsetD8Async, again, value, kBuffer / 2, stream);
        OK(cuMemsetD8Async, again + kBuffer / 2, value, kBuffer / 2, stream);
        OK(cuStreamSynchronize, stream);
        std::vector<std::uint8_t> data(kBuffer);
        OK(cuMemcpyDtoH_v2, data.data(), again, kBuffer);
        EXPECT(data == std::vector<std::uint8_t>(kBuffer, value));
    };
    halves(7);
    for (int i = 0; i < 10 && !off_device(again, kBuffer); ++i) crowd.press();
    halves(8);
    OK(cuMemFreeAsync, again, stream);
}
