// Memory about to be written whole while it is out: what it holds is there for as long as anyone may read it.
#include <functional>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Calls that write all of `to`, in a stream; what they write is 5s.
struct Fives {
    Fives() : source(kBuffer), ring(kBuffer) {
        OK(cuMemsetD8_v2, ring.at(), 5, kBuffer);
        OK(cuMemAllocHost_v2, &pinned, kBuffer);
        std::memset(pinned, 5, kBuffer);
    }
    std::vector<std::function<CUresult(CUdeviceptr to, CUstream)>> forms() const {
        return {
            [](CUdeviceptr to, CUstream s) { return CU(cuMemsetD8Async)(to, 5, kBuffer, s); },
            [](CUdeviceptr to, CUstream s) {
                return CU(cuMemsetD2D8Async)(to, kBuffer / 64, 5, kBuffer / 64, 64, s);
            },
            [this](CUdeviceptr to, CUstream s) { return CU(cuMemcpyHtoDAsync_v2)(to, pinned, kBuffer, s); },
            [this](CUdeviceptr to, CUstream s) {
                return CU(cuMemcpyDtoDAsync_v2)(to, ring.at(), kBuffer, s);
            },
            [this](CUdeviceptr to, CUstream s) {
                return CU(cuMemcpyAsync)(to, reinterpret_cast<CUdeviceptr>(pinned), kBuffer, s);
            },
        };
    }
    std::vector<std::uint8_t> source;
    Buffer ring;
    void* pinned = nullptr;
};

}  // namespace

FAMILY_TEST("overwriting: other streams read what was there until it happens") {
    const Gpu gpu;
    const CUstream writer = new_stream();
    const CUstream reader = new_stream();
    Buffer a(kBuffer, 1);
    const Buffer seen(kBuffer, 2);
    const Fives fives;
    Crowd crowd;
    for (const auto& write : fives.forms()) {
        a.fill(1);
        crowd.evict(a);
        Gate gate;
        gate.hold_up(writer);
        EXPECT(write(a.at(), writer) == CUDA_SUCCESS);
        OK(cuMemcpyDtoDAsync_v2, seen.at(), a.at(), kBuffer, reader);
        OK(cuStreamSynchronize, reader);
        gate.open();
        OK(cuStreamSynchronize, writer);
        EXPECT(seen.holds(1));
        EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 5));
    }
}

FAMILY_TEST("overwriting: a refused call leaves its destination as it was") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    std::vector<std::uint8_t> bytes(2 * kBuffer, 5);
    void* const host = bytes.data();
    const CUdeviceptr nowhere = 0x10;
    const std::vector<std::function<CUresult()>> refused = {
        [&] { return CU(cuMemcpyHtoD_v2)(a.at(), nullptr, kBuffer); },
        [&] { return CU(cuMemcpyHtoDAsync_v2)(a.at(), nullptr, kBuffer, stream); },
        [&] { return CU(cuMemcpyDtoD_v2)(a.at(), nowhere, kBuffer); },
        [&] { return CU(cuMemcpyDtoDAsync_v2)(a.at(), nowhere, kBuffer, stream); },
        [&] { return CU(cuMemcpyHtoDAsync_v2)(a.at(), host, 2 * kBuffer, stream); },
        [&] { return CU(cuMemcpyHtoD_v2)(a.at(), host, 2 * kBuffer); },
        [&] { return CU(cuMemsetD8_v2)(a.at(), 5, 2 * kBuffer); },
        [&] { return CU(cuMemsetD8Async)(a.at(), 5, 2 * kBuffer, stream); },
        [&] { return CU(cuMemsetD32Async)(a.at(2), 5, kBuffer / 4 - 1, stream); },
        [&] { return CU(cuMemsetD2D8Async)(a.at(), kBuffer / 64, 5, kBuffer / 32, 64, stream); },
    };
    Crowd crowd;
    for (const auto& call : refused) {
        crowd.evict(a);
        EXPECT(call() != CUDA_SUCCESS);
        OK(cuStreamSynchronize, stream);
        EXPECT(a.holds(1));
    }
}
