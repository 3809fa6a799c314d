// Copies of the program's own, in the trace: when the device did them, also the last that it does.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "tests/entry/rig.h"
#include "tests/support/process.h"
#include "tools/lms/trace_file.h"

using namespace rig;

BODY(own_copies_then_a_wait) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const std::vector<std::uint8_t> from = pattern(kBuffer, 2);
    void* to = nullptr;
    OK(cuMemAllocHost_v2, &to, kBuffer);
    OK(cuMemcpyHtoDAsync_v2, a.at(0), from.data(), kBuffer, stream);
    OK(cuMemcpyDtoDAsync_v2, a.at(0), a.at(kBuffer / 2), kBuffer / 2, stream);
    OK(cuMemcpyDtoHAsync_v2, to, a.at(0), kBuffer, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(std::equal(from.begin() + kBuffer / 2, from.end(), static_cast<std::uint8_t*>(to)));
    // Nothing else is asked of the shim: `a` is not freed.
    std::exit(0);
}

TEST_CASE("own copies: those that the program waited for are in the trace with the device's times") {
    using lms::trace::CopyTime;
    using lms::trace::CopyWay;
    const std::string path = support::scratch_file("copies.lmstrace");
    // A link so slow that the last is not over when it has been submitted.
    run("own_copies_then_a_wait", Driver::Simulated, {{"LMS_TRACE", path}, {"SIMCUDA_D2H_GBPS", "0.02"}});
    lms::tool::Trace trace;
    std::string problem;
    lms::tool::read_trace_file(path, trace, problem);
    REQUIRE(problem == "");
    std::map<CopyWay, std::uint64_t> timed;
    for (const lms::trace::Event& event : trace.events) {
        const auto* const copy = std::get_if<CopyTime>(&event);
        if (!copy) continue;
        CHECK(copy->begin_ns < copy->end_ns);
        timed[copy->copied.way] += copy->copied.bytes;
    }
    CHECK(timed[CopyWay::OnGpu] == kBuffer / 2);
    CHECK(timed[CopyWay::ToHost] == kBuffer);
}
