// Memory that the program maps itself, used and given away by several threads and streams at once.
#include <atomic>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/own.h"

using namespace rig;

namespace {

void copy_in(CUstream stream, CUdeviceptr to, CUdeviceptr from) {
    const std::uint32_t zero = 0;
    EXPECT(launch("add", kWords, stream, to, from, zero, kWords) == CUDA_SUCCESS);
}

}  // namespace

FAMILY_TEST("own mappings: what unfinished work writes is there when the memory has become the driver's") {
    const Gpu gpu;
    Crowd crowd;
    const Buffer from(kBuffer, 5);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUdeviceptr p = reserve(kBuffer);
    const auto handle = create_shareable(kBuffer);
    map(p, kBuffer, handle);
    write(p, kBuffer, 1);
    crowd.press();
    copy_in(nullptr, p, from.at());
    OK(cuCtxSynchronize);
    write(p, kBuffer, 2);
    Gate gate;
    gate.hold_up(stream);
    copy_in(stream, p, from.at());
    std::atomic<bool> begun{false};
    std::thread other([&] {
        while (!begun) std::this_thread::yield();
        gate.open();
    });
    begun = true;
    EXPECT(share(handle) == CUDA_SUCCESS);
    other.join();
    OK(cuStreamSynchronize, stream);
    EXPECT(reads(p, kBuffer, 5));
    crowd.press();
    EXPECT(on_device(p, kBuffer));
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemRelease, handle);
}

// The call waits for ten seconds, in vain.
BODY(own_never_idle) {
    const Gpu gpu;
    const CUdeviceptr p = reserve(kBuffer);
    const auto handle = create_shareable(kBuffer);
    map(p, kBuffer, handle);
    write(p, kBuffer, 1);
    const Buffer from(kBuffer, 5);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Gate gate;
    gate.hold_up(stream);
    copy_in(stream, p, from.at());
    EXPECT(share(handle) == CUDA_ERROR_NOT_SUPPORTED);
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(reads(p, kBuffer, 5));
    // Managed still; and shared once nothing holds it up.
    Crowd crowd;
    evict(crowd, p, kBuffer);
    EXPECT(share(handle) == CUDA_SUCCESS);
    EXPECT(on_device(p, kBuffer));
    EXPECT(reads(p, kBuffer, 5));
}

TEST_CASE("own mappings: what unfinished work goes on using is not shared, and is managed still") {
    CHECK(run("own_never_idle", Driver::Simulated, {}).failures == "");
}

FAMILY_TEST("own mappings: threads map, unmap, retain, release and share one handle") {
    const Gpu gpu;
    Crowd crowd;
    const auto handle = create_shareable(kBuffer);
    const CUdeviceptr fixed = reserve(kBuffer);
    map(fixed, kBuffer, handle);
    write(fixed, kBuffer, 9);
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < 3; ++thread) {
        threads.emplace_back([&, thread] {
            OK(cuCtxSetCurrent, gpu.context);
            const CUdeviceptr p = reserve(kBuffer);
            for (int round = 0; round < 20; ++round) {
                map(p, kBuffer, handle);
                EXPECT(reads(p, kBuffer, 9));
                CUmemGenericAllocationHandle again = 0;
                OK(cuMemRetainAllocationHandle, &again, reinterpret_cast<void*>(p));
                EXPECT(again == handle);
                CUmemAllocationProp properties{};
                OK(cuMemGetAllocationPropertiesFromHandle, &properties, again);
                OK(cuMemUnmap, p, kBuffer);
                OK(cuMemRelease, again);
                if (thread == 0 && round == 10) EXPECT(share(handle) == CUDA_SUCCESS);
            }
            OK(cuMemAddressFree, p, kBuffer);
        });
    }
    for (int round = 0; round < 10; ++round) crowd.press();
    for (std::thread& thread : threads) thread.join();
    EXPECT(reads(fixed, kBuffer, 9));
    OK(cuMemUnmap, fixed, kBuffer);
    OK(cuMemRelease, handle);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease, handle);
}

// What is out may go with the context, and a copy has yet to write there.
FAMILY_TEST("own mappings: the primary context is given up once of twice while a copy waits for its turn") {
    const Gpu gpu;
    const Own own(kBuffer, 1);
    Crowd crowd;
    for (int i = 0; i < 10 && on_device(own.at(), kBuffer); ++i) crowd.press();
    CUcontext again = nullptr;
    OK(cuDevicePrimaryCtxRetain, &again, gpu.device);
    CUstream blocking = nullptr;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    Gate gate;
    gate.hold_up(blocking);
    std::thread writer([&] {
        OK(cuCtxSetCurrent, gpu.context);
        OK(cuMemcpyHtoD_v2, own.at(), pattern(kBuffer, 3).data(), kBuffer);
    });
    // To be early is all that can go wrong.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::thread releaser([&] { OK(cuDevicePrimaryCtxRelease_v2, gpu.device); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
    writer.join();
    releaser.join();
    EXPECT(reads(own.at(), kBuffer, 3));
}

FAMILY_TEST("own mappings: a mapping is taken away while other streams' work is held up on other memory") {
    const Gpu gpu;
    Crowd crowd;
    const Own a(kBuffer, 1);
    const Own b(kBuffer, 2);
    const CUdeviceptr p = reserve(2 * kBuffer);
    const auto handle = create(kBuffer);
    map(p, kBuffer, handle);
    write(p, kBuffer, 3);
    crowd.press();
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Gate gate;
    gate.hold_up(stream);
    copy_in(stream, a.at(), b.at());
    OK(cuMemUnmap, p, kBuffer);
    map(p + kBuffer, kBuffer, handle);
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(a.holds(2));
    EXPECT(reads(p + kBuffer, kBuffer, 3));
    OK(cuMemUnmap, p + kBuffer, kBuffer);
    OK(cuMemRelease, handle);
}

FAMILY_TEST("own mappings: addresses that a thread gives back are mapped by the next that is given them") {
    const Gpu gpu;
    const CUdeviceptr wanted = reserve(kGranule);
    OK(cuMemAddressFree, wanted, kGranule);
    const auto work = [&] {
        OK(cuCtxSetCurrent, gpu.context);
        const CUmemGenericAllocationHandle handle = create(kGranule);
        for (int round = 0; round < 2000; ++round) {
            CUdeviceptr address = 0;
            OK(cuMemAddressReserve, &address, kGranule, 0, wanted, 0);
            OK(cuMemMap, address, kGranule, 0, handle, 0);
            OK(cuMemUnmap, address, kGranule);
            OK(cuMemAddressFree, address, kGranule);
        }
        OK(cuMemRelease, handle);
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
}

// Three handles in a row, the middle one the driver's.
BODY(failing_unmap) {
    const Gpu gpu;
    constexpr std::size_t kSmall = 64 << 10;
    const std::size_t bytes[] = {4 * kSmall, kSmall, 4 * kSmall};
    const CUdeviceptr address = reserve(9 * kSmall);
    CUmemGenericAllocationHandle handles[3];
    CUdeviceptr at = address;
    for (int i = 0; i < 3; ++i) {
        handles[i] = create(bytes[i]);
        map(at, bytes[i], handles[i]);
        at += bytes[i];
    }
    write(address, 9 * kSmall, 1);
    const CUresult first = CU(cuMemUnmap)(address, 9 * kSmall);
    if (first != CUDA_SUCCESS) {
        EXPECT(first == CUDA_ERROR_UNKNOWN);
        // As if it had not been made.
        EXPECT(reads(address, 9 * kSmall, 1));
        OK(cuMemUnmap, address, 9 * kSmall);
    }
    OK(cuMemAddressFree, address, 9 * kSmall);
    for (const CUmemGenericAllocationHandle handle : handles) OK(cuMemRelease, handle);
}

TEST_CASE("own mappings: a range that the program unmaps is unmapped whole, or stays") {
    for (int nth = 1; nth <= 12; ++nth) {
        CAPTURE(nth);
        run_both("failing_unmap", Driver::Simulated,
                 {{"SIMCUDA_FAIL", "cuMemUnmap:" + std::to_string(nth) + "=999"}, {"LMS_THRESHOLD", "128K"}});
    }
}
