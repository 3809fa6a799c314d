// Page-locking memory of the calling thread's own stack.
#include <alloca.h>

#include <cstring>
#include <thread>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

constexpr std::size_t kStackPage = 4096;

// Deep enough that the stack must grow.
unsigned descend(unsigned depth) {
    volatile std::uint8_t frame[kStackPage];
    frame[0] = 1;
    return depth == 0 ? 0 : frame[0] + descend(depth - 1);
}

// Registers `bytes` of a frame that has `Offset` bytes below them, so that the frames of the calls lie in
// many places of the same page.
template <std::size_t Offset>
[[gnu::noinline]] void register_own_frame() {
    struct {
        std::uint8_t below[Offset];
        std::uint8_t data[2 * kStackPage];
    } frame;
    const auto expected = pattern(sizeof frame.data, Offset);
    std::memset(frame.below, Offset % 251, sizeof frame.below);
    std::memcpy(frame.data, expected.data(), sizeof frame.data);
    const auto address = reinterpret_cast<CUdeviceptr>(frame.data);
    for (int round = 0; round < 20; ++round) {
        OK(cuMemHostRegister, frame.data, sizeof frame.data, 0);
        EXPECT(descend(300) == 300);
        EXPECT(read_back(address, sizeof frame.data) == expected);
        OK(cuMemHostUnregister, frame.data);
        EXPECT(std::memcmp(frame.data, expected.data(), sizeof frame.data) == 0);
        for (const std::uint8_t byte : frame.below) EXPECT(byte == Offset % 251);
    }
}

void register_frames() {
    register_own_frame<16>();
    register_own_frame<512>();
    register_own_frame<1536>();
    register_own_frame<2048>();
    register_own_frame<3072>();
    register_own_frame<4096>();
}

SIM_TEST("host memory: a thread may register memory of its own stack", {}) {
    const Gpu gpu;
    register_frames();
    std::thread([&] {
        OK(cuCtxSetCurrent, gpu.context);
        register_frames();
    }).join();
}

// Registers what lies at the top of the lowest page that the stack has: one never used before, far below.
[[gnu::noinline]] void register_lowest_page() {
    const auto register_memory = CU(cuMemHostRegister);
    const auto unregister_memory = CU(cuMemHostUnregister);
    constexpr std::size_t kFromTop = 64;
    const auto far = reinterpret_cast<std::uint64_t>(alloca(4 << 20));
    auto* data = static_cast<std::uint8_t*>(alloca(kStackPage + (far + kFromTop) % kStackPage));
    std::memset(data, 7, kFromTop);
    EXPECT(register_memory(data, kFromTop, 0) == CUDA_SUCCESS);
    EXPECT(descend(300) == 300);
    EXPECT(unregister_memory(data) == CUDA_SUCCESS);
    EXPECT(data[0] == 7);
}

SIM_TEST("host memory: the stack still grows when its lowest page is registered", {}) {
    const Gpu gpu;
    std::vector<std::uint8_t> heap(kStackPage);
    OK(cuMemHostRegister, heap.data(), heap.size(), 0);
    OK(cuMemHostUnregister, heap.data());
    register_lowest_page();
}

SIM_TEST("host memory: no room to register one's own stack", {{"SIMCUDA_HOST_MEMORY", "1M"}}) {
    const Gpu gpu;
    std::uint8_t data[2 << 20];
    const auto expected = pattern(sizeof data, 1);
    std::memcpy(data, expected.data(), sizeof data);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostRegister, data, sizeof data, 0);
    EXPECT(std::memcmp(data, expected.data(), sizeof data) == 0);
    OK(cuMemHostRegister, data, kStackPage, 0);
    OK(cuMemHostUnregister, data);
}

}  // namespace
