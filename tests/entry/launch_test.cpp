// Launches, in every form there is.
#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>

#include "tests/entry/graph_rig.h"
#include "tests/support/process.h"
#include "tests/support/scratch.h"

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

namespace {

// How often the driver was called from one launch to the next.
struct Between {
    int mapped = 0, exchanges = 0;
};

std::vector<Between> between_launches(const std::string& log) {
    std::vector<Between> all;
    std::istringstream lines(support::read_file(log));
    for (std::string prefix, call, rest; lines >> prefix >> call && std::getline(lines, rest);) {
        if (call == "cuLaunchKernel") all.emplace_back();
        if (all.empty()) continue;
        all.back().mapped += call == "cuMemMap";
        all.back().exchanges += call == "cuThreadExchangeStreamCaptureMode";
    }
    if (!all.empty()) all.pop_back();  // what comes behind the last is not the launch's
    return all;
}

}  // namespace

BODY(launches_that_move) {
    const Gpu gpu;
    kernel("add");
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 24; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
    for (int round = 0; round < 4; ++round) {
        for (const auto& buffer : buffers) {
            const CUdeviceptr at = buffer->at();
            const unsigned one = 1;
            EXPECT(launch("add", kWords, CU_STREAM_LEGACY, at, at, one, kWords) == CUDA_SUCCESS);
        }
    }
    for (std::uint32_t i = 0; i < 24; ++i) EXPECT(buffers[i]->read() == plus(pattern(kBuffer, i), 4));
}

TEST_CASE("launches: one that moves changes the thread's capture mode twice, there and back") {
    const Scratch scratch;
    for (const std::string host_mapping : {"0", "1"}) {
        CAPTURE(host_mapping);
        const std::string log = scratch.path("calls" + host_mapping);
        const Outcome outcome = run("launches_that_move", Driver::Simulated,
                                    {{"SIMCUDA_LOG", log}, {"SIMCUDA_HOST_VMM", host_mapping}});
        CHECK(outcome.failures == "");
        int moved = 0;
        for (const Between& each : between_launches(log)) {
            if (each.mapped == 0) continue;
            ++moved;
            CHECK(each.exchanges <= 4);
        }
        CHECK(moved > 20);
    }
}
