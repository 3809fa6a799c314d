// Faults that went unnoticed once: what each test holds is a single line somewhere in executor/, session/ or
// program/.
#include <doctest/doctest.h>

#include <thread>

#include "shim/executor/block_source.h"
#include "shim/executor/own_moves.h"
#include "shim/program/contexts.h"
#include "shim/program/streams.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

Gate opened() {
    return std::make_shared<std::atomic<bool>>(true);
}

// The buffer that was made last.
void free_last(Scene& scene) {
    scene.rig.drain();
    REQUIRE(scene.rig.session().free(scene.regions.back().address) == CUDA_SUCCESS);
    scene.regions.pop_back();
    scene.expected.pop_back();
}

TEST_CASE("eviction: a copy out from before a buffer was written is not taken for one from after it") {
    for (const bool maps_host : {true, false}) {
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
            CAPTURE(maps_host);
            CAPTURE(seed);
            Scene scene(options_of(Safety::Args, seed, maps_host));
            const std::size_t once = scene.make(2);
            const std::size_t twice = scene.make(2);
            scene.make(16);
            const std::size_t written = scene.make(2);
            const std::size_t warm = scene.make(42);
            scene.make(20);
            free_last(scene);
            for (const std::size_t each : {written, warm})
                REQUIRE(scene.need(each, scene.stream) == CUDA_SUCCESS);
            scene.rig.drain();
            // It is copied out ahead of need, which is not known to be complete before it is copied again.
            FakePort& gpu = scene.rig.gpu();
            const CUstream out = gpu.stream(device::Direction::Out);
            const Gate copies = closed();
            gpu.at(Call::Record, 2, [&] {  // after that of what comes in
                gpu.finish(gpu.mark(out));
                gpu.launch(out, gate(copies));
            });
            REQUIRE(scene.need(once, scene.stream) == CUDA_SUCCESS);
            REQUIRE(scene.rig.submit(scene.late_write(scene.stream, written, opened(), true)) ==
                    CUDA_SUCCESS);
            scene.changed(written);
            for (const std::size_t each : {warm, once})
                REQUIRE(scene.need(each, scene.stream) == CUDA_SUCCESS);
            gpu.finish(gpu.mark(scene.stream));
            REQUIRE(scene.need(twice, scene.stream) == CUDA_SUCCESS);
            *copies = true;
            scene.rig.drain();
            scene.make(20);
            CHECK(scene.place(written) == Place::Host);
            scene.check();
        }
    }
}

TEST_CASE("eviction: a buffer is freed while host memory is made for it, and a smaller one takes its place") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(2);
    scene.make(62);
    scene.rig.drain();
    const std::uint64_t granule = scene.rig.options().granularity;
    Region next{0, 2 * granule};
    REQUIRE(scene.rig.session().allocate(next.bytes, next.address) == CUDA_SUCCESS);
    scene.rig.gpu().at(Call::Create, 1, [&] {
        Address small = 0;
        REQUIRE(scene.rig.session().free(scene.regions[cold].address) == CUDA_SUCCESS);
        REQUIRE(scene.rig.session().allocate(granule, small) == CUDA_SUCCESS);
    });
    const Bytes bytes = noise(3, next.bytes);
    REQUIRE(scene.rig.write(scene.stream, next, bytes) == CUDA_SUCCESS);
    scene.regions[cold] = next;
    scene.expected[cold] = bytes;
    scene.check();
}

TEST_CASE("page-in: opaque work that comes while room is made holds up what was to come in") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Opaque, seed));
        const std::size_t cold = scene.make(2);
        scene.make(63);
        free_last(scene);
        scene.rig.session().reclaim(64 * 64);
        REQUIRE(scene.place(cold) == Place::Host);
        FakePort& gpu = scene.rig.gpu();
        const Gate gate_ = closed();
        gpu.at(Call::Create, 1, [&] {
            Job job = scene.late_write(scene.rig.stream(), cold, gate_, false);
            job.opaque = true;
            REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
            scene.changed(cold);
            // What is written between the remap and the copy is overwritten.
            gpu.at(Call::Copy, 1, [&] {
                *gate_ = true;
                gpu.run(1000);
            });
            scene.open_after_a_while(gate_);
        });
        CHECK(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        *gate_ = true;
        scene.check();
    }
}

TEST_CASE("fences: those of a new stream say nothing of a stream that is gone but not done") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        FakePort gpu({64, 64 * 64, true, seed});
        engine::Timelines timelines;
        executor::Fences fences(gpu, timelines);
        util::Mutex mutex{util::LockOrder::Session};
        executor::SessionLock lock(mutex);
        const CUstream old = gpu.create_stream();
        fences.add(fences.record(old));
        gpu.finish(gpu.mark(old));
        const Gate gate_ = closed();
        gpu.launch(old, gate(gate_));
        const engine::Use late = fences.add(fences.record(old));
        fences.forget(fences.key_of(old));
        const CUstream other = gpu.create_stream();
        for (int i = 0; i < 4; ++i) fences.add(fences.record(other));
        gpu.finish(gpu.mark(other));
        fences.poll(lock);
        CHECK(!timelines.finished(late));
        *gate_ = true;
        gpu.finish_all();
        fences.poll(lock);
        CHECK(timelines.finished(late));
    }
}

TEST_CASE("session: what an object reached stays until all work of its time is done") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Args, seed));
        const std::size_t cold = scene.make(60);
        const std::size_t next = scene.make(60);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        session::Session& session = scene.rig.session();
        const session::Range range{scene.regions[cold].address, scene.regions[cold].bytes};
        std::pmr::vector<engine::ChunkRequest> needs;
        session.name({}, {&range, 1}, needs);
        session::ResidentPins kept;
        REQUIRE(session.pin_resident(needs, kept) == CUDA_SUCCESS);
        session.reached();
        const CUstream other = scene.rig.stream();
        const Gate first = closed();
        const Gate second = closed();
        REQUIRE(scene.rig.submit({other, {}, {}, false, gate(first)}) == CUDA_SUCCESS);
        REQUIRE(scene.rig.submit(scene.late_write(other, cold, second, false)) == CUDA_SUCCESS);
        scene.changed(cold);
        session.unpin_reached(kept);
        *first = true;
        scene.open_before_remap(cold, second);
        scene.open_after_a_while(second);
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        *second = true;
        scene.check();
    }
}

TEST_CASE("session: work whose fence is refused is waited for, and nothing moves under it") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Args, seed));
        const std::size_t cold = scene.make(60);
        const std::size_t next = scene.make(60);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        FakePort& gpu = scene.rig.gpu();
        const Gate gate_ = closed();
        gpu.fail(Call::Record, 1, CUDA_ERROR_OUT_OF_MEMORY);
        gpu.at(Call::WaitForStream, 1, [gate_] { *gate_ = true; });
        REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), cold, gate_, true)) == CUDA_SUCCESS);
        scene.changed(cold);
        scene.open_before_remap(cold, gate_);
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        *gate_ = true;
        scene.check();
    }
}

TEST_CASE("eviction: host memory is not lost where the driver refuses to put it behind a buffer") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(60);
    const std::size_t next = scene.make(60);
    FakePort& gpu = scene.rig.gpu();
    const Region& region = scene.regions[cold];
    const auto host_handles = [&] {
        return gpu.with_memory([](const Memory& memory) { return memory.handles(Place::Host); });
    };
    std::size_t handles = 0;
    for (int round = 0; round < 20; ++round) {
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        gpu.before_unmap(region.address, region.address + region.bytes, Place::Device,
                         [&] { gpu.fail(Call::Map, 1, CUDA_ERROR_OUT_OF_MEMORY); });
        scene.need(next, scene.stream);
        REQUIRE(scene.need(next, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        if (round == 4) handles = host_handles();
    }
    CHECK(host_handles() == handles);
    scene.check();
}

TEST_CASE("blocks: one that the driver refuses takes no addresses") {
    for (const Call refused : {Call::Create, Call::Map}) {
        FakePort gpu({64, 64 * 64, true, 1});
        Address begin = 0;
        REQUIRE(gpu.reserve(64, begin) == CUDA_SUCCESS);
        engine::Arena aliases(begin, 64, 64, 0);
        engine::BlockPool free;
        executor::BlockSource source(gpu, free, device::Place::Device, aliases);
        util::Mutex mutex{util::LockOrder::Session};
        executor::SessionLock lock(mutex);
        engine::Block block;
        gpu.fail(refused, 1, CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(source.create(64, block, lock) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(source.held_bytes() == 0);
        CHECK(source.create(64, block, lock) == CUDA_SUCCESS);
    }
}

TEST_CASE("blocks: what the driver took long to refuse is not asked for again while as much would be held") {
    FakePort gpu({64, 64 * 64, true, 1});
    Address begin = 0;
    REQUIRE(gpu.reserve(16 * 64, begin) == CUDA_SUCCESS);
    engine::Arena aliases(begin, 16 * 64, 64, 0);
    engine::BlockPool free;
    executor::BlockSource source(gpu, free, device::Place::Device, aliases);
    util::Mutex mutex{util::LockOrder::Session};
    executor::SessionLock lock(mutex);
    engine::Block first, second, block;
    REQUIRE(source.create(2 * 64, first, lock) == CUDA_SUCCESS);
    REQUIRE(source.create(2 * 64, second, lock) == CUDA_SUCCESS);
    gpu.fail(Call::Map, 1, CUDA_ERROR_NOT_READY);
    gpu.at(Call::Map, 1, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
    CHECK(source.create(64, block, lock) == CUDA_ERROR_NOT_READY);
    const std::uint64_t asked = gpu.calls(Call::Create);
    CHECK(source.create(64, block, lock) == CUDA_ERROR_OUT_OF_MEMORY);
    // What is given back makes room for as much, and for no more.
    free.put(first);
    REQUIRE(source.trim(2 * 64, lock) == 2 * 64);
    CHECK(source.create(3 * 64, block, lock) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(gpu.calls(Call::Create) == asked);
    CHECK(source.create(2 * 64, block, lock) == CUDA_SUCCESS);
    CHECK(gpu.calls(Call::Create) == asked + 1);
}

TEST_CASE("blocks: what lay free all the time is told apart from what was used meanwhile") {
    engine::BlockPool pool;
    const auto block = [&](std::uint64_t bytes) {
        pool.begin_create(bytes);
        pool.put({.place = device::Place::Device, .bytes = bytes});
    };
    block(2);
    block(3);
    CHECK(pool.take_idle_bytes() == 0);
    CHECK(pool.take_idle_bytes() == 5);
    const auto taken = pool.take(2);
    REQUIRE(taken);
    pool.put(*taken);
    CHECK(pool.take_idle_bytes() == 3);
    block(1);
    CHECK(pool.take_idle_bytes() == 5);
    CHECK(pool.take_for_driver(1, true).size() == 1);  // of 1, 2 and 3
    pool.take_for_driver(3);
    CHECK(pool.take_idle_bytes() == 2);
    CHECK(pool.take_for_driver(1, true).empty());
    CHECK(pool.take_for_driver(3, true).size() == 1);
}

TEST_CASE("budget: what no buffer has needed goes back to the driver, and what was promised stays") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Scene scene(options_of(Safety::Args, 1, maps_host));
        session::Session& session = scene.rig.session();
        // Bytes of the device, and blocks of the host.
        const auto held = [&](Place place) {
            return scene.rig.gpu().with_memory([&](const Memory& memory) {
                return place == Place::Device ? memory.used_bytes() : memory.handles(place) + memory.pinned();
            });
        };
        scene.make(16);
        const std::size_t cold = scene.make(30);
        const std::size_t first = scene.regions.size();
        for (int i = 0; i < 3; ++i) scene.make(30);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        while (scene.regions.size() > first) {
            REQUIRE(session.free(scene.regions.back().address) == CUDA_SUCCESS);
            scene.regions.pop_back();
            scene.expected.pop_back();
        }
        const std::uint64_t device = held(Place::Device), host = held(Place::Host);
        session.give_back_idle();  // some of it was used since the last look
        CHECK(held(Place::Device) == device);
        CHECK(held(Place::Host) == host);
        session.give_back_idle();
        CHECK(held(Place::Device) <= 46 * 64);
        CHECK(held(Place::Host) < host);
        scene.check();
        // All of it is in use, or about to be.
        for (int i = 0; i < 3; ++i) scene.make(30);
        session.give_back_idle();
        const std::uint64_t needed = held(Place::Host);
        session.give_back_idle();
        CHECK(held(Place::Host) <= needed);
        scene.check();
    }
}

TEST_CASE("budget: memory that others turn out to have taken is not asked for again") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(16);
    scene.make(48);
    const std::size_t away = scene.make(16);
    scene.rig.drain();
    FakePort& gpu = scene.rig.gpu();
    REQUIRE(scene.rig.session().reclaim(16 * 64));
    gpu.with_memory([](Memory& memory) { memory.take_outside(16 * 64); });
    std::uint64_t made = 0;
    for (int round = 0; round < 6; ++round) {
        for (std::size_t i = 0; i < 3; ++i) REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        if (round == 2) made = gpu.calls(Call::Create);
    }
    CHECK(gpu.calls(Call::Create) == made);
    CHECK(scene.place(cold) != scene.place(away));
    scene.check();
}

TEST_CASE("budget: what is given back while the driver is asked is not taken for others'") {
    Scene scene(options_of(Safety::Args));
    scene.make(32);
    scene.make(32);
    session::Session& session = scene.rig.session();
    const std::uint64_t pieces = session.piece_bytes();
    free_last(scene);
    scene.rig.gpu().at(Call::Info, 1, [&] { REQUIRE(session.reclaim(32 * 64) == 32 * 64); });
    session.look_at_budget();
    CHECK(session.piece_bytes() == pieces);
    scene.check();
}

TEST_CASE("fences: each thread's own stream is one by itself") {
    FakePort gpu({64, 64 * 64, true, 1});
    engine::Timelines timelines;
    const executor::Fences fences(gpu, timelines);
    const engine::StreamKey mine = fences.key_of(CU_STREAM_PER_THREAD);
    engine::StreamKey others = mine;
    std::thread([&] { others = fences.key_of(CU_STREAM_PER_THREAD); }).join();
    CHECK(fences.key_of(CU_STREAM_PER_THREAD) == mine);
    CHECK(others != mine);
    for (const CUstream legacy : {CUstream{nullptr}, CU_STREAM_LEGACY}) {
        CHECK(fences.key_of(legacy) != mine);
        CHECK(fences.key_of(legacy) != others);
    }
}

TEST_CASE("migrator: who waits for a turn holds nothing that the one whose turn it is needs gone") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Args, seed, false));
        const std::size_t here = scene.make(30);
        const std::size_t away = scene.make(20);
        const std::size_t large = scene.make(60);
        const std::size_t rest = scene.make(34);
        for (const std::size_t each : {here, rest}) REQUIRE(scene.need(each, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        const CUstream stream = scene.rig.stream();
        std::thread other;
        scene.rig.gpu().at(Call::Copy, 1, [&] {
            other = std::thread([&] {
                const std::vector<Address> names{scene.regions[here].address, scene.regions[away].address};
                CHECK(scene.rig.submit({stream, names, {}, false, [](Memory&) { return true; }}) ==
                      CUDA_SUCCESS);
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        });
        CHECK(scene.need(large, scene.stream) == CUDA_SUCCESS);
        REQUIRE(other.joinable());
        other.join();
        scene.check();
    }
}

TEST_CASE("migrator: who waits in vain lets the next have its turn") {
    Scene scene(options_of(Safety::Args, 1, false));
    const std::size_t busy = scene.make(40);
    const std::size_t small = scene.make(10);
    const std::size_t large = scene.make(60);
    REQUIRE(scene.need(busy, scene.stream) == CUDA_SUCCESS);
    scene.rig.drain();
    REQUIRE(scene.place(small) == Place::Host);
    FakePort& gpu = scene.rig.gpu();
    const Gate gate_ = closed();
    REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), busy, gate_, true)) == CUDA_SUCCESS);
    scene.changed(busy);
    const CUstream stream = scene.rig.stream();
    std::atomic<bool> in_vain{false};
    std::thread next;
    gpu.at(Call::Query, 200, [&] {
        // Many times what is asked before one gives way.
        gpu.at(Call::Query, 200000, [&] {
            in_vain = true;
            *gate_ = true;
        });
        next = std::thread([&] {
            CHECK(scene.need(small, stream) == CUDA_SUCCESS);
            CHECK(!in_vain);
            *gate_ = true;
        });
    });
    CHECK(scene.need(large, scene.stream) == CUDA_SUCCESS);
    REQUIRE(next.joinable());
    next.join();
    scene.check();
}

// As a signal handler does that interrupts the thread.
TEST_CASE("migrator: a thread that would wait for its own move is refused, and nothing is lost") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(2);
    scene.make(64);
    scene.rig.drain();
    REQUIRE(scene.place(cold) == Place::Host);
    int refused = 0;
    // Two that make room go before.
    scene.rig.gpu().at(Call::Unmap, 3, [&] {
        try {
            scene.rig.session().free(scene.regions[cold].address);
        } catch (const executor::WaitsForItself&) {
            ++refused;
        }
    });
    CHECK(scene.need(cold, scene.stream) == CUDA_SUCCESS);
    CHECK(refused == 1);
    scene.check();
}

TEST_CASE("migrator: no room for a buffer that was freed meanwhile is no failure") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Scene scene(options_of(Safety::Args, 1, maps_host));
        const std::size_t freed = scene.make(2);
        scene.make(64);
        scene.rig.drain();
        REQUIRE(scene.place(freed) == Place::Host);
        FakePort& gpu = scene.rig.gpu();
        gpu.fail(Call::Copy, 1, CUDA_ERROR_OUT_OF_MEMORY);
        gpu.at(Call::Copy, 1,
               [&] { REQUIRE(scene.rig.session().free(scene.regions[freed].address) == CUDA_SUCCESS); });
        CHECK(scene.need(freed, scene.stream) == CUDA_SUCCESS);
        scene.regions.erase(scene.regions.begin());
        scene.expected.erase(scene.expected.begin());
        scene.check();
    }
}

TEST_CASE("page-in: what opaque work may have written is there until it is overwritten") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        Scene scene(options_of(Safety::Opaque, seed));
        scene.make(60);
        Region buffer{0, 8 * scene.rig.options().granularity};
        REQUIRE(scene.rig.session().allocate(buffer.bytes, buffer.address) == CUDA_SUCCESS);
        const Bytes hidden = noise(seed, buffer.bytes);
        const Bytes last = noise(seed + 100, buffer.bytes);
        REQUIRE(scene.rig.submit({scene.stream, {}, {}, true, write_kernel(buffer.address, hidden)}) ==
                CUDA_SUCCESS);
        scene.rig.drain();
        // It is submitted first and runs last.
        const Gate open = closed();
        const CUstream late = scene.rig.stream();
        const session::Range whole{buffer.address, buffer.bytes, true};
        REQUIRE(scene.rig.submit(
                    {late, {}, {whole}, false, both(gate(open), write_kernel(buffer.address, last))}) ==
                CUDA_SUCCESS);
        const auto seen = std::make_shared<Bytes>(buffer.bytes);
        REQUIRE(scene.rig.submit({scene.stream, {buffer.address}, {}, false, read_kernel(buffer, seen)}) ==
                CUDA_SUCCESS);
        scene.rig.gpu().finish(scene.rig.gpu().mark(scene.stream));
        CHECK(*seen == hidden);
        *open = true;
        scene.regions.push_back(buffer);
        scene.expected.push_back(last);
        scene.check();
    }
}

TEST_CASE("streams: those of a context go with it, and no others") {
    const auto context = [](std::uintptr_t value) { return reinterpret_cast<CUcontext>(value); };
    const auto stream = [](std::uintptr_t value) { return reinterpret_cast<CUstream>(value); };
    program::stream_created(stream(0x8010), context(0x9010));
    program::stream_created(stream(0x8020), context(0x9020));
    program::streams_destroyed_with(context(0x9010));
    CHECK(program::context_of_known(stream(0x8010)) == nullptr);
    CHECK(program::context_of_known(stream(0x8020)) == context(0x9020));
    program::streams_destroyed_with(context(0x9020));
    CHECK(program::known_streams().empty());
}

TEST_CASE("contexts: who was given access to one GPU was not given it to another") {
    constexpr CUdevice kFirst = 41;
    constexpr CUdevice kSecond = 42;
    constexpr CUdevice kThird = 43;
    program::peer_admitted(kFirst, kSecond);
    program::peer_admitted(kThird, kFirst);
    CHECK(program::peers_of(kFirst) == std::vector<CUdevice>{kSecond});
    CHECK(program::peers_of(kSecond).empty());
    CHECK(program::peers_of(kThird) == std::vector<CUdevice>{kFirst});
}

}  // namespace
}  // namespace lms::fake
