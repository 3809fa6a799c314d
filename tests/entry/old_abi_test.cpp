// The forms of before CUDA 3.2, whose addresses and sizes have 32 bits: no managed buffer has such an
// address, so they are the driver's, but for those that tell how much memory there is.
#include <cstring>
#include <deque>

#include "tests/entry/overlay/record.h"
#include "tests/entry/rig.h"

using namespace rig;

BODY(old_levels) {
    const Gpu gpu;
    const Buffer a(kBuffer);
    unsigned free = 0;
    unsigned total = 0;
    OK(cuMemGetInfo, &free, &total);
    std::size_t free_now = 0;
    std::size_t total_now = 0;
    OK(cuMemGetInfo_v2, &free_now, &total_now);
    EXPECT(free == free_now);
    EXPECT(total == total_now);
    unsigned all = 0;
    OK(cuDeviceTotalMem, &all, gpu.device);
    EXPECT(all == 2 * kMiB);
    EXPECT(total == 2 * kMiB);
}

TEST_CASE("old forms: memory levels are those that the new forms tell") {
    run_both("old_levels", Driver::Simulated, {{"LMS_LIMIT", "2M"}});
}

BODY(old_levels_large) {
    const Gpu gpu;
    unsigned free = 0;
    unsigned total = 0;
    unsigned all = 0;
    OK(cuMemGetInfo, &free, &total);
    OK(cuDeviceTotalMem, &all, gpu.device);
    EXPECT(total == UINT32_MAX);
    EXPECT(all == UINT32_MAX);
}

TEST_CASE("old forms: more than 32 bits count is told as the most they do" *
          doctest::test_suite("old-levels")) {
    run_both("old_levels_large", Driver::Simulated, {{"LMS_MEMINFO", "enlarged"}, {"LMS_HOST_LIMIT", "8G"}});
}

FAMILY_TEST("old forms: allocations and copies are the driver's, and it says what it lacks") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    CUdeviceptr_v1 address = 0;
    using Allocate = CUresult (*)(CUdeviceptr_v1*, unsigned);
    const auto allocate = reinterpret_cast<Allocate>(function("cuMemAlloc"));
    const auto of_driver = reinterpret_cast<Allocate>(where::simulated("cuMemAlloc"));
    EXPECT(allocate(&address, kBuffer) == of_driver(&address, kBuffer));
    // No address of a managed buffer fits.
    EXPECT(a.at() > UINT32_MAX);
    EXPECT(a.holds(1));
}

// ---- launches whose parameters were set beforehand

namespace {

unsigned words() {
    return static_cast<unsigned>(kBuffer / 4);
}

// out = in + k by one of the old launches, of evicted buffers, each time others. `set` sets the two
// addresses.
template <typename Set, typename Launch>
void check_launch(std::deque<Buffer>& held, Set&& set, Launch&& go, unsigned n) {
    const Buffer& in = held.emplace_back(kBuffer, 1);
    const Buffer& out = held.emplace_back(kBuffer, 2);
    Crowd crowd;
    crowd.evict(in);
    crowd.evict(out);
    const CUfunction add = kernel("add");
    OK(cuFuncSetBlockShape, add, 256, 1, 1);
    OK(cuParamSetSize, add, 24);
    CUdeviceptr addresses[] = {out.at(), in.at()};
    set(add, addresses, sizeof addresses);
    OK(cuParamSeti, add, 16, 0);
    OK(cuParamSeti, add, 20, n);
    go(add);
    OK(cuCtxSynchronize);
    EXPECT(in.resident());
    auto expected = pattern(kBuffer, 2);
    std::memcpy(expected.data(), pattern(kBuffer, 1).data(), std::size_t{n} * 4);
    EXPECT(out.read() == expected);
}

}  // namespace

OVERLAY_TEST("old launches: what parameters set beforehand name is brought in", "old-launches") {
    const Gpu gpu;
    std::deque<Buffer> held;
    const auto blocks = static_cast<int>(words() / 256);
    const auto all_at_once = [](CUfunction add, void* data, unsigned bytes) {
        OK(cuParamSetv, add, 0, data, bytes);
    };
    const auto by_words = [](auto set_word) {
        return [=](CUfunction add, const void* data, unsigned bytes) {
            for (unsigned at = 0; at < bytes; at += 4)
                set_word(add, static_cast<int>(at), static_cast<const char*>(data) + at);
        };
    };
    const auto grid = [&](CUfunction add) { OK(cuLaunchGrid, add, blocks, 1); };
    check_launch(held, all_at_once, grid, words());
    check_launch(
        held, all_at_once, [&](CUfunction add) { OK(cuLaunchGridAsync, add, blocks, 1, nullptr); }, words());
    check_launch(
        held, all_at_once, [&](CUfunction add) { OK(cuLaunch, add); }, 256);
    check_launch(held, by_words([](CUfunction add, int at, const char* word) {
                     unsigned value = 0;
                     std::memcpy(&value, word, sizeof value);
                     OK(cuParamSeti, add, at, value);
                 }),
                 grid, words());
    check_launch(held, by_words([](CUfunction add, int at, const char* word) {
                     float value = 0;
                     std::memcpy(&value, word, sizeof value);
                     OK(cuParamSetf, add, at, value);
                 }),
                 grid, words());
}

OVERLAY_TEST("old launches: on several devices at once, each one's buffers are brought in",
             "old-launches-together") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    const Buffer first(kBuffer, 2);
    const Buffer second(kBuffer, 3);
    CUstream streams[2] = {};
    for (CUstream& stream : streams) OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Crowd crowd;
    for (const Buffer* buffer : {&in, &first, &second}) crowd.evict(*buffer);
    CUdeviceptr from = in.at();
    CUdeviceptr to[] = {first.at(), second.at()};
    unsigned zero = 0;
    unsigned n = words();
    void* parameters[2][4] = {{&to[0], &from, &zero, &n}, {&to[1], &from, &zero, &n}};
    CUDA_LAUNCH_PARAMS launches[2] = {};
    for (int i = 0; i < 2; ++i) {
        launches[i].function = kernel("add");
        launches[i].gridDimX = n / 256;
        launches[i].gridDimY = launches[i].gridDimZ = 1;
        launches[i].blockDimX = 256;
        launches[i].blockDimY = launches[i].blockDimZ = 1;
        launches[i].hStream = streams[i];
        launches[i].kernelParams = parameters[i];
    }
    OK(cuLaunchCooperativeKernelMultiDevice, launches, 2, 0);
    crowd.press();
    OK(cuCtxSynchronize);
    EXPECT(first.holds(1));
    EXPECT(second.holds(1));
}
