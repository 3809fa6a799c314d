// All copies and sets, with managed sides that are on the GPU, out, and half out, and with memory that is not
// managed, pinned and pageable. Every byte of all of them is looked at.
#include <cstring>
#include <functional>
#include <span>

#include "tests/entry/gate.h"

using namespace rig;

namespace {

// What is copied: a window across the middle of a buffer, where half of it ends; small enough that memory of
// its size is not managed.
constexpr std::size_t kWindow = 12 << 10;
constexpr std::size_t kAt = kBuffer / 2 - kWindow / 3;

enum class Side { Resident, Evicted, Half, Unmanaged, Pinned, Pageable };
constexpr Side kDeviceSides[] = {Side::Resident, Side::Evicted, Side::Half, Side::Unmanaged};
constexpr Side kHostSides[] = {Side::Pinned, Side::Pageable};

// Memory of one kind with a window in it, and what it is to hold.
class Memory {
  public:
    Memory(Side side, std::uint32_t seed) : side_(side) {
        if (managed()) {
            buffer_ = std::make_unique<Buffer>(kBuffer, seed);
            window_ = buffer_->at(kAt);
            expected_ = pattern(kBuffer, seed);
            return;
        }
        expected_ = pattern(kWindow, seed);
        void* host = nullptr;
        if (side == Side::Unmanaged) {
            OK(cuMemAlloc_v2, &window_, kWindow);
            OK(cuMemcpyHtoD_v2, window_, expected_.data(), kWindow);
            OK(cuStreamSynchronize, nullptr);
            return;
        }
        if (side == Side::Pinned) {
            OK(cuMemAllocHost_v2, &host, kWindow);
        } else {
            pageable_.resize(kWindow);
            host = pageable_.data();
        }
        std::memcpy(host, expected_.data(), kWindow);
        window_ = reinterpret_cast<CUdeviceptr>(host);
    }
    ~Memory() {
        if (side_ == Side::Pinned) CU(cuMemFreeHost)(host());
        if (side_ == Side::Unmanaged) CU(cuMemFree_v2)(window_);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    bool on_host() const { return side_ == Side::Pinned || side_ == Side::Pageable; }
    CUdeviceptr window() const { return window_; }
    void* host() const { return reinterpret_cast<void*>(window_); }
    std::uint8_t* expected() { return expected_.data() + (managed() ? kAt : 0); }

    void place(Crowd& crowd) {
        if (side_ == Side::Evicted) crowd.evict(*buffer_);
        if (side_ == Side::Half) crowd.evict_half(*buffer_);
        if (side_ == Side::Resident) crowd.bring_in(*buffer_);
    }
    bool as_expected() const {
        if (managed()) return buffer_->read() == expected_;
        std::vector<std::uint8_t> found(kWindow);
        if (on_host()) {
            std::memcpy(found.data(), host(), kWindow);
        } else {
            OK(cuMemcpyDtoH_v2, found.data(), window_, kWindow);
        }
        return found == expected_;
    }

  private:
    bool managed() const { return side_ <= Side::Half; }

    Side side_;
    CUdeviceptr window_ = 0;
    std::unique_ptr<Buffer> buffer_;
    std::vector<std::uint8_t> pageable_;
    std::vector<std::uint8_t> expected_;
};

// Which bytes of a window: all, or every other row.
struct Shape {
    std::size_t width;
    std::size_t pitch;
    std::size_t rows;
};
constexpr Shape kLine{kWindow, kWindow, 1};
constexpr Shape kRows{1 << 10, 3 << 9, 8};

struct Form {
    const char* name;
    Shape shape;
    std::function<void(Memory& to, Memory& from, CUstream stream)> copy;
};

CUcontext current() {
    CUcontext context = nullptr;
    OK(cuCtxGetCurrent, &context);
    return context;
}

// A 2D or 3D copy of kRows, in two slices if it has any.
template <typename Copy>
Copy rows_of(Memory& to, Memory& from) {
    Copy c{};
    c.srcMemoryType = from.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    c.dstMemoryType = to.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    c.srcHost = from.host();
    c.dstHost = to.host();
    c.srcDevice = from.window();
    c.dstDevice = to.window();
    c.srcPitch = c.dstPitch = kRows.pitch;
    c.WidthInBytes = kRows.width;
    c.Height = kRows.rows;
    if constexpr (requires { c.srcContext; }) c.srcContext = c.dstContext = current();
    if constexpr (requires { c.Depth; }) {
        c.Depth = 2;
        c.Height = c.srcHeight = c.dstHeight = kRows.rows / 2;
    }
    return c;
}

void check_copies(const std::vector<Form>& forms, std::span<const Side> to_sides,
                  std::span<const Side> from_sides) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Crowd crowd;
    std::uint32_t seed = 0;
    std::size_t shift = 0;
    // Each form with each kind of side; over the forms, in all pairs.
    for (const Form& form : forms) {
        const std::size_t count = std::max(to_sides.size(), from_sides.size());
        for (std::size_t i = 0; i < count; ++i) {
            Memory to(to_sides[i % to_sides.size()], ++seed);
            Memory from(from_sides[(i + shift) % from_sides.size()], ++seed);
            from.place(crowd);
            to.place(crowd);
            form.copy(to, from, stream);
            OK(cuCtxSynchronize);
            for (std::size_t row = 0; row < form.shape.rows; ++row) {
                std::memcpy(to.expected() + row * form.shape.pitch, from.expected() + row * form.shape.pitch,
                            form.shape.width);
            }
            if (!to.as_expected()) failed(__FILE__, __LINE__, std::string(form.name) + ": destination");
            if (!from.as_expected()) failed(__FILE__, __LINE__, std::string(form.name) + ": source");
        }
        ++shift;
    }
}

#define FORM(call, shape, ...)                                                                          \
    Form {                                                                                              \
#call, shape,                                                                                   \
            [](Memory & to, Memory & from, [[maybe_unused]] CUstream stream) { OK(call, __VA_ARGS__); } \
    }
#define ROWS_FORM(call, Copy, ...)                                                                   \
    Form {                                                                                           \
#call, kRows, [](Memory& to, Memory& from, [[maybe_unused]] CUstream stream) {                     \
            const Copy copy = rows_of<Copy>(to, from);                                                     \
            OK(call, &copy __VA_OPT__(, ) __VA_ARGS__);                                                    \
        } \
    }

// Those that take any sides.
std::vector<Form> any_forms() {
    return {FORM(cuMemcpy, kLine, to.window(), from.window(), kWindow),
            FORM(cuMemcpy_ptds, kLine, to.window(), from.window(), kWindow),
            FORM(cuMemcpyAsync, kLine, to.window(), from.window(), kWindow, stream),
            FORM(cuMemcpyAsync_ptsz, kLine, to.window(), from.window(), kWindow, stream),
            ROWS_FORM(cuMemcpy2D_v2, CUDA_MEMCPY2D),
            ROWS_FORM(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D),
            ROWS_FORM(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D),
            ROWS_FORM(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D),
            ROWS_FORM(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, stream),
            ROWS_FORM(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, stream),
            ROWS_FORM(cuMemcpy3D_v2, CUDA_MEMCPY3D),
            ROWS_FORM(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D),
            ROWS_FORM(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, stream),
            ROWS_FORM(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, stream)};
}

template <typename... More>
std::vector<Form> with_any(More... more) {
    std::vector<Form> forms = any_forms();
    (forms.push_back(more), ...);
    return forms;
}

}  // namespace

FAMILY_TEST("copies: to the device from the host, any form and any sides", "copies-in") {
    check_copies(with_any(FORM(cuMemcpyHtoD_v2, kLine, to.window(), from.host(), kWindow),
                          FORM(cuMemcpyHtoD_v2_ptds, kLine, to.window(), from.host(), kWindow),
                          FORM(cuMemcpyHtoDAsync_v2, kLine, to.window(), from.host(), kWindow, stream),
                          FORM(cuMemcpyHtoDAsync_v2_ptsz, kLine, to.window(), from.host(), kWindow, stream)),
                 kDeviceSides, kHostSides);
}

FAMILY_TEST("copies: to the host from the device, any form and any sides", "copies-out") {
    check_copies(with_any(FORM(cuMemcpyDtoH_v2, kLine, to.host(), from.window(), kWindow),
                          FORM(cuMemcpyDtoH_v2_ptds, kLine, to.host(), from.window(), kWindow),
                          FORM(cuMemcpyDtoHAsync_v2, kLine, to.host(), from.window(), kWindow, stream),
                          FORM(cuMemcpyDtoHAsync_v2_ptsz, kLine, to.host(), from.window(), kWindow, stream)),
                 kHostSides, kDeviceSides);
}

FAMILY_TEST("copies: within the device, any form and any sides", "copies-within") {
    check_copies(
        with_any(
            FORM(cuMemcpyDtoD_v2, kLine, to.window(), from.window(), kWindow),
            FORM(cuMemcpyDtoD_v2_ptds, kLine, to.window(), from.window(), kWindow),
            FORM(cuMemcpyDtoDAsync_v2, kLine, to.window(), from.window(), kWindow, stream),
            FORM(cuMemcpyDtoDAsync_v2_ptsz, kLine, to.window(), from.window(), kWindow, stream),
            FORM(cuMemcpyPeer, kLine, to.window(), current(), from.window(), current(), kWindow),
            FORM(cuMemcpyPeer_ptds, kLine, to.window(), current(), from.window(), current(), kWindow),
            FORM(cuMemcpyPeerAsync, kLine, to.window(), current(), from.window(), current(), kWindow, stream),
            FORM(cuMemcpyPeerAsync_ptsz, kLine, to.window(), current(), from.window(), current(), kWindow,
                 stream),
            ROWS_FORM(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER), ROWS_FORM(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER),
            ROWS_FORM(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, stream),
            ROWS_FORM(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, stream)),
        kDeviceSides, kDeviceSides);
}

FAMILY_TEST("sets: any form and any side", "sets") {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Crowd crowd;
    std::uint32_t seed = 0;
    // `set(to, value, elements in a line, in a row)`, of elements of Value.
    const auto check = [&](auto value, Shape shape, auto&& set) {
        for (const Side side : kDeviceSides) {
            Memory to(side, ++seed);
            to.place(crowd);
            set(to.window(), shape.width / sizeof value);
            OK(cuCtxSynchronize);
            for (std::size_t row = 0; row < shape.rows; ++row) {
                for (std::size_t at = 0; at < shape.width; at += sizeof value)
                    std::memcpy(to.expected() + row * shape.pitch + at, &value, sizeof value);
            }
            EXPECT(to.as_expected());
        }
    };
    const auto check_width = [&]<typename Value>(Value v, auto&& line, auto&& line_async, auto&& rows,
                                                 auto&& rows_async) {
        check(v, kLine, [&](CUdeviceptr to, std::size_t n) { line(to, v, n); });
        check(v, kLine, [&](CUdeviceptr to, std::size_t n) { line_async(to, v, n, stream); });
        check(v, kRows, [&](CUdeviceptr to, std::size_t n) { rows(to, kRows.pitch, v, n, kRows.rows); });
        check(v, kRows,
              [&](CUdeviceptr to, std::size_t n) { rows_async(to, kRows.pitch, v, n, kRows.rows, stream); });
    };
#define SETS(bits, value, per_thread, per_thread_async)                          \
    check_width(                                                                 \
        value, [](auto... of) { OK(cuMemsetD##bits##_v2##per_thread, of...); },  \
        [](auto... of) { OK(cuMemsetD##bits##Async##per_thread_async, of...); }, \
        [](auto... of) { OK(cuMemsetD2D##bits##_v2##per_thread, of...); },       \
        [](auto... of) { OK(cuMemsetD2D##bits##Async##per_thread_async, of...); })
    SETS(8, std::uint8_t{0x5a}, , );
    SETS(16, std::uint16_t{0x5ab4}, , );
    SETS(32, std::uint32_t{0x5ab4c3d2}, , );
    SETS(8, std::uint8_t{0xa5}, _ptds, _ptsz);
    SETS(16, std::uint16_t{0xa54b}, _ptds, _ptsz);
    SETS(32, std::uint32_t{0xa54b3c2d}, _ptds, _ptsz);
}

// The GPU may hold a number of bytes that no element divides.
BODY(sets_in_parts_of_an_odd_limit) {
    const Gpu gpu;
    constexpr std::size_t kLarge = 6 * kMiB;
    constexpr std::size_t kBefore = 4 * 12345;
    const Buffer large(kLarge, 1);
    std::vector<std::uint8_t> expected = pattern(kLarge, 1);
    const auto check = [&](auto value, auto&& set) {
        constexpr std::size_t kElement = sizeof value;
        for (std::size_t at = kBefore; at < kLarge; at += kElement)
            std::memcpy(expected.data() + at, &value, kElement);
        EXPECT(set(large.at(kBefore), value, (kLarge - kBefore) / kElement) == CUDA_SUCCESS);
        OK(cuCtxSynchronize);
        EXPECT(large.read() == expected);
    };
#define SETS_IN_PARTS(bits, value)                                                   \
    check(value, [](auto... of) { return CU(cuMemsetD##bits##_v2)(of...); });        \
    check(static_cast<decltype(value)>(~value),                                      \
          [](auto... of) { return CU(cuMemsetD##bits##Async)(of..., nullptr); });    \
    check(value, [](auto to, auto v, std::size_t n) {                                \
        return CU(cuMemsetD2D##bits##_v2)(to, n * sizeof v, v, n, 1);                \
    });                                                                              \
    check(static_cast<decltype(value)>(~value), [](auto to, auto v, std::size_t n) { \
        return CU(cuMemsetD2D##bits##Async)(to, n * sizeof v, v, n, 1, nullptr);     \
    })
    SETS_IN_PARTS(8, std::uint8_t{0x5a});
    SETS_IN_PARTS(16, std::uint16_t{0x5ab4});
    SETS_IN_PARTS(32, std::uint32_t{0x5ab4c3d2});
}

TEST_CASE("sets: in parts, where the limit is no multiple of an element") {
    for (const char* limit : {"2.3M", "2.9M", "3.3M"}) {
        CAPTURE(limit);
        run_both("sets_in_parts_of_an_odd_limit", Driver::Simulated, {{"LMS_LIMIT", limit}});
    }
}

FAMILY_TEST("copies: the asynchronous ones stay so, whatever is out") {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    void* in = nullptr;
    void* out = nullptr;
    OK(cuMemAllocHost_v2, &in, kBuffer);
    OK(cuMemAllocHost_v2, &out, kBuffer);
    std::memcpy(in, pattern(kBuffer, 7).data(), kBuffer);
    for (const Buffer* buffer : {&a, &b, &c}) crowd.evict(*buffer);
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemcpyHtoDAsync_v2, a.at(), in, kBuffer, stream);
    OK(cuMemcpyDtoDAsync_v2, b.at(), c.at(), kBuffer, stream);
    OK(cuMemsetD8Async, c.at(), 5, kBuffer, stream);
    OK(cuMemcpyDtoHAsync_v2, out, a.at(), kBuffer, stream);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(std::memcmp(out, pattern(kBuffer, 7).data(), kBuffer) == 0);
    EXPECT(a.holds(7));
    EXPECT(b.holds(3));
    EXPECT(c.read() == std::vector<std::uint8_t>(kBuffer, 5));
}

// A trace tells of all work, so that none is passed on without a look, also where everything fits.
BODY(sets_past_the_end_while_a_trace_is_written) {
    const Gpu gpu;
    const Buffer a(2 * kMiB, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2, a.at(), 9, a.bytes() + kMiB);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async, a.at(), 9, a.bytes() + kMiB, nullptr);
    EXPECT(a.holds(1));
}

TEST_CASE("copies: what goes past the end of a buffer changes nothing, though a trace is written") {
    run_both("sets_past_the_end_while_a_trace_is_written", Driver::Simulated, {{"LMS_TRACE", "/dev/null"}});
}

// The GPU's address of it is none that the CPU can read.
FAMILY_TEST("copies: from write-combined host memory by either of its addresses") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    void* host = nullptr;
    OK(cuMemHostAlloc, &host, kBuffer, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED);
    CUdeviceptr device = 0;
    OK(cuMemHostGetDevicePointer_v2, &device, host, 0);
    std::uint32_t seed = 2;
    for (const CUdeviceptr from : {device, reinterpret_cast<CUdeviceptr>(host)}) {
        std::memcpy(host, pattern(kBuffer, seed).data(), kBuffer);
        OK(cuMemcpy, a.at(), from, kBuffer);
        EXPECT(a.holds(seed++));
        std::memcpy(host, pattern(kBuffer, seed).data(), kBuffer);
        OK(cuMemcpyDtoD_v2, a.at(), from, kBuffer);
        OK(cuCtxSynchronize);
        EXPECT(a.holds(seed++));
    }
    OK(cuMemFreeHost, host);
}
