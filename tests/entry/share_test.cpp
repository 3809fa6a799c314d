// Managed memory given to other processes, devices and network cards: what can be given stays on the GPU, the
// rest is refused with a line that says what to do.
#include <algorithm>
#include <memory>

#include "tests/entry/gate.h"
#include "tests/entry/overlay/record.h"
#include "tests/entry/own.h"

using namespace rig;

namespace {

int exports() {
    return overlay::record().exports;
}

CUdeviceptr small_buffer() {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2, &address, 4096);
    return address;
}

// `give` takes a buffer that is out; it is then on the GPU for good, whole, and what kernels make of it is
// what it reads as.
template <typename Give>
void check_stays(Give&& give) {
    auto* const a = new Buffer(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(*a);
    give(*a);
    EXPECT(a->resident());
    for (int i = 0; i < 4; ++i) crowd.press();
    EXPECT(a->resident());
    EXPECT(a->holds(1));
    const std::uint32_t zero = 0;
    const auto words = static_cast<std::uint32_t>(kBuffer / 4);
    const CUdeviceptr to = a->at();
    const CUdeviceptr from = b.at();
    EXPECT(launch("add", words, nullptr, to, from, zero, words) == CUDA_SUCCESS);
    crowd.press();
    EXPECT(a->resident());
    EXPECT(a->holds(2));
    // Freed, its memory serves others, and so does its address.
    delete a;
    const Buffer all(3 * kMiB, 3);
    EXPECT(all.holds(3));
    std::vector<std::unique_ptr<Buffer>> many;
    while (many.size() < 24) many.push_back(std::make_unique<Buffer>(kBuffer));
    EXPECT(std::ranges::any_of(many, [&](const auto& buffer) { return buffer->at() == to; }));
}

}  // namespace

BODY(share_refused) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    CUipcMemHandle handle{};
    CUmemPoolPtrExportData data{};
    for (int i = 0; i < 2; ++i) {
        FAILS(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle, &handle, a.at());
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer, &data, a.at(16));
    }
    // What no buffer has is nobody's to share.
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle, &handle, a.at(kBuffer));
    EXPECT(exports() == 0);
    EXPECT(a.holds(1));
    // What is not managed is the driver's to give.
    OK(cuIpcGetMemHandle, &handle, small_buffer());
    OK(cuMemPoolExportPointer, &data, small_buffer());
    EXPECT(exports() == 2);
}

TEST_CASE("share: handles for other processes are refused, each with one line" *
          doctest::test_suite("share-refused")) {
    const std::string err = run_both("share_refused", Driver::Overlay, {});
    for (const std::string call : {"cuIpcGetMemHandle", "cuMemPoolExportPointer"}) {
        CAPTURE(call);
        const std::string line = "lms: " + call + " is not possible for managed memory";
        const auto first = err.find(line);
        REQUIRE(first != std::string::npos);
        CHECK(err.find("LMS_THRESHOLD", first) != std::string::npos);
        // Once in each of the two processes.
        const auto second = err.find(line, first + 1);
        REQUIRE(second != std::string::npos);
        CHECK(err.find(line, second + 1) == std::string::npos);
    }
}

OVERLAY_TEST("share: a range with a dma-buf handle stays on the GPU", "share-dma-buf") {
    const Gpu gpu;
    check_stays([](const Buffer& a) {
        int descriptor = -1;
        OK(cuMemGetHandleForAddressRange, &descriptor, a.at(), a.bytes(), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
           0);
    });
}

OVERLAY_TEST("share: a range bound to a multicast object or an endpoint stays on the GPU",
             "share-multicast") {
    const Gpu gpu;
    check_stays([](const Buffer& a) { OK(cuMulticastBindAddr, 1, 0, a.at(), a.bytes(), 0); });
    check_stays([](const Buffer& a) { OK(cuMulticastBindAddr_v2, 1, 0, 0, a.at(), a.bytes(), 0); });
    check_stays([](const Buffer& a) {
        OK(cuLogicalEndpointBindAddr, 1, 0, 0, reinterpret_cast<void*>(a.at()), a.bytes(), 0);
    });
}

OVERLAY_TEST("share: a buffer whose operations are made synchronous stays on the GPU, as a whole",
             "share-synchronous") {
    const Gpu gpu;
    check_stays([](const Buffer& a) {
        const unsigned on = 1;
        OK(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a.at(kBuffer / 2));
    });
    const Buffer a(kBuffer, 1);
    const unsigned on = 1;
    OK(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a.at(16));
    for (std::size_t offset = 0; offset < kBuffer; offset += kGranule) {
        unsigned value = 0;
        OK(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a.at(offset));
        EXPECT(value == 1);
    }
}

BODY(share_larger_than_the_gpu) {
    const Gpu gpu;
    const Buffer large(6 * kMiB, 1);
    int descriptor = -1;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemGetHandleForAddressRange, &descriptor, large.at(), large.bytes(),
          CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    EXPECT(exports() == 0);
    EXPECT(large.holds(1));
}

TEST_CASE("share: what does not fit on the GPU at once cannot be given, and nothing is lost") {
    run_both("share_larger_than_the_gpu", Driver::Overlay, {});
}

BODY(share_driver_refuses) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    int descriptor = -1;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemGetHandleForAddressRange, &descriptor, a.at(), a.bytes(),
          CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    // Not kept: it goes out as before.
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
}

TEST_CASE("share: what the driver refuses for managed memory is said, and not kept") {
    const std::string err = run_both("share_driver_refuses", Driver::Simulated, {});
    CHECK(err.find("lms: cuMemGetHandleForAddressRange is not possible for managed memory") !=
          std::string::npos);
}

// Far beyond its buffer, where nothing is looked for.
FAMILY_TEST("share: a range that nothing has is refused at once") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    int descriptor = -1;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemGetHandleForAddressRange, &descriptor, a.at(), std::size_t{1} << 62,
          CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    EXPECT(a.holds(1));
}

BODY(share_and_free_again_and_again) {
    const Gpu gpu;
    for (std::uint32_t round = 0; round < 200; ++round) {
        const Buffer a(kBuffer, round);
        const unsigned on = 1;
        OK(cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a.at());
        int descriptor = -1;
        OK(cuMemGetHandleForAddressRange, &descriptor, a.at(), a.bytes(), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
           0);
        EXPECT(a.holds(round));
    }
}

TEST_CASE("share: the addresses of what was given and is freed are given out again") {
    run_both("share_and_free_again_and_again", Driver::Overlay, {{"LMS_HOST_LIMIT", "8M"}});
}

// Launches of other threads, and calls that name the handle, come back while the export waits.
FAMILY_TEST("share: who exports a handle that unfinished work uses holds nobody up") {
    const Gpu gpu;
    const CUmemGenericAllocationHandle handle = create_shareable(kBuffer);
    const CUdeviceptr address = reserve(kBuffer);
    map(address, kBuffer, handle);
    write(address, kBuffer, 1);
    Crowd crowd;
    crowd.press();
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemsetD8Async, address, 5, kBuffer, stream);
    std::atomic<bool> exported{false};
    std::thread exporting([&] {
        OK(cuCtxSetCurrent, gpu.context);
        EXPECT(share(handle) == CUDA_SUCCESS);
        exported = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int i = 0; i < 4; ++i) crowd.press();
    CUmemAllocationProp properties{};
    OK(cuMemGetAllocationPropertiesFromHandle, &properties, handle);
    EXPECT(!exported);
    gate.open();
    exporting.join();
    std::vector<std::uint8_t> data(kBuffer);
    OK(cuMemcpyDtoH_v2, data.data(), address, kBuffer);
    EXPECT(data == std::vector<std::uint8_t>(kBuffer, 5));
}
