// What nothing can have written since it came in goes out without a copy, and never what something can have.
#include <doctest/doctest.h>

#include "shim/trace/live_page.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

std::uint64_t bytes_out() {
    return trace::counters().bytes_out.load();
}

// Buffers of 16 granules, one more than fit at once.
struct Weights : Scene {
    explicit Weights(const RigOptions& options) : Scene(options) {
        for (int i = 0; i < kCount; ++i) make(16);
    }
    static constexpr int kCount = 5;

    // A kernel that only reads a buffer, and sees what is in it.
    void use(std::size_t index) {
        Bytes bytes;
        REQUIRE(rig.read(stream, regions[index], bytes) == CUDA_SUCCESS);
        CHECK(bytes == expected[index]);
    }
    void round() {
        for (std::size_t i = 0; i < regions.size(); ++i) use(i);
    }
    // It goes out, whatever it takes.
    void push_out(std::size_t index) {
        for (std::size_t i = 0; i < regions.size(); ++i) {
            if (i != index) use(i);
        }
        REQUIRE(place(index) == Place::Host);
    }
    // It comes in.
    void pull_in(std::size_t index) {
        push_out(index);
        use(index);
        REQUIRE(place(index) == Place::Device);
    }
    CUresult submit(Job job, std::size_t written) {
        const CUresult status = rig.submit(std::move(job));
        mix(expected[written], {}, 9);
        return status;
    }
    Kernel write(std::size_t index) const { return mix_kernel(regions[index], {}, 9); }
};

template <typename Body>
void at_each(Body&& body) {
    for (const bool maps_host : {true, false}) {
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
            CAPTURE(maps_host);
            CAPTURE(seed);
            RigOptions options = options_of(Safety::Opaque, seed, maps_host);
            if (seed % 2) options.policy = "next-use";
            body(options);
        }
    }
}

TEST_CASE("clean: what is only read is copied out once") {
    at_each([](const RigOptions& options) {
        Weights scene(options);
        scene.round();
        scene.round();
        const std::uint64_t before = bytes_out();
        const std::uint64_t came_in = trace::counters().bytes_in.load();
        for (int i = 0; i < 3; ++i) scene.round();
        CHECK(bytes_out() == before);
        CHECK(trace::counters().bytes_in.load() > came_in);
        scene.check();
    });
}

TEST_CASE("clean: at the levels that do not look at each kernel nothing is") {
    for (const Safety safety : {Safety::Args, Safety::Strict}) {
        Weights scene(options_of(safety));
        scene.round();
        scene.round();
        const std::uint64_t before = bytes_out();
        scene.round();
        CHECK(bytes_out() > before);
        scene.check();
    }
}

TEST_CASE("clean: what may have been written is copied out") {
    enum class By { Argument, BothArguments, Range, Opaque, Unseen, Peer };
    at_each([](const RigOptions& options) {
        for (const By by : {By::Argument, By::BothArguments, By::Range, By::Opaque, By::Unseen, By::Peer}) {
            CAPTURE(static_cast<int>(by));
            // Nobody can reach what is not named where host memory is not mapped, but it is there here.
            Weights scene(options);
            const std::size_t target = 1;
            scene.pull_in(target);
            const Address address = scene.regions[target].address;
            Job job{scene.stream, {}, {}, false, scene.write(target)};
            if (by == By::Argument || by == By::BothArguments) job.names = {address + 5};
            if (by == By::BothArguments) job.reads = {address, address + 64};
            if (by == By::Range) job.ranges = {{address, scene.regions[target].bytes}};
            job.opaque = by == By::Opaque;
            job.unseen = by == By::Unseen;
            if (by == By::Peer) {
                // It is kept for whoever has recorded its address, and let go.
                std::pmr::vector<engine::ChunkRequest> needs;
                scene.rig.session().name(std::array{address}, {}, needs);
                session::ResidentPins kept;
                REQUIRE(scene.rig.session().pin_resident(needs, kept) == CUDA_SUCCESS);
                REQUIRE(scene.submit(job, target) == CUDA_SUCCESS);
                scene.rig.drain();
                scene.rig.session().unpin_resident(kept);
            } else {
                REQUIRE(scene.submit(job, target) == CUDA_SUCCESS);
            }
            scene.rig.drain();
            scene.push_out(target);
            scene.check();
        }
    });
}

TEST_CASE(
    "clean: what was asked for beforehand, or comes back after a pause, is only read until it is written") {
    at_each([](const RigOptions& options) {
        enum class By { Prefetch, Pin, Pause };
        for (const By by : {By::Prefetch, By::Pin, By::Pause}) {
            for (const bool written : {false, true}) {
                CAPTURE(static_cast<int>(by));
                CAPTURE(written);
                Weights scene(options);
                scene.round();
                scene.round();
                const std::size_t target = 1;
                const Region& region = scene.regions[target];
                scene.push_out(target);
                scene.rig.drain();
                session::Session& session = scene.rig.session();
                if (by == By::Prefetch)
                    REQUIRE(session.prefetch(region.address, region.bytes) == session::Session::Asked::Done);
                if (by == By::Pin) {
                    REQUIRE(session.pin(region.address, region.bytes) == session::Session::Asked::Done);
                    REQUIRE(session.unpin(region.address, region.bytes));
                }
                if (by == By::Pause) {
                    scene.use(target);
                    scene.rig.drain();
                    REQUIRE(session.pause() == session::Session::Asked::Done);
                    session.resume_paused();
                }
                REQUIRE(scene.place(target) == Place::Device);
                if (written) {
                    REQUIRE(scene.submit({scene.stream, {region.address}, {}, false, scene.write(target)},
                                         target) == CUDA_SUCCESS);
                }
                scene.rig.drain();
                const std::uint64_t before = bytes_out();
                scene.push_out(target);
                if (!written) CHECK(bytes_out() == before);
                scene.check();
            }
        }
    });
}

TEST_CASE("clean: not while work is unfinished that may write anything") {
    at_each([](const RigOptions& options) {
        Weights scene(options);
        const std::size_t target = 1;
        scene.push_out(target);
        const Gate gate_ = closed();
        Job late = scene.late_write(scene.rig.stream(), target, gate_, false);
        late.unseen = true;
        REQUIRE(scene.rig.submit(late) == CUDA_SUCCESS);
        scene.use(target);
        *gate_ = true;
        scene.changed(target);
        scene.rig.drain();
        scene.push_out(target);
        scene.check();
    });
}

TEST_CASE("clean: writes that are submitted while it comes in") {
    at_each([](const RigOptions& options) {
        for (const bool named : {true, false}) {
            Weights scene(options);
            const std::size_t target = 1;
            scene.push_out(target);
            Job look{
                scene.stream, {}, {}, false, [](Memory&) { return true; }, {scene.regions[target].address}};
            REQUIRE(scene.rig.submit(look) == CUDA_SUCCESS);
            Job job{scene.stream, {}, {}, !named, scene.write(target)};
            if (named) job.names = {scene.regions[target].address};
            REQUIRE(scene.submit(job, target) == CUDA_SUCCESS);
            scene.rig.drain();
            scene.push_out(target);
            scene.check();
        }
    });
}

TEST_CASE("clean: not what work may write that is submitted while it is remapped") {
    at_each([](const RigOptions& options) {
        Weights scene(options);
        const std::size_t target = 1;
        scene.round();
        scene.round();
        scene.push_out(target);
        const Gate gate_ = closed();
        const CUstream other = scene.rig.stream();
        scene.rig.gpu().at(Call::Copy, 1, [&] {
            Job job{other, {}, {}, false, both(gate(gate_), scene.write(target))};
            job.unseen = true;
            REQUIRE(scene.submit(job, target) == CUDA_SUCCESS);
        });
        Job look{scene.stream, {}, {}, false, [](Memory&) { return true; }, {scene.regions[target].address}};
        REQUIRE(scene.rig.submit(look) == CUDA_SUCCESS);
        // What is written before it has come in is nobody's to keep.
        scene.rig.gpu().finish(scene.rig.gpu().mark(scene.stream));
        *gate_ = true;
        scene.rig.drain();
        scene.push_out(target);
        scene.check();
    });
}

TEST_CASE("clean: host memory is there for what needs it") {
    at_each([](RigOptions options) {
        options.host_granules = 40;
        Weights scene(options);
        scene.round();
        scene.round();
        // All that may be allocated; kept copies make way.
        const std::uint64_t rest = scene.rig.capacity() - Weights::kCount * 16 * options.granularity;
        scene.make(rest / options.granularity);
        scene.round();
        scene.check();
        // And what was freed can be had again.
        for (int i = 0; i < 4; ++i) {
            REQUIRE(scene.rig.session().free(scene.regions.back().address) == CUDA_SUCCESS);
            scene.regions.pop_back();
            scene.expected.pop_back();
            scene.round();
            scene.make(rest / options.granularity);
            scene.round();
        }
        scene.check();
    });
}

TEST_CASE("clean: a buffer that is freed takes its copy along") {
    at_each([](RigOptions options) {
        options.host_granules = 40;
        Weights scene(options);
        for (int i = 0; i < 12; ++i) {
            scene.round();
            REQUIRE(scene.rig.session().free(scene.regions.front().address) == CUDA_SUCCESS);
            scene.regions.erase(scene.regions.begin());
            scene.expected.erase(scene.expected.begin());
            scene.make(16);
        }
        scene.check();
    });
}

}  // namespace
}  // namespace lms::fake
