#include "shim/engine/gpu_waits.h"

#include <doctest/doctest.h>

#include <vector>

namespace lms::engine {
namespace {

// Two streams of the program's and the one of copies in.
struct Waits {
    Timelines timelines;
    const TimelineId first = timelines.create(), second = timelines.create(), in = timelines.create();
    GpuWaits waits;
    std::uint64_t works = 0;

    void submit(const Use& work, const Use& fill = {}) {
        ++works;
        waits.submitted(work, fill, timelines);
    }
    // Whether the GPU had nothing to run as work is about to be submitted that waits.
    bool waited(const std::vector<Use>& oldest) {
        ++works;  // so that what was noted before is another
        waits.look(oldest, timelines, works);
        return waits.works_since(works) == 0;
    }
};

TEST_CASE(
    "gpu waits: it has nothing to run where nothing is unfinished, or all that is waits for copies in") {
    Waits gpu;
    CHECK(gpu.waits.works_since(gpu.works) == Links::kNever);
    gpu.submit({gpu.first, 1});
    CHECK_FALSE(gpu.waited({{gpu.first, 1}}));
    CHECK(gpu.waits.works_since(gpu.works) == Links::kNever);
    gpu.submit({gpu.first, 2}, {gpu.in, 1});
    gpu.submit({gpu.second, 1}, {gpu.in, 2});
    CHECK_FALSE(gpu.waited({{gpu.first, 1}, {gpu.second, 1}}));
    gpu.timelines.complete(gpu.first, 1);
    CHECK(gpu.waited({{gpu.first, 2}, {gpu.second, 1}}));
    // The copy is there, so its work runs.
    gpu.timelines.complete(gpu.in, 1);
    CHECK_FALSE(gpu.waited({{gpu.first, 2}, {gpu.second, 1}}));
    CHECK(gpu.waited({{gpu.second, 1}}));
    gpu.timelines.complete(gpu.in, 2);
    CHECK_FALSE(gpu.waited({{gpu.second, 1}}));
    CHECK(gpu.waited({}));
}

TEST_CASE("gpu waits: what waits behind work that runs does not make the GPU wait") {
    Waits gpu;
    gpu.submit({gpu.first, 1});
    gpu.submit({gpu.first, 2}, {gpu.in, 1});
    CHECK_FALSE(gpu.waited({{gpu.first, 1}}));
    // Another stream's work of that number is another.
    CHECK_FALSE(gpu.waited({{gpu.second, 2}}));
}

TEST_CASE("gpu waits: works are counted from the last time, and a copy that was over counts for none") {
    Waits gpu;
    CHECK(gpu.waited({}));
    gpu.timelines.complete(gpu.in, 1);
    gpu.submit({gpu.first, 1}, {gpu.in, 1});
    CHECK_FALSE(gpu.waited({{gpu.first, 1}}));
    CHECK(gpu.waits.works_since(gpu.works) == 2);
}

}  // namespace
}  // namespace lms::engine
