// Launches that were made before with the same arguments: what these lead to may have changed since.
#include <random>

#include "tests/entry/graph_rig.h"
#include "tests/support/kernels.h"

using namespace rig;

namespace {

constexpr int kOften = 4;  // until what a launch reaches is known by its arguments

// offset(base, offset, gate, k): adds k to as many words from base + offset on as `gate` says.
const std::string kOffsetText =
    support::kPtxHead +
    support::word_kernel("offset", ".param .u64 base, .param .u64 offset, .param .u64 gate, .param .u32 k",
                         "ld.param.u64 %a2, [base];\nld.param.u64 %a3, [offset];\nld.param.u64 %a4, [gate];\n"
                         "ld.param.u32 %r1, [k];\nld.global.u32 %n, [%a4];\n",
                         "add.u64 %a1, %a2, %a3; add.u64 %a1, %a1, %o; ld.global.u32 %r2, [%a1];\n"
                         "add.u32 %r2, %r2, %r1; st.global.u32 [%a1], %r2;\n");

class Offset {
  public:
    Offset(CUdeviceptr to) : to_(to) {
        CUmodule module = nullptr;
        OK(cuModuleLoadData, &module, kOffsetText.c_str());
        OK(cuModuleGetFunction, &function_, module, "offset");
    }
    void run(std::uint32_t words) {
        OK(cuMemcpyHtoD_v2, gate_.at(), &words, sizeof words);
        CUdeviceptr base = base_.at();
        std::uint64_t offset = to_ - base;
        CUdeviceptr gate = gate_.at();
        std::uint32_t k = 5;
        void* arguments[] = {&base, &offset, &gate, &k};
        OK(cuLaunchKernel, function_, kWords / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr);
        OK(cuStreamSynchronize, nullptr);
    }
    // Nothing is reached.
    void run_often() {
        for (int i = 0; i < kOften; ++i) run(0);
    }

  private:
    CUdeviceptr to_;
    CUfunction function_ = nullptr;
    Buffer base_{kBuffer, 3}, gate_{kBuffer, 4};
};

}  // namespace

FAMILY_TEST("known launches: a buffer that is allocated where an argument leads is brought in") {
    const Gpu gpu;
    auto first = std::make_unique<Buffer>(kBuffer, 1);
    const CUdeviceptr at = first->at();
    Offset work(at);
    Crowd crowd;
    crowd.press();
    work.run_often();
    first.reset();
    work.run_often();
    Buffer again(kBuffer, 2);
    EXPECT(again.at() == at);
    crowd.evict(again);
    work.run(kWords);
    EXPECT(again.resident());
    EXPECT(again.read() == plus(pattern(kBuffer, 2), 5));
}

FAMILY_TEST("known launches: memory that the program maps where an argument leads is brought in") {
    const Gpu gpu;
    CUdeviceptr at = 0;
    OK(cuMemAddressReserve, &at, kBuffer, 0, 0, 0);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate, &handle, kBuffer, &properties, 0);
    Offset work(at);
    Crowd crowd;
    crowd.press();
    work.run_often();
    OK(cuMemMap, at, kBuffer, 0, handle, 0);
    const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess, at, kBuffer, &access, 1);
    const std::vector<std::uint8_t> data = pattern(kBuffer, 2);
    OK(cuMemcpyHtoD_v2, at, data.data(), kBuffer);
    for (int i = 0; i < 8 && !off_device(at, kBuffer); ++i) crowd.press();
    EXPECT(off_device(at, kBuffer));
    work.run(kWords);
    EXPECT(on_device(at, kBuffer));
    std::vector<std::uint8_t> got(kBuffer);
    OK(cuMemcpyDtoH_v2, got.data(), at, kBuffer);
    EXPECT(got == plus(data, 5));
}

FAMILY_TEST("known launches: arguments that change in place, in one stream and another, count as they are") {
    const Gpu gpu;
    const Buffer from(kBuffer, 1);
    const Buffer into[] = {Buffer(kBuffer), Buffer(kBuffer), Buffer(kBuffer)};
    Crowd crowd;
    const CUstream streams[] = {nullptr, new_stream()};
    CUdeviceptr to = 0;
    for (std::uint32_t round = 0; round < 3; ++round) {
        for (const Buffer& each : into) {
            crowd.evict(each);
            to = each.at();
            const CUstream stream = streams[round % 2];
            EXPECT(launch("add", kWords, stream, to, from.at(), round, kWords) == CUDA_SUCCESS);
            OK(cuStreamSynchronize, stream);
            EXPECT(each.resident());
            EXPECT(each.read() == plus(from.read(), round));
        }
    }
}

FAMILY_TEST("known launches: a buffer that has the address of one that was freed is brought in") {
    const Gpu gpu;
    const Buffer from(kBuffer, 1);
    auto first = std::make_unique<Buffer>(kBuffer);
    const CUdeviceptr to = first->at();
    Crowd crowd;
    const auto run = [&](std::uint32_t k) {
        EXPECT(launch("add", kWords, nullptr, to, from.at(), k, kWords) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, nullptr);
    };
    crowd.press();
    for (int i = 0; i < kOften; ++i) run(7);
    EXPECT(first->read() == plus(from.read(), 7));
    first.reset();
    const Buffer again(kBuffer, 2);
    EXPECT(again.at() == to);
    // The first is looked at whatever is known.
    for (int i = 0; i < 2; ++i) {
        crowd.evict(again);
        run(7);
        EXPECT(again.resident());
        EXPECT(again.read() == plus(from.read(), 7));
    }
}

namespace {

// Memory that comes and goes at few addresses.
struct Place {
    CUdeviceptr at = 0;
    std::size_t bytes = 0;
    bool ordered = false;
    std::vector<std::uint8_t> expected;

    void come(std::size_t size, bool in_order, std::uint32_t seed) {
        bytes = size;
        ordered = in_order;
        if (ordered) {
            OK(cuMemAllocAsync, &at, bytes, nullptr);
        } else {
            OK(cuMemAlloc_v2, &at, bytes);
        }
        expected = pattern(bytes, seed);
        OK(cuMemcpyHtoD_v2, at, expected.data(), bytes);
        OK(cuStreamSynchronize, nullptr);  // it may return before all is there
    }
    bool is_right() const {
        std::vector<std::uint8_t> got(bytes);
        OK(cuMemcpyDtoH_v2, got.data(), at, bytes);
        return got == expected;
    }
    void go() const {
        if (ordered) {
            OK(cuMemFreeAsync, at, nullptr);
        } else {
            OK(cuMemFree_v2, at);
        }
    }
};

}  // namespace

FAMILY_TEST("known launches: whatever comes and goes between launches of the same arguments") {
    const Gpu gpu;
    CUmodule module = nullptr;
    CUfunction offset = nullptr;
    OK(cuModuleLoadData, &module, kOffsetText.c_str());
    OK(cuModuleGetFunction, &offset, module, "offset");
    const Buffer base(kBuffer, 1), gate(kBuffer, 2);
    const std::uint32_t words = kWords / 2;
    OK(cuMemcpyHtoD_v2, gate.at(), &words, sizeof words);
    const CUstream streams[] = {nullptr, new_stream()};
    std::minstd_rand random(7);
    std::vector<Place> places(12);
    const auto size = [&] { return kBuffer / 2 + random() % 3 * kGranule; };
    for (Place& each : places) each.come(size(), random() % 2, random());
    for (int step = 0; step < 500; ++step) {
        Place& place = places[random() % places.size()];
        if (random() % 12 == 0) {
            EXPECT(place.is_right());
            place.go();
            place.come(size(), random() % 2, random());
        }
        CUdeviceptr from = base.at(), flag = gate.at();
        std::uint64_t away = place.at - from;
        std::uint32_t k = 3;
        void* arguments[] = {&from, &away, &flag, &k};
        const CUstream stream = streams[random() % 2];
        OK(cuLaunchKernel, offset, kWords / 256, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
        OK(cuStreamSynchronize, stream);
        const std::vector<std::uint8_t> half(place.expected.begin(), place.expected.begin() + words * 4);
        std::ranges::copy(plus(half, k), place.expected.begin());
    }
    for (const Place& each : places) EXPECT(each.is_right());
}
