// Fences of one stream, entered in whatever order its threads get to: a use is finished only when its work
// is.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "shim/executor/fences.h"
#include "shim/program/per_thread_streams.h"
#include "shim/program/streams.h"
#include "tests/engine/rig.h"

namespace lms::fake {
namespace {

struct Recorded {
    executor::FencePtr fence;
    MarkerPtr work;  // what it stands for
    engine::Use use{};
};

// Streams whose fences are recorded in order and entered in another, while work runs and somebody looks.
class Entering {
  public:
    Entering(std::uint64_t seed, std::size_t threads) : gpu_({64, 64 * 64, true, seed}), random_(seed) {
        for (CUstream& stream : streams_) {
            stream = gpu_.create_stream();
            program::stream_created(stream, nullptr);
        }
        waiting_.resize(threads);
    }
    ~Entering() {
        for (const CUstream stream : streams_) const program::StreamEnd end(stream);
    }
    Entering(const Entering&) = delete;
    Entering& operator=(const Entering&) = delete;

    // Each thread records a fence, or leaves its work open, and enters that in some later step of its own.
    void step() {
        std::vector<Recorded>& mine = waiting_[random_() % waiting_.size()];
        if (mine.empty()) {
            const CUstream stream = streams_[random_() % std::size(streams_)];
            const MarkerPtr work = gpu_.mark(stream);
            const bool open = random_() % 3 == 0;
            mine.push_back({open ? fences_.leave_open(stream) : fences_.record(stream, spare(stream)), work});
            REQUIRE(mine.back().fence);
        } else {
            executor::SessionLock lock(mutex_);
            mine.front().use = fences_.add(std::move(mine.front().fence));
            entered_.push_back(mine.front());
            mine.clear();
        }
        if (random_() % 4 == 0) look();
    }

    void look() {
        executor::SessionLock lock(mutex_);
        fences_.poll(lock);
        for (const Recorded& each : entered_) {
            if (timelines_.finished(each.use)) CHECK(each.work->passed);
        }
    }

    // All work runs; then everything is finished, at one look.
    void finish() {
        for (std::vector<Recorded>& mine : waiting_) {
            for (Recorded& each : mine) {
                executor::SessionLock lock(mutex_);
                each.use = fences_.add(std::move(each.fence));
                entered_.push_back(each);
            }
            mine.clear();
        }
        gpu_.finish_all();
        look();
        for (const Recorded& each : entered_) {
            CHECK(timelines_.finished(each.use));
            CHECK(!fences_.fence_of(each.use));
        }
        CHECK(fences_.latest().empty());
    }

  private:
    // As launches have it: with the lock, before they record without.
    executor::FencePtr spare(CUstream stream) {
        executor::SessionLock lock(mutex_);
        return fences_.spare(fences_.key_of(stream));
    }

    FakePort gpu_;
    std::mt19937_64 random_;
    util::Mutex mutex_{util::LockOrder::Session};
    engine::Timelines timelines_;
    executor::Fences fences_{gpu_, timelines_};
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
    engine::Timelines timelines;
    executor::Fences fences(gpu, timelines);
    util::Mutex mutex{util::LockOrder::Session};
    const CUstream stream = gpu.create_stream();
    const auto open = std::make_shared<std::atomic<bool>>(false);
    const executor::FencePtr first = fences.record(stream);
    gpu.launch(stream, gate(open));
    const executor::FencePtr second = fences.record(stream);
    executor::SessionLock lock(mutex);
    const engine::Use late = fences.add(second);
    const engine::Use early = fences.add(first);
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

// A fence in the per-thread stream of a thread that ends then; the work it stands for is in `stream`.
executor::FencePtr recorded_by_thread(FakePort& gpu, const executor::Fences& fences, CUstream stream) {
    executor::FencePtr fence;
    std::thread([&] {
        CUevent event = nullptr;
        REQUIRE(gpu.record(stream, event) == CUDA_SUCCESS);
        fence = std::make_shared<executor::Fence>(gpu, event, fences.key_of(CU_STREAM_PER_THREAD), 0);
    }).join();
    return fence;
}

TEST_CASE("fences: threads that have ended leave no timelines, however many they were") {
    FakePort gpu({64, 64 * 64, true, 1});
    engine::Timelines timelines;
    executor::Fences fences(gpu, timelines);
    util::Mutex mutex{util::LockOrder::Session};
    executor::SessionLock lock(mutex);
    const CUstream stream = gpu.create_stream();
    for (int i = 0; i < 100; ++i) {
        CHECK(fences.add(recorded_by_thread(gpu, fences, stream)).timeline == 0);
        gpu.run(10);
        fences.poll(lock);
    }
}

TEST_CASE("fences: what a thread left unfinished is so whatever another's stream has done since") {
    FakePort gpu({64, 64 * 64, true, 1});
    engine::Timelines timelines;
    executor::Fences fences(gpu, timelines);
    util::Mutex mutex{util::LockOrder::Session};
    executor::SessionLock lock(mutex);
    const CUstream held_up = gpu.create_stream(), stream = gpu.create_stream();
    const auto open = std::make_shared<std::atomic<bool>>(false);
    gpu.launch(held_up, gate(open));
    const engine::Use first = fences.add(recorded_by_thread(gpu, fences, held_up));
    const engine::Use second = fences.add(recorded_by_thread(gpu, fences, stream));
    gpu.run(100);
    fences.poll(lock);
    CHECK(!timelines.finished(first));
    CHECK(timelines.finished(second));
    *open = true;
    gpu.run(100);
    fences.poll(lock);
    CHECK(timelines.finished(first));
}

TEST_CASE("fences: a context's per-thread streams go with it, though its handle comes again") {
    const auto gone = reinterpret_cast<CUcontext>(0x10), stays = reinterpret_cast<CUcontext>(0x20);
    const program::PerThreadStream first = program::per_thread_stream(gone);
    const program::PerThreadStream other = program::per_thread_stream(stays);
    CHECK(program::per_thread_stream(gone) == first);
    program::per_thread_streams_gone_with(gone);
    CHECK(!program::per_thread_stream_lives(first));
    CHECK(program::per_thread_stream(gone) != first);
    CHECK(program::per_thread_stream(stays) == other);
    CHECK(program::per_thread_stream_lives(other));
    std::thread([&] { CHECK(program::per_thread_stream(stays) != other); }).join();
}

TEST_CASE("fences: deep queues get few events, and each work is over when it is seen to be") {
    FakePort gpu({64, 64 * 64, true, 1});
    engine::Timelines timelines;
    executor::Fences fences(gpu, timelines);
    util::Mutex mutex{util::LockOrder::Session};
    executor::SessionLock lock(mutex);
    const CUstream stream = gpu.create_stream();
    program::stream_created(stream, nullptr);
    const engine::StreamKey key = fences.key_of(stream);
    const auto open = std::make_shared<std::atomic<bool>>(false);
    gpu.launch(stream, gate(open));
    std::vector<engine::Use> uses;
    constexpr std::size_t kWorks = 1000;
    while (uses.size() < kWorks) {
        const bool event = !fences.is_deep(key) || fences.is_due(key);
        uses.push_back(fences.add(event ? fences.record(stream) : fences.leave_open(stream)));
    }
    CHECK(fences.is_deep(key));
    CHECK(gpu.live_events() < kWorks / 16);
    fences.poll(lock);
    CHECK(std::ranges::none_of(uses, [&](const engine::Use& use) { return timelines.finished(use); }));
    CHECK(!fences.fence_of(uses.back())->passed());
    *open = true;
    gpu.finish(gpu.mark(stream));
    CHECK(fences.fence_of(uses.back())->passed());
    fences.poll(lock);
    CHECK(std::ranges::all_of(uses, [&](const engine::Use& use) { return timelines.finished(use); }));
    CHECK(!fences.is_deep(key));

    // What is open as the stream goes is over.
    const engine::Use last = fences.add(fences.leave_open(stream));
    CHECK(fences.is_open(key));
    { const program::StreamEnd end(stream); }
    fences.poll(lock);
    CHECK(!timelines.finished(last));
    fences.forget(key);
    fences.poll(lock);
    CHECK(timelines.finished(last));
}

TEST_CASE("fences: moves that go on are none of the program's work") {
    FakePort gpu({64, 64 * 64, true, 1});
    engine::Timelines timelines;
    executor::Fences fences(gpu, timelines);
    util::Mutex mutex{util::LockOrder::Session};
    executor::SessionLock lock(mutex);
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
