// Work given before the first move, when nothing was looked at: what it uses stays until it is done, whatever
// stream and context it is in.
#include <cstdlib>
#include <functional>
#include <future>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Makes a stream, puts held-up work into it by `use`, and may destroy it.
using Use = std::function<void(CUdevice device, const std::function<void(CUstream)>& use)>;

CUstream made_by(decltype(&cuStreamCreate) create) {
    CUstream stream = nullptr;
    EXPECT(create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return stream;
}

// In the default stream of another context, which is made current.
template <typename Create>
Use in_context(Create create) {
    return [=](CUdevice device, const auto& use) {
        CUcontext context = nullptr;
        EXPECT(create(&context, device) == CUDA_SUCCESS);
        use(nullptr);
    };
}

std::map<std::string, Use> uses() {
    const auto destroyed = [](auto destroy) {
        return [=](CUdevice, const auto& use) {
            const CUstream stream = made_by(CU(cuStreamCreate));
            use(stream);
            EXPECT(destroy(stream) == CUDA_SUCCESS);
        };
    };
    return {
        {"cuStreamCreate", [](CUdevice, const auto& use) { use(made_by(CU(cuStreamCreate))); }},
        {"cuStreamCreateWithPriority",
         [](CUdevice, const auto& use) {
             CUstream stream = nullptr;
             OK(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
             use(stream);
         }},
        {"cuGreenCtxStreamCreate",
         [](CUdevice, const auto& use) {
             CUstream stream = nullptr;
             OK(cuGreenCtxStreamCreate, &stream, nullptr, CU_STREAM_NON_BLOCKING, 0);
             use(stream);
         }},
        {"cuGreenCtxCreate", in_context([](auto* context, CUdevice device) {
             CUgreenCtx green = nullptr;
             OK(cuGreenCtxCreate, &green, nullptr, device, CU_GREEN_CTX_DEFAULT_STREAM);
             OK(cuCtxFromGreenCtx, context, green);
             OK(cuCtxPushCurrent_v2, *context);
             return CUDA_SUCCESS;
         })},
        {"cuStreamDestroy", destroyed(CU(cuStreamDestroy))},
        {"cuStreamDestroy_v2", destroyed(CU(cuStreamDestroy_v2))},
        {"cuCtxCreate",
         in_context([](auto* context, CUdevice device) { return CU(cuCtxCreate)(context, 0, device); })},
        {"cuCtxCreate_v2",
         in_context([](auto* context, CUdevice device) { return CU(cuCtxCreate_v2)(context, 0, device); })},
        {"cuCtxCreate_v3", in_context([](auto* context, CUdevice device) {
             return CU(cuCtxCreate_v3)(context, nullptr, 0, 0, device);
         })},
        {"cuCtxCreate_v4", in_context([](auto* context, CUdevice device) {
             return CU(cuCtxCreate_v4)(context, nullptr, 0, device);
         })},
    };
}

}  // namespace

BODY(before_pressure) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const CUstream other = new_stream();
    Gate gate;
    CUcontext used = nullptr;
    const auto use = [&](CUstream stream) {
        OK(cuCtxGetCurrent, &used);
        gate.hold_up(stream);
        OK(cuMemsetD8Async, a.at(), 5, kBuffer, stream);
    };
    uses().at(std::getenv("FORM"))(gpu.device, use);
    OK(cuCtxSetCurrent, gpu.context);
    std::vector<CUdeviceptr> more(12);
    for (CUdeviceptr& buffer : more) OK(cuMemAlloc_v2, &buffer, kBuffer);
    bring_in(more.back(), kBuffer, other);
    OK(cuStreamSynchronize, other);
    EXPECT(a.resident());
    gate.open();
    // What has stood still for long is not waited for again.
    OK(cuCtxSetCurrent, used);
    OK(cuCtxSynchronize);
    OK(cuCtxSetCurrent, gpu.context);
    for (const CUdeviceptr buffer : more) OK(cuMemFree_v2, buffer);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 5));
}

// Each waits for a second, in which what is needed might have moved.
TEST_CASE("before pressure: what work in any stream and context was given stays until it is done" *
          doctest::test_suite("before-pressure")) {
    std::map<std::string, std::future<Outcome>> outcomes;
    for (const char* form : {"cuStreamCreate", "cuStreamCreateWithPriority", "cuGreenCtxStreamCreate",
                             "cuGreenCtxCreate", "cuStreamDestroy", "cuStreamDestroy_v2", "cuCtxCreate",
                             "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"}) {
        outcomes[form] = std::async(std::launch::async, [form] {
            return run("before_pressure", Driver::Overlay, {{"SIMCUDA_HOST_VMM", "1"}, {"FORM", form}});
        });
    }
    for (auto& outcome : outcomes) {
        CAPTURE(outcome.first);
        CHECK(outcome.second.get().failures == "");
    }
}
