// Fences that have passed and are recorded anew: by whom, and what they stand for then.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>

#include "shim/executor/fences.h"
#include "tests/engine/rig.h"

namespace lms::fake {
namespace {

struct Spares {
    FakePort gpu{{64, 64 * 64, true, 1}};
    engine::Timelines timelines;
    executor::Fences fences{gpu, timelines};
    util::Mutex mutex{util::LockOrder::Session};
    executor::SessionLock lock{mutex};

    // All that was submitted runs, and is seen to be over.
    void finish() {
        gpu.run(1000);
        fences.poll(lock);
    }
    executor::FencePtr spare(CUstream stream) { return fences.spare(fences.key_of(stream)); }
};

TEST_CASE("spare fences: one that is recorded again stands for what was submitted since") {
    Spares all;
    const CUstream stream = all.gpu.create_stream();
    CHECK(!all.spare(stream));
    const executor::Fence* const first = [&] {
        const executor::FencePtr fence = all.fences.record(stream);
        all.fences.add(fence);
        return fence.get();
    }();
    CHECK(!all.spare(stream));  // it has not passed
    all.finish();
    executor::FencePtr spare = all.spare(stream);
    CHECK(spare.get() == first);
    CHECK(!all.spare(stream));
    const auto open = std::make_shared<std::atomic<bool>>(false);
    all.gpu.launch(stream, gate(open));
    const engine::Use use = all.fences.add(all.fences.record(stream, std::move(spare)));
    all.finish();
    CHECK(!all.timelines.finished(use));
    CHECK(all.fences.fence_of(use).get() == first);
    CHECK(all.gpu.live_events() == 1);
    *open = true;
    all.finish();
    CHECK(all.timelines.finished(use));
}

TEST_CASE("spare fences: none that another still holds, who asks whether it has passed") {
    Spares all;
    const CUstream stream = all.gpu.create_stream();
    const executor::FencePtr held = all.fences.record(stream);
    all.fences.add(held);
    CHECK(!all.spare(stream));
    all.finish();
    CHECK(!all.spare(stream));
    CHECK(held->passed());
}

TEST_CASE("spare fences: none of another stream's, though its timeline goes on as that one's") {
    Spares all;
    const CUstream old = all.gpu.create_stream();
    const engine::Use passed = all.fences.add(all.fences.record(old));
    CHECK(!all.spare(old));
    all.finish();
    const engine::Use under_way = all.fences.add(all.fences.record(old));
    all.fences.forget(all.fences.key_of(old));
    all.finish();
    const CUstream other = all.gpu.create_stream();
    const engine::Use next = all.fences.add(all.fences.record(other));
    REQUIRE(next.timeline == passed.timeline);
    CHECK(all.timelines.finished(under_way));
    CHECK(!all.spare(other));
    CHECK(all.gpu.live_events() == 1);
}

TEST_CASE("spare fences: one that cannot be recorded again is replaced") {
    Spares all;
    const CUstream stream = all.gpu.create_stream();
    all.fences.add(all.fences.record(stream));
    CHECK(!all.spare(stream));
    all.finish();
    executor::FencePtr spare = all.spare(stream);
    REQUIRE(spare);
    const executor::Fence* const first = spare.get();
    all.gpu.fail(Call::Record, 1, CUDA_ERROR_INVALID_HANDLE);
    const executor::FencePtr fence = all.fences.record(stream, std::move(spare));
    REQUIRE(fence);
    CHECK(fence.get() != first);
    CHECK(all.gpu.live_events() == 1);
}

}  // namespace
}  // namespace lms::fake
