// Several GPUs in one process: each with a budget of its own, copies between them, peer access.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <tuple>

#include "tests/entry/gate.h"
#include "tests/entry/overlay/record.h"

using namespace rig;

namespace {

struct DevicePair {
    DevicePair() {
        OK(cuInit, 0);
        for (int i = 0; i < 2; ++i) OK(cuDevicePrimaryCtxRetain, &contexts[i], i);
    }
    void use(int device) const { OK(cuCtxSetCurrent, contexts[device]); }
    CUcontext contexts[2] = {};
};

CUfunction add_of(const DevicePair& pair, int device) {
    pair.use(device);
    CUfunction add = nullptr;
    OK(cuModuleGetFunction, &add, load_kernels(), "add");
    return add;
}

CUresult launch_add(CUfunction add, CUdeviceptr to, CUdeviceptr from) {
    std::uint32_t zero = 0;
    std::uint32_t words = kBuffer / 4;
    void* parameters[] = {&to, &from, &zero, &words};
    return CU(cuLaunchKernel)(add, words / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
}

// Whether all of it may be reached by kernels and copies of device 1. (Kernels of the simulated GPUs reach
// what any of them may; a real one would fault.)
bool reached_by_1(CUdeviceptr buffer) {
    const CUmemLocation one{CU_MEM_LOCATION_TYPE_DEVICE, 1};
    for (std::size_t at = 0; at < kBuffer; at += kGranule) {
        unsigned long long flags = 0;
        // Where evicted memory is unmapped there is nothing to reach.
        const bool mapped = SIM(cuMemGetAccess)(&flags, &one, buffer + at) == CUDA_SUCCESS;
        if (mapped && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return false;
    }
    return true;
}

const Environment kTwo = {{"SIMCUDA_DEVICES", "2"}};

}  // namespace

// Under `strict` nothing moves on a GPU while work of its own is unfinished; another's does not count.
BODY(devices_apart) {
    const DevicePair pair;
    std::vector<std::unique_ptr<Buffer>> buffers[2];
    for (int device = 0; device < 2; ++device) {
        pair.use(device);
        for (std::uint32_t i = 0; i < 12; ++i)
            buffers[device].push_back(std::make_unique<Buffer>(kBuffer, i));
    }
    const CUfunction add = add_of(pair, 1);
    pair.use(0);
    CUstream held = nullptr;
    OK(cuStreamCreate, &held, CU_STREAM_NON_BLOCKING);
    Gate gate;
    gate.hold_up(held);
    OK(cuMemsetD8Async, buffers[0].back()->at(), 5, kBuffer, held);
    pair.use(1);
    for (std::uint32_t i = 0; i + 1 < 12; ++i) {
        EXPECT(launch_add(add, buffers[1][i]->at(), buffers[1][i + 1]->at()) == CUDA_SUCCESS);
        EXPECT(buffers[1][i]->resident());
    }
    OK(cuCtxSynchronize);
    gate.open();
    for (std::uint32_t i = 0; i + 1 < 12; ++i) EXPECT(buffers[1][i]->holds(i + 1));
    pair.use(0);
    OK(cuStreamSynchronize, held);
    EXPECT(buffers[0].back()->read() == std::vector<std::uint8_t>(kBuffer, 5));
    for (auto& mine : buffers) mine.clear();
}

TEST_CASE("devices: work that waits on one GPU does not hold up moves on another") {
    run_both("devices_apart", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}, {"LMS_SAFETY", "strict"}});
}

// Another thread lets GPU 1 reach what GPU 0 has while the first memory there is being made ready for.
BODY(devices_let_in_at_once) {
    static const DevicePair pair;
    static std::thread beside;
    overlay::record().span_reserved = [] {
        static std::atomic<bool> done;
        beside = std::thread([] {
            pair.use(1);
            OK(cuCtxEnablePeerAccess, pair.contexts[0], 0);
            done = true;
        });
        // It may wait for this thread.
        for (int i = 0; i < 300 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    pair.use(0);
    const Buffer first(kBuffer, 1);
    beside.join();
    EXPECT(reached_by_1(first.at()));
    const Buffer second(kBuffer, 2);
    EXPECT(reached_by_1(second.at()));
}

TEST_CASE("devices: one that is let in while another gets its first memory reaches that") {
    run_both("devices_let_in_at_once", Driver::Overlay, kTwo);
}

// What GPU 1 was given before its stream is destroyed, or captured, is fenced; GPU 0 does not wait for it.
BODY(devices_fenced) {
    const DevicePair pair;
    pair.use(0);
    std::vector<std::unique_ptr<Buffer>> buffers;
    buffers.push_back(std::make_unique<Buffer>(kBuffer, 0));
    pair.use(1);
    const Buffer other(kBuffer, 1);
    CUstream streams[2] = {};
    Gate gate;
    for (CUstream& stream : streams) {
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        gate.hold_up(stream);
    }
    OK(cuMemsetD8Async, other.at(), 5, kBuffer, streams[0]);
    OK(cuStreamDestroy_v2, streams[0]);
    OK(cuStreamBeginCapture_v2, streams[1], CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, streams[1], &graph);
    const CUfunction add = add_of(pair, 0);
    for (std::uint32_t i = 1; i < 12; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    for (std::uint32_t i = 0; i + 1 < 12; ++i) {
        EXPECT(launch_add(add, buffers[i]->at(), buffers[i + 1]->at()) == CUDA_SUCCESS);
        EXPECT(buffers[i]->resident());
    }
    OK(cuCtxSynchronize);
    gate.open();
    for (std::uint32_t i = 0; i + 1 < 12; ++i) EXPECT(buffers[i]->holds(i + 1));
    pair.use(1);
    OK(cuCtxSynchronize);
    EXPECT(other.read() == std::vector<std::uint8_t>(kBuffer, 5));
}

TEST_CASE("devices: work that waits on one GPU, and is fenced, does not hold up moves on another") {
    run_both("devices_fenced", Driver::Simulated, kTwo);
}

// Memory that is not managed, on a GPU that is full of what is.
BODY(devices_room) {
    const DevicePair pair;
    std::vector<std::unique_ptr<Buffer>> buffers[2];
    for (int device = 0; device < 2; ++device) {
        pair.use(device);
        for (std::uint32_t i = 0; i < 7; ++i) buffers[device].push_back(std::make_unique<Buffer>(kBuffer, i));
        for (const auto& buffer : buffers[device]) EXPECT(buffer->resident());
    }
    CUDA_ARRAY_DESCRIPTOR of{512, 512, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    for (int device = 0; device < 2; ++device) {
        pair.use(device);
        CUarray array = nullptr;
        OK(cuArrayCreate_v2, &array, &of);
        for (const auto& buffer : buffers[1]) EXPECT(buffer->resident() || device == 1);
        for (std::uint32_t i = 0; i < 7; ++i) EXPECT(buffers[device][i]->holds(i));
        OK(cuArrayDestroy, array);
    }
}

TEST_CASE("devices: room that the driver needs is made where it needs it") {
    run_both("devices_room", Driver::Simulated, kTwo);
}

BODY(devices_budgets) {
    const DevicePair pair;
    std::vector<std::unique_ptr<Buffer>> buffers[2];
    for (std::uint32_t i = 0; i < 12; ++i) {
        for (int device = 0; device < 2; ++device) {
            pair.use(device);
            buffers[device].push_back(std::make_unique<Buffer>(kBuffer, 2 * i + device));
        }
    }
    const CUfunction adds[] = {add_of(pair, 0), add_of(pair, 1)};
    for (std::uint32_t i = 0; i < 11; ++i) {
        for (int device = 0; device < 2; ++device) {
            pair.use(device);
            const auto& mine = buffers[device];
            EXPECT(launch_add(adds[device], mine[i]->at(), mine[i + 1]->at()) == CUDA_SUCCESS);
        }
    }
    for (int device = 0; device < 2; ++device) {
        pair.use(device);
        std::size_t resident = 0;
        for (std::uint32_t i = 0; i < 11; ++i)
            EXPECT(buffers[device][i]->holds(2 * i + 2 + static_cast<std::uint32_t>(device)));
        for (const auto& buffer : buffers[device]) {
            resident += buffer->resident();
            int ordinal = -1;
            OK(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, buffer->at());
            EXPECT(ordinal == device);
        }
        // A GPU holds seven; the two together more than one could.
        EXPECT(resident >= 5);
    }
}

TEST_CASE("devices: each has a budget of its own") {
    run_both("devices_budgets", Driver::Simulated, kTwo);
}

BODY(devices_copies) {
    const DevicePair pair;
    pair.use(0);
    const Buffer a(kBuffer, 1);
    Crowd crowd_0;
    pair.use(1);
    Buffer b(kBuffer, 2);
    Crowd crowd_1;
    const auto check = [&](int device, auto&& copy) {
        pair.use(1);
        b.fill(2);
        crowd_1.evict(b);
        pair.use(0);
        crowd_0.evict(a);
        pair.use(device);
        copy();
        OK(cuCtxSynchronize);
        pair.use(1);
        EXPECT(b.holds(1));
    };
    CUDA_MEMCPY3D_PEER box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcContext = pair.contexts[0];
    box.dstContext = pair.contexts[1];
    box.srcDevice = a.at();
    box.dstDevice = b.at();
    box.srcPitch = box.dstPitch = box.WidthInBytes = 1024;
    box.Height = kBuffer / 1024;
    box.Depth = 1;
    const auto peer = [&](auto... stream) {
        return std::make_tuple(b.at(), pair.contexts[1], a.at(), pair.contexts[0], kBuffer, stream...);
    };
    const CUstream none = nullptr;
    for (const int device : {0, 1}) {
        check(device, [&] { EXPECT(std::apply(CU(cuMemcpyPeer), peer()) == CUDA_SUCCESS); });
        check(device, [&] { EXPECT(std::apply(CU(cuMemcpyPeer_ptds), peer()) == CUDA_SUCCESS); });
        check(device, [&] { EXPECT(std::apply(CU(cuMemcpyPeerAsync), peer(none)) == CUDA_SUCCESS); });
        check(device, [&] { EXPECT(std::apply(CU(cuMemcpyPeerAsync_ptsz), peer(none)) == CUDA_SUCCESS); });
        check(device, [&] { OK(cuMemcpy3DPeer, &box); });
        check(device, [&] { OK(cuMemcpy3DPeerAsync, &box, nullptr); });
        // Without the contexts: the addresses tell where memory is.
        check(device, [&] { OK(cuMemcpy, b.at(), a.at(), kBuffer); });
        check(device, [&] { OK(cuMemcpyAsync, b.at(), a.at(), kBuffer, nullptr); });
        check(device, [&] { OK(cuMemcpyDtoD_v2, b.at(), a.at(), kBuffer); });
        check(device, [&] { OK(cuMemcpyDtoDAsync_v2, b.at(), a.at(), kBuffer, nullptr); });
    }
    // Between memory of a GPU and the host while the other one is current.
    pair.use(1);
    EXPECT(a.holds(1));
    pair.use(0);
    b.fill(7);
    EXPECT(b.holds(7));
}

TEST_CASE("devices: copies between them, whichever is current, of evicted buffers" *
          doctest::test_suite("device-copies")) {
    run_both("devices_copies", Driver::Simulated, kTwo);
}

BODY(devices_peer_access) {
    const DevicePair pair;
    pair.use(0);
    Buffer a(kBuffer, 1);
    Crowd crowd_0;
    pair.use(1);
    const Buffer b(kBuffer, 2);
    Crowd crowd_1;
    const CUfunction add = add_of(pair, 1);
    // Kernels on 1 may use memory of 0, what there is and what comes; moves of 0 respect them.
    EXPECT(!reached_by_1(a.at()));
    OK(cuCtxEnablePeerAccess, pair.contexts[0], 0);
    EXPECT(reached_by_1(a.at()));
    FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess, pair.contexts[0], 0);
    for (std::uint32_t i = 0; i < 6; ++i) {
        pair.use(0);
        a.fill(10 + i);
        crowd_0.evict(a);
        const Buffer fresh(kBuffer, 20 + i);
        EXPECT(reached_by_1(a.at()));
        EXPECT(reached_by_1(fresh.at()));
        pair.use(1);
        EXPECT(launch_add(add, b.at(), a.at()) == CUDA_SUCCESS);
        EXPECT(launch_add(add, a.at(), fresh.at()) == CUDA_SUCCESS);
        // A copy on 1 reaches it too, through the mapping.
        OK(cuMemcpyDtoDAsync_v2, fresh.at(), b.at(), kBuffer, nullptr);
        pair.use(0);
        crowd_0.press();
        pair.use(1);
        crowd_1.press();
        OK(cuCtxSynchronize);
        EXPECT(b.holds(10 + i));
        pair.use(0);
        EXPECT(reached_by_1(a.at()));
        EXPECT(a.holds(20 + i));
        EXPECT(fresh.holds(10 + i));
    }
}

TEST_CASE("devices: with peer access a kernel uses the other's buffers, wherever they are" *
          doctest::test_suite("peer-access")) {
    run_both("devices_peer_access", Driver::Simulated, kTwo);
}

// What its stream has yet to free is given out again as it is.
BODY(devices_peer_access_of_freed) {
    const DevicePair pair;
    pair.use(0);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUdeviceptr freed = 0, again = 0;
    OK(cuMemAllocAsync, &freed, kBuffer, stream);
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemFreeAsync, freed, stream);
    pair.use(1);
    OK(cuCtxEnablePeerAccess, pair.contexts[0], 0);
    pair.use(0);
    OK(cuMemAllocAsync, &again, kBuffer, stream);
    EXPECT(again == freed);
    EXPECT(reached_by_1(again));
    gate.open();
    OK(cuMemFreeAsync, again, stream);
}

TEST_CASE("devices: one that is let in reaches what its stream has yet to free, and is given out again") {
    run_both("devices_peer_access_of_freed", Driver::Simulated, kTwo);
}

namespace {

// What a signal handler copies from GPU 1, whose moves it interrupts, to GPU 0.
struct BetweenGpus {
    Gate gate;
    CUdeviceptr to = 0, from = 0;
    CUresult status = CUDA_SUCCESS;
};
BetweenGpus* between_gpus = nullptr;

void copy_between_gpus(int) {
    between_gpus->status = CU(cuMemcpyDtoDAsync_v2)(between_gpus->to, between_gpus->from, kBuffer, nullptr);
    between_gpus->gate.open();
}

}  // namespace

// It holds the one's memory when the other's is refused.
BODY(devices_interrupted) {
    const DevicePair pair;
    BetweenGpus state;
    between_gpus = &state;
    pair.use(0);
    Crowd beside;
    const Buffer to(kBuffer, 1);
    state.to = to.at();
    pair.use(1);
    const Buffer from(kBuffer, 2), needed(kBuffer, 3);
    state.from = from.at();
    {
        Crowd crowd;
        crowd.evict(from);
        crowd.evict(needed);
    }
    CUstream held = nullptr;
    OK(cuStreamCreate, &held, CU_STREAM_NON_BLOCKING);
    hold_all(state.gate, held);
    std::signal(SIGUSR1, copy_between_gpus);
    overlay::record().events_until = 40;
    overlay::record().events_asked = [] { std::raise(SIGUSR1); };
    OK(cuMemsetD8_v2, needed.at(), 5, kBuffer);
    EXPECT(overlay::record().events_asked == nullptr);
    EXPECT(state.status == CUDA_ERROR_NOT_PERMITTED);
    pair.use(0);
    beside.evict(to);
    EXPECT(to.holds(1));
}

TEST_CASE("devices: what a signal handler is refused on one GPU holds nothing on another") {
    for (const char* maps : {"0", "1"}) {
        const Outcome outcome = run("devices_interrupted", Driver::Overlay,
                                    {{"SIMCUDA_DEVICES", "2"}, {"SIMCUDA_HOST_VMM", maps}});
        CHECK(outcome.failures == "");
    }
}

// The current GPU is another one than that of the memory, and of the stream where there is one.
BODY(devices_of_the_stream) {
    const DevicePair pair;
    pair.use(1);
    Buffer b(kBuffer, 2);
    Crowd crowd;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    void* pinned = nullptr;
    OK(cuMemAllocHost_v2, &pinned, kBuffer);
    const auto check = [&](std::uint8_t value, auto&& call) {
        pair.use(1);
        b.fill(2);
        crowd.evict(b);
        pair.use(0);
        call();
        CUcontext current = nullptr;
        OK(cuCtxGetCurrent, &current);
        EXPECT(current == pair.contexts[0]);
        OK(cuStreamSynchronize, stream);
        OK(cuCtxSynchronize);
        pair.use(1);
        EXPECT(b.read() == std::vector<std::uint8_t>(kBuffer, value));
    };
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = pinned;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = b.at();
    rows.WidthInBytes = kBuffer / 16;
    rows.Height = 16;
    std::memset(pinned, 9, kBuffer);
    check(3, [&] { OK(cuMemsetD8_v2, b.at(), 3, kBuffer); });
    check(4, [&] { OK(cuMemsetD2D32_v2, b.at(), kBuffer, 0x04040404, kBuffer / 4, 1); });
    check(5, [&] { OK(cuMemsetD8_v2_ptds, b.at(), 5, kBuffer); });
    check(9, [&] { OK(cuMemcpy2D_v2, &rows); });
    check(6, [&] { OK(cuMemsetD8Async, b.at(), 6, kBuffer, stream); });
    check(7, [&] { OK(cuMemsetD2D8Async, b.at(), kBuffer / 4, 7, kBuffer / 4, 4, stream); });
    check(9, [&] { OK(cuMemcpy2DAsync_v2, &rows, stream); });
    check(9, [&] { OK(cuMemcpyHtoDAsync_v2, b.at(), pinned, kBuffer, stream); });
    check(9, [&] {
        OK(cuMemcpyHtoD_v2, b.at(), pinned, kBuffer);
        std::memset(pinned, 0, kBuffer);
        OK(cuMemcpyDtoHAsync_v2, pinned, b.at(), kBuffer, stream);
        OK(cuStreamSynchronize, stream);
        EXPECT(std::memcmp(pinned, std::vector<std::uint8_t>(kBuffer, 9).data(), kBuffer) == 0);
    });
}

TEST_CASE("devices: copies and sets in a stream of the memory's GPU, or that the host waits for") {
    run_both("devices_of_the_stream", Driver::Simulated, kTwo);
}

BODY(devices_pool_access) {
    const DevicePair pair;
    pair.use(0);
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    pair.use(1);
    EXPECT(!reached_by_1(a.at()));
    CUmemoryPool pool = nullptr;
    OK(cuDeviceGetDefaultMemPool, &pool, 0);
    const CUmemAccessDesc none{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    OK(cuMemPoolSetAccess, pool, &none, 1);
    EXPECT(!reached_by_1(a.at()));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemPoolSetAccess, pool, &access, 1);
    EXPECT(reached_by_1(a.at()));
    pair.use(0);
    crowd.evict(a);
    EXPECT(reached_by_1(a.at()));
}

TEST_CASE("devices: access to a GPU's pool is access to its buffers" * doctest::test_suite("peer-pools")) {
    run_both("devices_pool_access", Driver::Simulated, kTwo);
}
