// How long a piece of work can have run, by a trace's samples.
#include "tools/lms/longest_times.h"

#include <doctest/doctest.h>

#include <array>

namespace tool = lms::tool;
namespace trace = lms::trace;
using tool::LongestTimes;

namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kMegabyte = 1'000'000;

trace::Launch launch(std::string_view kernel, std::span<const trace::Touched> touched,
                     trace::Copied copied = {}) {
    return {.device = 0,
            .kernel = kernel,
            .stream = 1,
            .touched = touched,
            .begin_ns = 0,
            .end_ns = 1,
            .copied = copied};
}

}  // namespace

TEST_CASE("longest times: by the samples of a kernel or of copies, but for the first") {
    tool::Trace trace;
    // Its code was loaded before it ran.
    trace.events.push_back(trace::KernelTime{0, "mul", 0, 190 * kMillisecond, 16});
    const trace::Copied in{trace::CopyWay::ToGpu, 8 * kMegabyte};
    for (int i = 0; i < 10; ++i) {
        trace.events.push_back(trace::KernelTime{0, "mul", 0, 5 * kMillisecond, 16});
        trace.events.push_back(trace::KernelTime{1, "mul", 0, 50 * kMillisecond, 16});
        trace.events.push_back(trace::CopyTime{0, in, 0, kMillisecond});
    }
    trace.events.push_back(trace::KernelTime{0, "rare", 0, kMillisecond, 16});
    const LongestTimes longest(trace, 0);

    const std::array<trace::Touched, 1> there{trace::Touched{.chunk = 0, .allocation = 0}};
    const std::uint64_t mul = longest.of(launch("mul", there), kMegabyte);
    CHECK(mul >= 5 * kMillisecond);
    CHECK(mul < 6 * kMillisecond);
    CHECK(longest.of(launch("rare", there), kMegabyte) == LongestTimes::kUnknown);
    CHECK(longest.of(launch("other", there), kMegabyte) == LongestTimes::kUnknown);
    const std::array<trace::Touched, 1> on_host{
        trace::Touched{.chunk = 0, .allocation = 0, .in_place = true}};
    CHECK(longest.of(launch("mul", on_host), kMegabyte) == LongestTimes::kUnknown);

    const std::uint64_t half =
        longest.of(launch("", there, {trace::CopyWay::ToGpu, 4 * kMegabyte}), kMegabyte);
    CHECK(half >= kMillisecond / 2);
    CHECK(half < kMillisecond);
    CHECK(longest.of(launch("", there, {trace::CopyWay::ToHost, kMegabyte}), kMegabyte) ==
          LongestTimes::kUnknown);
    // A set runs at the speed of the GPU's memory.
    CHECK(longest.of(launch("", there), 100 * kMegabyte) < 3 * kMillisecond);
}
