// Launches, in every form there is.
#include <algorithm>
#include <functional>

#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

CUlaunchConfig config_for(CUstream stream) {
    CUlaunchConfig config{};
    config.gridDimX = kWords / 256;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 256;
    config.hStream = stream;
    return config;
}

// Words that one cooperative launch takes, all its blocks at once.
constexpr unsigned kAtOnce = 1024;

using Launch = std::function<CUresult(CUfunction, CUstream, void**)>;

}  // namespace

FAMILY_TEST("launches: every form brings in what it names, in the order of its stream", "launch-forms") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    Buffer out(kBuffer, 2);
    Crowd crowd;
    const auto check = [&](bool per_thread, unsigned words, const Launch& go) {
        // Handle 0 as this form has it, between others in the same stream by its name.
        const CUstream same = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        crowd.evict(in);
        crowd.evict(out);
        OK(cuMemsetD8Async, in.at(), 5, kBuffer, same);
        crowd.evict(in);
        CUdeviceptr to = out.at();
        CUdeviceptr from = in.at();
        unsigned k = 7;
        void* arguments[] = {&to, &from, &k, &words};
        EXPECT(go(kernel("add"), nullptr, arguments) == CUDA_SUCCESS);
        EXPECT(in.resident());
        EXPECT(out.resident());
        OK(cuMemsetD8Async, in.at(), 9, kBuffer, same);
        OK(cuStreamSynchronize, same);
        auto expected = pattern(kBuffer, 2);
        const auto written = plus(std::vector<std::uint8_t>(words * 4, 5), 7);
        std::copy(written.begin(), written.end(), expected.begin());
        EXPECT(out.read() == expected);
        out.fill(2);
    };
    const auto plain = [&](auto launch) {
        return [=](CUfunction function, CUstream stream, void** arguments) {
            return launch(function, kWords / 256, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
        };
    };
    const auto cooperative = [&](auto launch) {
        return [=](CUfunction function, CUstream stream, void** arguments) {
            return launch(function, kAtOnce / 256, 1, 1, 256, 1, 1, 0, stream, arguments);
        };
    };
    const auto configured = [&](auto launch) {
        return [=](CUfunction function, CUstream stream, void** arguments) {
            const CUlaunchConfig config = config_for(stream);
            return launch(&config, function, arguments, nullptr);
        };
    };
    check(false, kWords, plain(CU(cuLaunchKernel)));
    check(true, kWords, plain(CU(cuLaunchKernel_ptsz)));
    check(false, kAtOnce, cooperative(CU(cuLaunchCooperativeKernel)));
    check(true, kAtOnce, cooperative(CU(cuLaunchCooperativeKernel_ptsz)));
    check(false, kWords, configured(CU(cuLaunchKernelEx)));
    check(true, kWords, configured(CU(cuLaunchKernelEx_ptsz)));
}
