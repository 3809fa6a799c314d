// Green contexts, as the overlay has them: contexts beside the primary one, whose memory is every one's.
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/overlay/record.h"
#include "tests/entry/rig.h"

using namespace rig;

namespace {

struct Green {
    explicit Green(const Gpu& gpu) {
        OK(cuGreenCtxCreate, &handle, nullptr, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM);
        OK(cuCtxFromGreenCtx, &context, handle);
    }
    CUgreenCtx handle = nullptr;
    CUcontext context = nullptr;
};

}  // namespace

OVERLAY_TEST("green contexts: what was allocated in one stays when it ends, and moves as before",
             "green-ends") {
    const Gpu gpu;
    const Green green(gpu);
    OK(cuCtxSetCurrent, green.context);
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    OK(cuCtxSetCurrent, gpu.context);
    OK(cuGreenCtxDestroy, green.handle);
    EXPECT(a.holds(1));
    crowd.bring_in(a);
    EXPECT(a.holds(1));
    crowd.evict(a);
    EXPECT(a.holds(1));
}

OVERLAY_TEST("green contexts: the shim works in none, which are one thread's alone", "green-current") {
    const Gpu gpu;
    const Green green(gpu);
    OK(cuCtxSetCurrent, green.context);
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    // The overlay refuses a context that is current elsewhere.
    std::thread([&] {
        OK(cuCtxSetCurrent, gpu.context);
        crowd.bring_in(a);
        crowd.evict(a);
    }).join();
    EXPECT(a.holds(1));
    EXPECT(overlay::record().green_uses == 0);
}

OVERLAY_TEST("green contexts: the last to hold the primary context takes its memory with it", "green-last") {
    CUdevice device = 0;
    OK(cuInit, 0);
    OK(cuDeviceGet, &device, 0);
    for (int time = 0; time < 2; ++time) {
        CUgreenCtx green = nullptr;
        CUcontext context = nullptr;
        OK(cuGreenCtxCreate, &green, nullptr, device, CU_GREEN_CTX_DEFAULT_STREAM);
        OK(cuCtxFromGreenCtx, &context, green);
        OK(cuCtxSetCurrent, context);
        CUdeviceptr kept = 0;
        for (int i = 0; i < 12; ++i) OK(cuMemAlloc_v2, &kept, kBuffer);
        OK(cuMemsetD8Async, kept, 3, kBuffer, nullptr);
        OK(cuCtxSetCurrent, nullptr);
        OK(cuGreenCtxDestroy, green);
    }
}

OVERLAY_TEST("green contexts: what a stream of one that is never converted has still to write is waited for",
             "green-streams") {
    const Gpu gpu;
    CUgreenCtx green = nullptr;
    CUstream stream = nullptr;
    OK(cuGreenCtxCreate, &green, nullptr, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM);
    OK(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
    const Buffer a(kBuffer, 1);
    Gate gate;
    gate.hold_up(stream);
    OK(cuMemsetD8Async, a.at(), 5, kBuffer, stream);
    // Here moves begin, and the coldest is what is about to be written.
    Crowd crowd;
    crowd.press();
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 5));
    OK(cuStreamDestroy_v2, stream);
    OK(cuGreenCtxDestroy, green);
}
