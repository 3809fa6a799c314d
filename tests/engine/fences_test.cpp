// Fences of one stream, entered in whatever order its threads get to: a use is finished only when its work
// is.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "shim/migration/fences.h"
#include "tests/engine/rig.h"

namespace lms::fake {
namespace {

struct Recorded {
    engine::FencePtr fence;
    MarkerPtr work;  // what it stands for
    core::Use use{};
};

// Streams whose fences are recorded in order and entered in another, while work runs and somebody looks.
class Entering {
  public:
    Entering(std::uint64_t seed, std::size_t threads) : gpu_({64, 64 * 64, true, seed}), random_(seed) {
        for (CUstream& stream : streams_) stream = gpu_.create_stream();
        waiting_.resize(threads);
    }

    // Each thread records a fence, and enters it in some later step of its own.
    void step() {
        std::vector<Recorded>& mine = waiting_[random_() % waiting_.size()];
        if (mine.empty()) {
            const CUstream stream = streams_[random_() % std::size(streams_)];
            const MarkerPtr work = gpu_.mark(stream);
            mine.push_back({fences_.record(stream), work});
            REQUIRE(mine.back().fence);
        } else {
            engine::SessionLock lock(mutex_);
            mine.front().use = fences_.add(std::move(mine.front().fence));
            entered_.push_back(mine.front());
            mine.clear();
        }
        if (random_() % 4 == 0) look();
    }

    void look() {
        engine::SessionLock lock(mutex_);
        fences_.poll(lock);
        for (const Recorded& each : entered_) {
            if (timelines_.finished(each.use)) CHECK(each.work->passed);
        }
    }

    // All work runs; then everything is finished, at one look.
    void finish() {
        for (std::vector<Recorded>& mine : waiting_) {
            for (Recorded& each : mine) {
                engine::SessionLock lock(mutex_);
                each.use = fences_.add(std::move(each.fence));
                entered_.push_back(each);
            }
            mine.clear();
        }
        gpu_.synchronize();
        look();
        for (const Recorded& each : entered_) {
            CHECK(timelines_.finished(each.use));
            CHECK(!fences_.fence_of(each.use));
        }
        CHECK(fences_.latest().empty());
    }

  private:
    FakePort gpu_;
    std::mt19937_64 random_;
    util::Mutex mutex_{util::LockOrder::Session};
    core::Timelines timelines_;
    engine::Fences fences_{gpu_, timelines_};
    CUstream streams_[2];
    std::vector<std::vector<Recorded>> waiting_;  // by thread
    std::vector<Recorded> entered_;
};

TEST_CASE("fences: entered in the wrong order, none counts as passed before its work is done") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        Entering entering(seed, 1 + seed % 5);
        for (int i = 0; i < 120; ++i) entering.step();
        entering.finish();
    }
}

TEST_CASE("fences: what is waited for is a fence that has not been seen to pass") {
    FakePort gpu({64, 64 * 64, true, 3});
    core::Timelines timelines;
    engine::Fences fences(gpu, timelines);
    util::Mutex mutex{util::LockOrder::Session};
    const CUstream stream = gpu.create_stream();
    const auto open = std::make_shared<std::atomic<bool>>(false);
    const engine::FencePtr first = fences.record(stream);
    gpu.launch(stream, gate(open));
    const engine::FencePtr second = fences.record(stream);
    engine::SessionLock lock(mutex);
    const core::Use late = fences.add(second);
    const core::Use early = fences.add(first);
    gpu.run(1000);
    fences.poll(lock);
    CHECK(!timelines.finished(late));
    CHECK(!timelines.finished(early));  // later in the list, though not in the stream
    CHECK(fences.fence_of(late) == second);
    CHECK(fences.fence_of(early) == second);
    *open = true;
    gpu.run(1000);
    fences.poll(lock);
    CHECK(timelines.finished(late));
    CHECK(timelines.finished(early));
}

TEST_CASE("fences: moves that go on are none of the program's work") {
    FakePort gpu({64, 64 * 64, true, 1});
    core::Timelines timelines;
    engine::Fences fences(gpu, timelines);
    util::Mutex mutex{util::LockOrder::Session};
    engine::SessionLock lock(mutex);
    const CUstream held_up = gpu.create_stream();
    const auto open = std::make_shared<std::atomic<bool>>(false);
    gpu.launch(held_up, gate(open));
    const CUstream stream = gpu.create_stream();
    for (const auto direction : {device::Direction::In, device::Direction::Out}) {
        gpu.wait_for(gpu.stream(direction), gpu.mark(held_up));
        fences.add(fences.record(gpu.stream(direction)));
    }
    CHECK(fences.latest_of_program().empty());
    fences.add(fences.record(stream));
    CHECK(fences.latest_of_program().size() == 1);
    for (int i = 0; i < 100; ++i) fences.poll(lock);
    CHECK(fences.latest_of_program().empty());
    CHECK(fences.latest().size() == 2);
    *open = true;
}

}  // namespace
}  // namespace lms::fake
