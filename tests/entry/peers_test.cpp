// Faults of other shims in what they do with memory, each kept out by a test of its name. Those in how they
// stand between a program and the driver are in tests/interpose.
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/entry/rig.h"
#include "tests/support/process.h"

using namespace rig;

namespace {

constexpr std::uint32_t kZero = 0;

CUresult copy_by_kernel(CUdeviceptr to, CUdeviceptr from, CUstream stream) {
    return launch("add", kWords, stream, to, from, kZero, kWords);
}

// Runs `body` and gives what the simulated driver counted and what LMS_STATS says.
struct Counted {
    nlohmann::json calls;
    nlohmann::json stats;
};
Counted count(const std::string& body, const std::string& host_mapping) {
    const std::string report = support::scratch_file("report.json");
    const std::string stats = support::scratch_file("stats.json");
    const Outcome outcome =
        run(body, Driver::Simulated,
            {{"SIMCUDA_HOST_VMM", host_mapping}, {"SIMCUDA_REPORT", report}, {"LMS_STATS", stats}});
    CHECK(outcome.failures == "");
    return {nlohmann::json::parse(support::read_file(report))["calls"],
            nlohmann::json::parse(support::read_file(stats))};
}

}  // namespace

// Twelve buffers, of which the GPU holds seven, in a ring. Nothing here waits for the whole context.
BODY(peers_ring) {
    const Gpu gpu;
    std::vector<CUdeviceptr> ring(12);
    for (CUdeviceptr& each : ring) OK(cuMemAlloc_v2, &each, kBuffer);
    OK(cuMemcpyHtoD_v2, ring[0], pattern(kBuffer, 1).data(), kBuffer);
    for (std::size_t i = 0; i < 60; ++i)
        EXPECT(copy_by_kernel(ring[(i + 1) % 12], ring[i % 12], nullptr) == CUDA_SUCCESS);
    std::vector<std::uint8_t> data(kBuffer);
    for (const CUdeviceptr each : ring) {
        OK(cuMemcpyDtoH_v2, data.data(), each, kBuffer);
        EXPECT(data == pattern(kBuffer, 1));
    }
}

TEST_CASE("peers: launches and evictions synchronise the context") {
    for (const char* host_mapping : {"1", "0"}) {
        const Counted counted = count("peers_ring", host_mapping);
        CHECK(counted.stats["evictions"] > 20);
        CHECK(!counted.calls.contains("cuCtxSynchronize"));
        CHECK(!counted.calls.contains("cuCtxSynchronize_v2"));
    }
}

TEST_CASE("peers: every move creates its memory anew") {
    for (const char* host_mapping : {"1", "0"}) {
        const Counted counted = count("peers_ring", host_mapping);
        const auto moves = counted.stats["evictions"].get<int>() + counted.stats["fills"].get<int>();
        int created = counted.calls["cuMemCreate"].get<int>();
        if (counted.calls.contains("cuMemHostAlloc")) created += counted.calls["cuMemHostAlloc"].get<int>();
        CHECK(moves > 200);
        CHECK(created < moves / 2);
    }
}

TEST_CASE("peers: one process larger than the GPU is refused, or its overflow never moves") {
    for (const char* host_mapping : {"1", "0"}) {
        const Counted counted = count("peers_ring", host_mapping);
        CHECK(counted.stats["fills"] > 20);
    }
}

BODY(peers_threads) {
    const Gpu gpu;
    kernel("add");  // loaded once
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            OK(cuCtxSetCurrent, gpu.context);
            CUstream stream = nullptr;
            OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
            std::vector<std::uint8_t> data(kBuffer);
            for (std::uint32_t i = 0; i < 12; ++i) {
                CUdeviceptr a = 0;
                CUdeviceptr b = 0;
                OK(cuMemAlloc_v2, &a, kBuffer);
                OK(cuMemAllocAsync, &b, kBuffer, stream);
                const auto mine = pattern(kBuffer, 100 * t + i);
                OK(cuMemcpyHtoDAsync_v2, a, mine.data(), kBuffer, stream);
                if (copy_by_kernel(b, a, stream) != CUDA_SUCCESS) ++wrong;
                CUdeviceptr base = 0;
                std::size_t size = 0;
                OK(cuMemGetAddressRange_v2, &base, &size, b + 77);
                if (base != b || size != kBuffer) ++wrong;
                OK(cuStreamSynchronize, stream);
                OK(cuMemcpyDtoH_v2, data.data(), b, kBuffer);
                if (data != mine) ++wrong;
                OK(cuMemFreeAsync, b, stream);
                OK(cuMemFree_v2, a);
            }
        });
    }
    const Buffer stays(4 * kBuffer, 9);
    for (std::thread& thread : threads) thread.join();
    EXPECT(wrong == 0);
    EXPECT(stays.holds(9));
}

TEST_CASE("peers: the list of allocations is not locked" * doctest::test_suite("peers-allocations")) {
    run_both("peers_threads", Driver::Simulated, {});
}

TEST_CASE("peers: GPU 0 alone is served") {
    run_both("devices_budgets", Driver::Simulated, {{"SIMCUDA_DEVICES", "2"}});
}

FAMILY_TEST("peers: kernelParams is taken to end in null", "peers-parameters") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    CUdeviceptr to = b.at();
    CUdeviceptr from = a.at();
    std::uint32_t zero = 0;
    std::uint32_t n = kWords;
    // What follows the kernel's four is not a pointer to anything.
    void* parameters[] = {&to, &from, &zero, &n, reinterpret_cast<void*>(1), reinterpret_cast<void*>(8)};
    OK(cuLaunchKernel, kernel("add"), n / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
    EXPECT(b.holds(1));
}

// Whatever the driver refuses, the program gets its error or goes on; the process is its own.
BODY(peers_refusals) {
    const Gpu gpu;
    std::vector<CUdeviceptr> buffers;
    std::vector<std::uint8_t> data(kBuffer);
    for (std::uint32_t i = 0; i < 12; ++i) {
        CUdeviceptr buffer = 0;
        const CUresult status = CU(cuMemAlloc_v2)(&buffer, kBuffer);
        if (status != CUDA_SUCCESS) {
            EXPECT(status == CUDA_ERROR_OUT_OF_MEMORY);
            continue;
        }
        if (CU(cuMemcpyHtoD_v2)(buffer, pattern(kBuffer, i).data(), kBuffer) != CUDA_SUCCESS) continue;
        OK(cuMemcpyDtoH_v2, data.data(), buffer, kBuffer);
        EXPECT(data == pattern(kBuffer, i));
        buffers.push_back(buffer);
    }
    EXPECT(buffers.size() >= 8);
}

TEST_CASE("peers: an error of the driver's ends the process") {
    for (const char* call : {"cuMemCreate:5", "cuMemCreate:20", "cuMemMap:9", "cuMemSetAccess:13",
                             "cuMemUnmap:2", "cuEventCreate:1", "cuMemHostAlloc:2"}) {
        CAPTURE(call);
        run_both("peers_refusals", Driver::Simulated, {{"SIMCUDA_FAIL", call}});
    }
}

// A thread waits for room behind a callback that waits for this thread, which asks and allocates meanwhile.
BODY(peers_lock) {
    const Gpu gpu;
    kernel("add");
    const Buffer a(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    CUstream busy = nullptr;
    OK(cuStreamCreate, &busy, CU_STREAM_NON_BLOCKING);
    static std::mutex gate;
    std::vector<std::unique_ptr<Buffer>> resident;
    for (std::uint32_t i = 0; i < 6; ++i) {
        resident.push_back(std::make_unique<Buffer>(kBuffer, i));
        EXPECT(resident.back()->holds(i));
    }
    std::unique_lock lock(gate);
    const auto callback = [](void*) { const std::lock_guard waits(gate); };
    OK(cuLaunchHostFunc, busy, callback, nullptr);
    for (const auto& buffer : resident) OK(cuMemsetD8Async, buffer->at(), 3, kBuffer, busy);
    std::atomic<bool> asked{false};
    std::thread waits([&] {
        OK(cuCtxSetCurrent, gpu.context);
        CUstream stream = nullptr;
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        asked = true;
        EXPECT(copy_by_kernel(out.at(), a.at(), stream) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, stream);
    });
    while (!asked) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) {
        int ordinal = -1;
        OK(cuPointerGetAttribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a.at(4));
        std::size_t free = 0;
        std::size_t total = 0;
        OK(cuMemGetInfo_v2, &free, &total);
    }
    lock.unlock();
    waits.join();
    OK(cuStreamSynchronize, busy);
    EXPECT(out.holds(1));
}

TEST_CASE("peers: copies and waits hold the lock that every call needs") {
    run_both("peers_lock", Driver::Simulated, {});
}

TEST_CASE("peers: memory that is registered elsewhere is replaced under the same address") {
    run_both("exempt_by_default", Driver::Simulated, {});
}
