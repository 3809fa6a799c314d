// Copies that the host waits for, and those within the device, of what is out: they leave it there, whether
// its address leads to its host copy or not. Every byte is looked at.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"
#include "tests/support/process.h"

using namespace rig;

namespace {

using Bytes = std::vector<std::uint8_t>;

CUdeviceptr unified(void* host) {
    return reinterpret_cast<CUdeviceptr>(host);
}

// Calls `copy` with `buffer` out, and looks whether it still is.
template <typename Copy>
void stays_out(const Buffer& buffer, Copy&& copy) {
    EXPECT(buffer.evicted());
    copy();
    EXPECT(buffer.evicted());
}

void copy_bytes(Bytes& to, std::size_t at, const Bytes& from, std::size_t from_at, std::size_t bytes) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_at), bytes,
                to.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

FAMILY_TEST("copies in place: linear ones from and to the host, of whole buffers and across chunks") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    Bytes host(kBuffer);
    Bytes expected = pattern(kBuffer, 1);
    void* pinned = nullptr;
    OK(cuMemAllocHost_v2, &pinned, kBuffer);
    crowd.evict(a);
    stays_out(a, [&] { OK(cuMemcpyDtoH_v2, host.data(), a.at(), kBuffer); });
    EXPECT(host == expected);
    host = expected = pattern(kBuffer, 2);
    stays_out(a, [&] { OK(cuMemcpyHtoD_v2_ptds, a.at(), host.data(), kBuffer); });
    std::memset(pinned, 0, kBuffer);
    stays_out(a, [&] { OK(cuMemcpyDtoH_v2_ptds, pinned, a.at(), kBuffer); });
    EXPECT(std::memcmp(pinned, expected.data(), kBuffer) == 0);
    // From 3 bytes into its memory to 5 before the end.
    const Bytes other = pattern(kBuffer, 3);
    std::memcpy(pinned, other.data(), kBuffer);
    stays_out(a, [&] { OK(cuMemcpy, a.at(3), unified(pinned), kBuffer - 8); });
    copy_bytes(expected, 3, other, 0, kBuffer - 8);
    stays_out(a, [&] { OK(cuMemcpy_ptds, unified(pinned), a.at(), kBuffer); });
    EXPECT(std::memcmp(pinned, expected.data(), kBuffer) == 0);
    std::fill(host.begin(), host.end(), 0);
    stays_out(a, [&] { OK(cuMemcpy_ptds, unified(host.data() + 7), a.at(7), kBuffer - 7); });
    EXPECT(std::equal(host.begin() + 7, host.end(), expected.begin() + 7));
    // Kernels get what was written there.
    EXPECT(launch("add", kWords, nullptr, a.at(), a.at(), 0u, kWords) == CUDA_SUCCESS);
    EXPECT(a.resident());
    EXPECT(a.read() == expected);
    // Half in, half out.
    crowd.evict_half(a);
    OK(cuMemcpyHtoD_v2, a.at(1), other.data(), kBuffer - 2);
    copy_bytes(expected, 1, other, 0, kBuffer - 2);
    EXPECT(a.read() == expected);
    EXPECT(on_device(a.at(), kBuffer / 2));
    EXPECT(off_device(a.at(kBuffer / 2), kBuffer / 2));
    OK(cuMemFreeHost, pinned);
}

namespace {

// Rows that no chunk ends between, in a buffer: with `Copy`'s fields, from or to packed host memory.
template <typename Copy>
struct Rows {
    static constexpr std::size_t kWidth = 30'011;
    static constexpr std::size_t kPitch = 40'003;
    static constexpr std::size_t kX = 9;
    static constexpr std::size_t kCount = 12;
    static constexpr std::size_t kSlices = 2;

    Rows(const Buffer& buffer, Bytes& host, bool to_device) {
        copy.WidthInBytes = kWidth;
        copy.Height = kCount;
        if constexpr (requires { copy.Depth; }) {
            copy.Depth = kSlices;
            copy.Height = copy.srcHeight = copy.dstHeight = kCount / kSlices;
        }
        copy.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        copy.srcHost = copy.dstHost = host.data();
        copy.srcDevice = copy.dstDevice = buffer.at();
        // The packed side's pitch is the width, said or not.
        copy.srcPitch = to_device ? 0 : kPitch;
        copy.dstPitch = to_device ? kPitch : kWidth;
        (to_device ? copy.dstXInBytes : copy.srcXInBytes) = kX;
        if constexpr (requires { copy.srcContext; }) {
            OK(cuCtxGetCurrent, &copy.srcContext);
            copy.dstContext = copy.srcContext;
        }
    }
    Copy copy{};
};

template <typename Copy, typename Call>
void check_rows(const Buffer& a, Bytes& expected, std::uint32_t seed, Call&& call) {
    using R = Rows<Copy>;
    Bytes host = pattern(R::kWidth * R::kCount, seed);
    const R in(a, host, true);
    stays_out(a, [&] { call(in.copy); });
    for (std::size_t row = 0; row < R::kCount; ++row)
        copy_bytes(expected, row * R::kPitch + R::kX, host, row * R::kWidth, R::kWidth);
    EXPECT(a.read() == expected);
    const Bytes written = host;
    std::fill(host.begin(), host.end(), 0);
    const R out(a, host, false);
    stays_out(a, [&] { call(out.copy); });
    EXPECT(host == written);
}

}  // namespace

FAMILY_TEST("copies in place: 2D and 3D ones whose rows begin in one chunk and end in the next") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    Bytes expected = pattern(kBuffer, 1);
#define ROWS_CALL(name, Copy, seed) check_rows<Copy>(a, expected, seed, [](const Copy& c) { OK(name, &c); })
    ROWS_CALL(cuMemcpy2D_v2, CUDA_MEMCPY2D, 2);
    ROWS_CALL(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, 3);
    ROWS_CALL(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, 4);
    ROWS_CALL(cuMemcpy3D_v2, CUDA_MEMCPY3D, 5);
    ROWS_CALL(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, 6);
    ROWS_CALL(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, 7);

    // Neither side says its pitch or the height of its slices.
    CUDA_MEMCPY3D packed{};
    Bytes host(kBuffer);
    packed.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    packed.srcDevice = a.at();
    packed.dstMemoryType = CU_MEMORYTYPE_HOST;
    packed.dstHost = host.data();
    packed.WidthInBytes = kBuffer / 8;
    packed.Height = packed.Depth = 2;
    packed.srcZ = packed.dstZ = 1;
    stays_out(a, [&] { OK(cuMemcpy3D_v2, &packed); });
    EXPECT(std::equal(host.begin() + kBuffer / 4, host.begin() + 3 * kBuffer / 4,
                      expected.begin() + kBuffer / 4));
    EXPECT(std::count(host.begin(), host.begin() + kBuffer / 4, 0) == kBuffer / 4);
}

// The host does not wait for these.
FAMILY_TEST("copies in place: those within the device bring in, and are not waited for") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    CUdeviceptr unmanaged = 0;
    constexpr std::size_t kSmall = 12 << 10;
    OK(cuMemAlloc_v2, &unmanaged, kSmall);
    for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
    EXPECT(a.evicted() && b.evicted());
    Gate gate;
    gate.hold_up(CU_STREAM_LEGACY);
    OK(cuMemcpyDtoD_v2, unmanaged, a.at(kBuffer / 2 - 100), kSmall);
    OK(cuMemcpyDtoD_v2, b.at(), a.at(), kBuffer);
    OK(cuMemcpy, c.at(1), b.at(), kBuffer - 1);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, CU_STREAM_LEGACY);
    gate.open();
    const Bytes one = pattern(kBuffer, 1);
    Bytes expected = pattern(kBuffer, 3);
    copy_bytes(expected, 1, one, 0, kBuffer - 1);
    EXPECT(a.read() == one);
    EXPECT(b.read() == one);
    EXPECT(c.read() == expected);
    Bytes small(kSmall);
    OK(cuMemcpyDtoH_v2, small.data(), unmanaged, kSmall);
    EXPECT(std::equal(small.begin(), small.end(), one.begin() + kBuffer / 2 - 100));
    OK(cuMemFree_v2, unmanaged);
}

// More buffers than the GPU has room for, written and read by the host alone.
BODY(host_only) {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 14; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    for (std::uint32_t i = 0; i < 14; ++i) EXPECT(buffers[i]->holds(i));
    EXPECT(buffers.front()->resident());
    EXPECT(buffers.back()->evicted());
}

TEST_CASE("copies in place: what only the host writes and reads never moves") {
    for (const char* host_mapping : {"1", "0"}) {
        CAPTURE(host_mapping);
        const std::string stats = support::scratch_file("stats.json");
        CHECK(run("host_only", Driver::Simulated, {{"SIMCUDA_HOST_VMM", host_mapping}, {"LMS_STATS", stats}})
                  .failures == "");
        const auto counters = nlohmann::json::parse(support::read_file(stats), nullptr, false);
        REQUIRE(counters.is_object());
        CHECK(counters["allocations"] == 14);
        CHECK(counters["fills"] == 0);
        CHECK(counters["evictions"] == 0);
        CHECK(counters["peak_host_bytes"] >= 3 * kMiB);
    }
}

// Where the host has no room for it, it comes in.
BODY(host_full) {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 10; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT(buffers[i]->holds(i));
}

TEST_CASE("copies in place: with the host limit reached they still copy") {
    CHECK(run("host_full", Driver::Simulated, {{"SIMCUDA_HOST_VMM", "0"}, {"LMS_HOST_LIMIT", "1536K"}})
              .failures == "");
}

// The legacy stream's order: after what blocking streams were given before, and before what comes after. A
// thread's own stream waits for the legacy one.
BODY(in_order) {
    const Gpu gpu;
    CUstream blocking = nullptr;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    crowd.bring_in(b);
    EXPECT(a.evicted());
    void* pinned = nullptr;
    OK(cuMemAllocHost_v2, &pinned, kBuffer);
    std::memcpy(pinned, pattern(kBuffer, 3).data(), kBuffer);
    const auto after_a_while = [&](CUstream stream, auto&& copy) {
        Gate gate;
        gate.hold_up(stream);
        // The host memory is in use until the gate opens.
        OK(cuMemcpyHtoDAsync_v2, b.at(), pinned, kBuffer, stream);
        std::thread opener([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            gate.open();
        });
        copy();
        OK(cuStreamSynchronize, stream);
        opener.join();
    };
    after_a_while(blocking, [&] { stays_out(a, [&] { OK(cuMemcpyDtoH_v2, pinned, a.at(), kBuffer); }); });
    EXPECT(std::memcmp(pinned, pattern(kBuffer, 1).data(), kBuffer) == 0);
    EXPECT(b.holds(3));
    std::memcpy(pinned, pattern(kBuffer, 6).data(), kBuffer);
    after_a_while(CU_STREAM_LEGACY,
                  [&] { stays_out(a, [&] { OK(cuMemcpyDtoH_v2_ptds, pinned, a.at(), kBuffer); }); });
    EXPECT(std::memcmp(pinned, pattern(kBuffer, 1).data(), kBuffer) == 0);
    EXPECT(b.holds(6));

    std::memcpy(pinned, pattern(kBuffer, 4).data(), kBuffer);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = a.at();
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = pinned;
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 1 << 10;
    rows.Height = kBuffer >> 10;
    after_a_while(blocking, [&] { stays_out(a, [&] { OK(cuMemcpy2D_v2, &rows); }); });
    EXPECT(std::memcmp(pinned, pattern(kBuffer, 1).data(), kBuffer) == 0);
    EXPECT(b.holds(4));

    stays_out(a, [&] { OK(cuMemcpyHtoD_v2, a.at(), pattern(kBuffer, 5).data(), kBuffer); });
    EXPECT(launch("add", kWords, blocking, b.at(), a.at(), 0u, kWords) == CUDA_SUCCESS);
    EXPECT(b.holds(5));
    OK(cuMemFreeHost, pinned);
}

TEST_CASE("copies in place: in order with what was submitted before and after") {
    // Of copies from host to host, which they become, the driver promises no order.
    for (const char* perverse : {"", "host-copies-early"}) {
        CAPTURE(perverse);
        run_both("in_order", Driver::Simulated, {{"SIMCUDA_PERVERSE", perverse}});
    }
}

// While a copy waits for what comes before it, others may want the same buffer on the device.
BODY(waiting_copy) {
    const Gpu gpu;
    CUstream blocking = nullptr;
    OK(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
    const CUstream other = new_stream();
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    Bytes host(kBuffer);
    Gate gate;
    gate.hold_up(blocking);
    std::atomic<int> done = 0;
    std::thread reader([&] {
        OK(cuCtxSetCurrent, gpu.context);
        OK(cuMemcpyDtoH_v2, host.data(), a.at(), kBuffer);
        ++done;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::thread user([&] {
        OK(cuCtxSetCurrent, gpu.context);
        bring_in(a.at(), kBuffer, other);
        ++done;
    });
    // It can only be seen to come too early.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT(done == 0);
    EXPECT(a.evicted());
    gate.open();
    reader.join();
    user.join();
    OK(cuStreamSynchronize, other);
    EXPECT(host == pattern(kBuffer, 1));
    EXPECT(a.resident());
    EXPECT(a.holds(1));
}

TEST_CASE("copies in place: what they have yet to read does not move") {
    CHECK(run("waiting_copy", Driver::Simulated, {{"SIMCUDA_HOST_VMM", "0"}}).failures == "");
}

FAMILY_TEST("copies in place: errors are CUDA's, and leave everything as it is") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict_half(a);
    Bytes host(2 * kBuffer, 5);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2, nullptr, a.at(), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, a.at(), nullptr, kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2, host.data(), a.at(kBuffer / 4), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, a.at(kBuffer - 1), host.data(), 2);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy, a.at(), unified(host.data()), 2 * kBuffer);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = a.at();
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = host.data();
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 1 << 10;
    rows.Height = (kBuffer >> 10) + 1;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, &rows);
    rows.dstPitch = 1;
    rows.Height = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, &rows);
    EXPECT(host == Bytes(2 * kBuffer, 5));
    OK(cuMemcpyDtoH_v2, host.data(), a.at(), 0);
    EXPECT(a.holds(1));
}

FAMILY_TEST("copies in place: what a capture forbids any copy it forbids them, by the same name") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    Bytes host(kBuffer, 5);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    for (const bool to_host : {true, false}) {
        OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        if (to_host)
            FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyDtoH_v2, host.data(), a.at(), kBuffer);
        else
            FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyHtoD_v2, a.at(), host.data(), kBuffer);
        CUgraph graph = nullptr;
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
    }
    EXPECT(host == Bytes(kBuffer, 5));
    EXPECT(a.holds(1));
}

FAMILY_TEST("copies in place: host memory that is page-locked in part is refused as a whole") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    constexpr std::size_t kPart = kBuffer / 4;
    auto* const host = static_cast<std::uint8_t*>(std::aligned_alloc(4096, kBuffer));
    std::fill_n(host, kBuffer, 5);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = host;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = a.at();
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 1 << 10;
    rows.Height = kBuffer >> 10;
    OK(cuMemHostRegister_v2, host, kPart, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, a.at(), host, kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2, host, a.at(), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, &rows);
    EXPECT(std::count(host, host + kBuffer, 5) == kBuffer);
    EXPECT(a.holds(1));
    // What follows without a gap may be another's.
    OK(cuMemHostRegister_v2, host + kPart, kBuffer - kPart, 0);
    crowd.evict(a);
    OK(cuMemcpyHtoD_v2, a.at(), host, kBuffer);
    EXPECT(a.read() == Bytes(kBuffer, 5));
    OK(cuMemHostUnregister, host);
    OK(cuMemHostUnregister, host + kPart);
    std::free(host);
}

FAMILY_TEST("copies in place: addresses uploaded into a buffer that is out name buffers") {
    const Gpu gpu;
    const Buffer table(kBuffer, 1);
    const Buffer pointed(kBuffer, 2);
    const Buffer out(kBuffer, 3);
    Crowd crowd;
    crowd.evict(pointed);
    crowd.evict(table);
    EXPECT(pointed.evicted());
    const CUdeviceptr words[] = {0, pointed.at(16)};
    stays_out(table, [&] { OK(cuMemcpyHtoD_v2, table.at(256), words, sizeof words); });
    EXPECT(launch("add", kWords, nullptr, out.at(), table.at(), 0u, kWords) == CUDA_SUCCESS);
    EXPECT(pointed.resident());
    Bytes expected = pattern(kBuffer, 1);
    std::memcpy(expected.data() + 256, words, sizeof words);
    EXPECT(out.read() == expected);
}
