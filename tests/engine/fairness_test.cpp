// Threads that want what others have: each gets on.
#include <doctest/doctest.h>

#include <deque>
#include <thread>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

constexpr std::size_t kEnough = 400;

// Launches over one buffer, a few ahead of the GPU, until `stop`; how many.
void launch_on(Scene& scene, CUstream stream, Region region, std::atomic<bool>& stop,
               std::atomic<std::size_t>& count) {
    std::deque<MarkerPtr> ahead;
    while (!stop) {
        Job job{stream, {region.address}, {}, false, mix_kernel(region, {}, 7)};
        if (scene.rig.submit(std::move(job)) != CUDA_SUCCESS) return;
        ahead.push_back(scene.rig.gpu().mark(stream));
        if (ahead.size() > 4) {
            scene.rig.gpu().finish(ahead.front());
            ahead.pop_front();
        }
        if (++count == kEnough) stop = true;
    }
}

// Threads with a buffer of `granules` each, until one has done enough; the fewest launches of any.
std::size_t fewest(const RigOptions& options, std::size_t threads, std::uint64_t granules) {
    Scene scene(options);
    std::vector<Region> regions;
    for (std::size_t i = 0; i < threads; ++i) regions.push_back(scene.regions[scene.make(granules)]);
    std::vector<CUstream> streams;
    for (std::size_t i = 0; i < threads; ++i) streams.push_back(scene.rig.stream());
    std::atomic<bool> stop{false};
    std::vector<std::atomic<std::size_t>> counts(threads);
    std::vector<std::thread> running;
    for (std::size_t i = 0; i < threads; ++i) {
        running.emplace_back([&, i] { launch_on(scene, streams[i], regions[i], stop, counts[i]); });
    }
    for (std::thread& thread : running) thread.join();
    scene.rig.drain();
    CHECK(scene.rig.gpu().violation() == "");
    return *std::min_element(counts.begin(), counts.end());
}

TEST_CASE("fairness: two threads whose buffers exclude each other get about as much") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        CHECK(fewest(options_of(Safety::Args, 1, maps_host), 2, 40) > kEnough / 10);
    }
}

TEST_CASE("fairness: of eight that do not fit together none waits without end") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        CHECK(fewest(options_of(Safety::Args, 1, maps_host), 8, 16) > kEnough / 80);
    }
}

}  // namespace
}  // namespace lms::fake
