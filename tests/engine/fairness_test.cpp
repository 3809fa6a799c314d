// Threads that want what others have: each gets on.
#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <thread>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

constexpr std::size_t kEach = 20;  // launches that every thread gets to
// What one gets to at most until then: on a busy machine threads differ widely.
constexpr std::size_t kMost = 10000;

// Launches over one buffer, a few ahead of the GPU, until all threads have enough or one has had too much.
void launch_on(Scene& scene, CUstream stream, Region region, std::atomic<std::size_t>& wanting,
               std::atomic<std::size_t>& count) {
    std::deque<MarkerPtr> ahead;
    while (wanting > 0 && count < kMost) {
        Job job{stream, {region.address}, {}, false, mix_kernel(region, {}, 7)};
        if (scene.rig.submit(std::move(job)) != CUDA_SUCCESS) return;
        ahead.push_back(scene.rig.gpu().mark(stream));
        if (ahead.size() > 4) {
            scene.rig.gpu().finish(ahead.front());
            ahead.pop_front();
        }
        if (++count == kEach) --wanting;
    }
}

// Threads with a buffer of `granules` each; whether all of them got on.
bool all_get_on(const RigOptions& options, std::size_t threads, std::uint64_t granules) {
    Scene scene(options);
    std::vector<Region> regions;
    for (std::size_t i = 0; i < threads; ++i) regions.push_back(scene.regions[scene.make(granules)]);
    std::vector<CUstream> streams;
    for (std::size_t i = 0; i < threads; ++i) streams.push_back(scene.rig.stream());
    std::atomic<std::size_t> wanting{threads};
    std::vector<std::atomic<std::size_t>> counts(threads);
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < threads; ++i) {
        running.emplace_back([&, i] { launch_on(scene, streams[i], regions[i], wanting, counts[i]); });
    }
    for (std::thread& thread : running) thread.join();
    scene.rig.drain();
    CHECK(scene.rig.gpu().violation() == "");
    return wanting == 0;
}

TEST_CASE("fairness: two threads whose buffers exclude each other both get on") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        CHECK(all_get_on(options_of(Safety::Args, 1, maps_host), 2, 40));
    }
}

TEST_CASE("fairness: of eight that do not fit together none waits without end") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        CHECK(all_get_on(options_of(Safety::Args, 1, maps_host), 8, 16));
    }
}

// A buffer that always has work under way is never idle by itself: each kernel takes a while, and the next
// ones are there before it ends.
TEST_CASE("fairness: who launches without a pause makes way for who waits for that buffer to be idle") {
    using Clock = std::chrono::steady_clock;
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Scene scene(options_of(Safety::Args, 1, maps_host));
        const std::size_t busy = scene.make(40);
        const std::size_t waiting = scene.make(40);
        FakePort& gpu = scene.rig.gpu();
        const CUstream other = scene.rig.stream();
        std::atomic<bool> got_on{false};
        std::thread waiter;
        std::deque<MarkerPtr> ahead;
        std::size_t launches = 0;
        for (auto end = Clock::now(); !got_on && launches < 2000; ++launches) {
            end = std::max(end, Clock::now()) + std::chrono::milliseconds(1);
            const Job job{scene.stream, {scene.regions[busy].address}, {}, false, [end](Memory&) {
                              return Clock::now() >= end;
                          }};
            REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
            ahead.push_back(gpu.mark(scene.stream));
            if (launches == 20) {
                waiter = std::thread([&] {
                    CHECK(scene.need(waiting, other) == CUDA_SUCCESS);
                    got_on = true;
                });
            }
            if (ahead.size() > 10) {
                gpu.finish(ahead.front());
                ahead.pop_front();
            }
        }
        CHECK(launches < 2000);
        waiter.join();
        scene.check();
    }
}

// Who is about to submit holds what it needs, and may let go of the lock to see which work is over.
TEST_CASE("fairness: what a thread holds that is about to submit is waited for, and no reason to be full") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Scene scene(options_of(Safety::Args, 1, maps_host));
        const std::size_t busy = scene.make(40);
        const std::size_t waiting = scene.make(40);
        REQUIRE(scene.need(busy, scene.stream) == CUDA_SUCCESS);
        FakePort& gpu = scene.rig.gpu();
        const CUstream other = scene.rig.stream();
        const Gate gate_ = closed();
        // So many that the next one looks which are over.
        for (int i = 0; i < 40; ++i) {
            const Job job{scene.stream, {scene.regions[busy].address}, {}, false, gate(gate_)};
            REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
        }
        CUresult result = CUDA_ERROR_UNKNOWN;
        std::atomic<bool> answered{false};
        std::thread waiter;
        gpu.at(Call::Query, 1, [&] {
            const std::uint64_t before = gpu.calls(Call::Query);
            waiter = std::thread([&] {
                result = scene.need(waiting, other);
                answered = true;
            });
            while (!answered && gpu.calls(Call::Query) < before + 50) std::this_thread::yield();
        });
        REQUIRE(scene.need(busy, scene.stream) == CUDA_SUCCESS);
        REQUIRE(waiter.joinable());
        *gate_ = true;
        waiter.join();
        CHECK(result == CUDA_SUCCESS);
        scene.check();
    }
}

}  // namespace
}  // namespace lms::fake
