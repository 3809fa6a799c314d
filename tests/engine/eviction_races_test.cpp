// No move under work that can reach it: what may come while a chunk moves, and what must wait.
#include <doctest/doctest.h>

#include <thread>

#include "shim/program/streams.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

TEST_CASE("eviction races: a buffer that unfinished work names stays") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
            CAPTURE(seed);
            Scene scene(options_of(Safety::Args, seed, maps_host));
            const std::size_t cold = scene.make(60);
            const std::size_t next = scene.make(60);
            REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
            const Gate gate_ = closed();
            REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), cold, gate_, true)) ==
                    CUDA_SUCCESS);
            scene.changed(cold);
            scene.open_before_remap(cold, gate_);
            scene.open_after_a_while(gate_);
            CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
            *gate_ = true;
            scene.check();
        }
    }
}

TEST_CASE("eviction races: work from before the first move counts, though nobody looked at it") {
    for (const Safety safety : {Safety::Args, Safety::Opaque, Safety::Strict}) {
        for (const bool ended_stream : {false, true}) {
            CAPTURE(ended_stream);
            Scene scene(options_of(safety));
            const std::size_t cold = scene.make(60);
            const Gate gate_ = closed();
            const CUstream other = scene.rig.stream();
            // While everything fits, it makes no difference what a launch names.
            REQUIRE(scene.rig.submit(scene.late_write(other, cold, gate_, false)) == CUDA_SUCCESS);
            if (ended_stream) scene.rig.destroy(other);
            scene.changed(cold);
            scene.open_before_remap(cold, gate_);
            scene.open_after_a_while(gate_);
            const std::size_t next = scene.make(60);
            CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
            *gate_ = true;
            scene.check();
        }
    }
}

TEST_CASE(
    "eviction races: work from before the first move counts, though its stream is destroyed while it is "
    "asked for") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Opaque, seed));
        const std::size_t cold = scene.make(60);
        const Gate gate_ = closed();
        const CUstream other = scene.rig.stream();
        REQUIRE(scene.rig.submit(scene.late_write(other, cold, gate_, false)) == CUDA_SUCCESS);
        scene.changed(cold);
        scene.open_before_remap(cold, gate_);
        std::thread ending;
        scene.rig.gpu().at(Call::Query, 1 + seed % 3,
                           [&] { ending = std::thread([&] { scene.rig.destroy(other); }); });
        std::size_t next = 0;
        next = scene.make(60);
        std::thread opening([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            *gate_ = true;
        });
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        opening.join();
        if (ending.joinable()) ending.join();
        scene.check();
    }
}

TEST_CASE(
    "windows: work from before the first move counts, though that comes while its stream's end is fenced") {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Opaque, seed));
        const std::size_t cold = scene.make(60);
        const Gate gate_ = closed();
        const CUstream other = scene.rig.stream();
        REQUIRE(scene.rig.submit(scene.late_write(other, cold, gate_, false)) == CUDA_SUCCESS);
        scene.changed(cold);
        scene.open_before_remap(cold, gate_);
        scene.rig.gpu().at(Call::Record, 1, [&] {
            const std::size_t next = scene.make(60);
            CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        });
        scene.rig.destroy(other);
        *gate_ = true;
        scene.check();
    }
}

TEST_CASE("windows: work that was let through comes late, and nothing has moved under it") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Args, seed));
        const std::size_t cold = scene.make(60);
        scene.rig.drain();
        REQUIRE(program::fast_path_gate.enter());
        const std::size_t next = scene.regions.size();
        Region region{0, 60 * scene.rig.options().granularity};
        REQUIRE(scene.rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
        scene.regions.push_back(region);
        scene.expected.push_back(noise(7, region.bytes));
        // Between its copy and its remap, if it came to that.
        std::atomic<bool> launched{false};
        const auto launch = [&] {
            if (launched.exchange(true)) return;
            scene.rig.gpu().launch(scene.stream, mix_kernel(scene.regions[cold], {}, 9));
            scene.rig.gpu().run(1000);
            program::fast_path_gate.leave();
        };
        const Region& first = scene.regions[cold];
        scene.rig.gpu().before_unmap(first.address, first.address + first.bytes, Place::Device, launch);
        scene.changed(cold);
        const CUstream other = scene.rig.stream();
        std::thread writing(
            [&] { CHECK(scene.rig.write(other, region, scene.expected[next]) == CUDA_SUCCESS); });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        launch();
        writing.join();
        scene.check();
    }
}

// A thread's own stream, which the session does not know and nobody else can ask.
TEST_CASE(
    "windows: what comes late in a stream that cannot be asked is fenced, and nothing has moved under it") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Args, seed, false));
        const std::size_t cold = scene.make(60);
        scene.rig.drain();
        const CUstream own = scene.rig.gpu().create_stream();
        REQUIRE(program::fast_path_gate.enter());
        const std::size_t next = scene.regions.size();
        Region region{0, 60 * scene.rig.options().granularity};
        REQUIRE(scene.rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
        scene.regions.push_back(region);
        scene.expected.push_back(noise(7, region.bytes));
        std::thread writing(
            [&] { CHECK(scene.rig.write(scene.stream, region, scene.expected[next]) == CUDA_SUCCESS); });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const Gate gate_ = closed();
        scene.rig.gpu().launch(own, gate(gate_));
        scene.rig.gpu().launch(own, mix_kernel(scene.regions[cold], {}, 9));
        scene.changed(cold);
        CHECK(scene.rig.session().capture_nears(own, false));
        program::fast_path_gate.leave();
        scene.open_after_a_while(gate_);
        writing.join();
        *gate_ = true;
        scene.check();
    }
}

// The address of a buffer that is freed is given to the next.
TEST_CASE("windows: a pointer to freed memory names the next buffer there before it has its memory") {
    constexpr std::uint64_t kGranules = 12;
    for (const bool maps_host : {true, false}) {
        for (const bool beside : {false, true}) {        // nothing; what leaves no room on the GPU
            for (const std::uint64_t map : {0, 1, 2}) {  // 0: before there is memory to map
                CAPTURE(maps_host);
                CAPTURE(beside);
                CAPTURE(map);
                Scene scene(options_of(Safety::Args, 1, maps_host));
                Region freed{0, 16 * scene.rig.options().granularity};
                REQUIRE(scene.rig.session().allocate(freed.bytes, freed.address) == CUDA_SUCCESS);
                if (beside) scene.make(60);
                scene.rig.drain();
                REQUIRE(scene.rig.session().free(freed.address) == CUDA_SUCCESS);
                const CUstream other = scene.rig.stream();
                std::atomic<bool> launched{false};
                std::thread launching;
                scene.rig.gpu().at(map == 0 ? Call::Create : Call::Map, std::max<std::uint64_t>(map, 1), [&] {
                    launching = std::thread([&] {
                        const Job job{other, {freed.address}, {}, false, [](Memory&) { return true; }};
                        CHECK(scene.rig.submit(job) == CUDA_SUCCESS);
                        launched = true;
                    });
                    // It may have to wait for the allocation.
                    for (int ms = 0; ms < 50 && !launched; ++ms)
                        std::this_thread::sleep_for(std::chrono::milliseconds(1));
                });
                const std::size_t made = scene.make(kGranules);
                CHECK(scene.regions[made].address == freed.address);
                if (launching.joinable()) launching.join();
                scene.check();
            }
        }
    }
}

TEST_CASE("eviction races: opaque work that comes while a mover looks for memory stops it") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Opaque, seed));
        const std::size_t cold = scene.make(16);
        scene.make(32);
        const std::size_t away = scene.make(40);
        // Room that must be made anew, and that then turns out to be somebody else's.
        scene.rig.drain();
        REQUIRE(scene.rig.session().reclaim(24 * 64));
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        REQUIRE(scene.place(cold) == Place::Device);
        REQUIRE(scene.rig.session().reclaim(8 * 64));
        scene.rig.drain();
        const Gate gate_ = closed();
        scene.rig.gpu().at(Call::Create, 1, [&] {
            Job job = scene.late_write(scene.rig.stream(), cold, gate_, false);
            job.opaque = true;
            REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
            scene.changed(cold);
            scene.open_before_remap(cold, gate_);
            scene.open_after_a_while(gate_);
            scene.rig.gpu().with_memory(
                [](Memory& memory) { memory.take_outside(memory.device_bytes() - memory.used_bytes()); });
        });
        CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
        scene.rig.gpu().with_memory([](Memory& memory) { memory.take_outside(0); });
        *gate_ = true;
        scene.check();
    }
}

TEST_CASE("eviction races: work that needs a buffer while it is copied out keeps it") {
    for (const Safety safety : {Safety::Args, Safety::Opaque, Safety::Strict}) {
        for (const bool named : {true, false}) {
            // Nothing protects what is not named here.
            if (safety == Safety::Args && !named) continue;
            CAPTURE(named);
            for (std::uint64_t seed = 1; seed <= 5; ++seed) {
                CAPTURE(seed);
                Scene scene(options_of(safety, seed));
                const std::size_t cold = scene.make(2);
                const std::size_t warm = scene.make(30);
                const std::size_t third = scene.make(60);
                REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
                REQUIRE(scene.need(warm, scene.stream) == CUDA_SUCCESS);
                scene.rig.drain();
                REQUIRE(scene.place(cold) == Place::Device);
                const Gate gate_ = closed();
                scene.rig.gpu().at(Call::Copy, 1, [&] {
                    Job job = scene.late_write(scene.rig.stream(), cold, gate_, named);
                    job.opaque = !named;
                    REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
                    scene.changed(cold);
                    scene.open_before_remap(cold, gate_);
                    scene.open_after_a_while(gate_);
                });
                CHECK(scene.need(third, scene.stream) == CUDA_SUCCESS);
                *gate_ = true;
                scene.check();
            }
        }
    }
}

TEST_CASE("eviction races: opaque work that comes while a buffer is remapped waits for the end of that") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Opaque, seed));
        const std::size_t cold = scene.make(2);
        const std::size_t warm = scene.make(30);
        const std::size_t next = scene.make(60);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        REQUIRE(scene.need(warm, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        REQUIRE(scene.place(cold) == Place::Device);
        const CUstream stream = scene.rig.stream();
        std::thread other;
        // Its copy is complete; what is written to it from here on would be lost, or touch nothing at all.
        const Region& region = scene.regions[cold];
        scene.rig.gpu().before_unmap(region.address, region.address + region.bytes, Place::Device, [&] {
            other = std::thread([&] {
                Job job{stream, {}, {}, true, mix_kernel(scene.regions[cold], {}, 9)};
                scene.rig.submit(job);
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            scene.rig.gpu().run(1000);
            scene.rig.gpu().at(Call::Map, 1, [&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                scene.rig.gpu().run(1000);
            });
        });
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        REQUIRE(other.joinable());
        other.join();
        scene.changed(cold);
        scene.check();
    }
}

TEST_CASE("eviction races: a buffer freed while it is copied out") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            CAPTURE(seed);
            Scene scene(options_of(Safety::Opaque, seed, maps_host));
            const std::size_t cold = scene.make(40);
            const std::size_t next = scene.make(40);
            REQUIRE(scene.need(next, scene.stream) == CUDA_SUCCESS);
            REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
            scene.rig.drain();
            std::thread other;
            scene.rig.gpu().at(Call::Copy, 1 + seed % 5, [&] {
                other = std::thread([&] {
                    // New buffers of another size take what the freed one gives back.
                    Region small[30];
                    scene.rig.session().free(scene.regions[cold].address);
                    for (Region& region : small) scene.rig.session().allocate(64, region.address);
                    for (Region& region : small) scene.rig.session().free(region.address);
                });
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            });
            CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
            if (other.joinable()) other.join();
            scene.regions.erase(scene.regions.begin());
            scene.expected.erase(scene.expected.begin());
            scene.check();
        }
    }
}

TEST_CASE("eviction races: a stream's handle that is given again does not vouch for its old work") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        const bool with_context = seed > 5;
        Scene scene(options_of(Safety::Args, seed));
        const std::size_t cold = scene.make(30);
        const std::size_t next = scene.make(60);
        const std::size_t small = scene.make(2);
        REQUIRE(scene.need(small, scene.stream) == CUDA_SUCCESS);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        const Gate gate_ = closed();
        const CUstream old = scene.rig.stream();
        REQUIRE(scene.rig.submit(scene.late_write(old, cold, gate_, true)) == CUDA_SUCCESS);
        scene.changed(cold);
        Address freed = 0;
        REQUIRE(scene.rig.session().allocate_on(old, 128, freed) == CUDA_SUCCESS);
        REQUIRE(scene.rig.session().free_on(old, freed) == CUDA_SUCCESS);
        if (with_context) {
            const program::StreamEnd end(old);
            scene.rig.session().context_gone(reinterpret_cast<CUcontext>(0x9010), {&old, 1});
            scene.rig.gpu().destroy_stream(old);
        } else {
            scene.rig.destroy(old);
        }
        const CUstream again = scene.rig.stream();
        REQUIRE(again == old);
        Address other = 0;
        REQUIRE(scene.rig.session().allocate_on(again, 128, other) == CUDA_SUCCESS);
        CHECK(other != freed);
        for (int i = 0; i < 3; ++i) REQUIRE(scene.need(small, again) == CUDA_SUCCESS);
        scene.rig.gpu().finish(scene.rig.gpu().mark(again));
        scene.open_before_remap(cold, gate_);
        scene.open_after_a_while(gate_);
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        *gate_ = true;
        scene.check();
    }
}

TEST_CASE("kernels that never end: what is on the host is used there, and nothing moves under it") {
    for (const Safety safety : {Safety::Opaque, Safety::Strict}) {
        Scene scene(options_of(safety));
        FakePort& gpu = scene.rig.gpu();
        const std::size_t cold = scene.make(60);
        const std::size_t next = scene.make(60);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        REQUIRE(scene.place(next) == Place::Host);
        const Gate endless = closed();
        Job job = scene.late_write(scene.rig.stream(), cold, endless, false);
        job.opaque = safety == Safety::Opaque;
        REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
        scene.changed(cold);
        const std::uint64_t copies = gpu.calls(Call::Copy);
        const std::uint64_t unmaps = gpu.calls(Call::Unmap);
        const Gate gate_ = closed();
        CHECK(scene.rig.submit(scene.late_write(scene.rig.stream(), next, gate_, true)) == CUDA_SUCCESS);
        scene.changed(next);
        CHECK(gpu.calls(Call::Copy) == copies);
        CHECK(gpu.calls(Call::Unmap) == unmaps);
        CHECK(scene.place(next) == Place::Host);

        // The endless kernel ends after all. Now it can come in, but not while it is used where it is: what
        // is written between the remap and the copy would be overwritten.
        *endless = true;
        const Region& region = scene.regions[next];
        gpu.before_unmap(region.address, region.address + region.bytes, Place::Host, [&] {
            gpu.at(Call::Copy, 1, [&] {
                *gate_ = true;
                gpu.run(1000);
            });
        });
        scene.open_after_a_while(gate_);
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        *gate_ = true;
        scene.check();
    }
}

}  // namespace
}  // namespace lms::fake
