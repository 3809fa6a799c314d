// Buffers that go: wherever they are, in stream order or not, and what is left of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

RigOptions small(bool maps_host) {
    RigOptions options;
    options.granules = 64;
    options.maps_host = maps_host;
    return options;
}

Region allocate(Rig& rig, std::uint64_t granules) {
    Region region{0, granules * rig.options().granularity};
    REQUIRE(rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
    return region;
}

// Nothing of the program's is mapped, the device is as good as untouched, and what is kept of the host is
// idle.
void check_gone(Rig& rig) {
    rig.session().reclaim(rig.budget());
    rig.gpu().with_memory([&](const Memory& memory) {
        CHECK(memory.handles(Place::Device) == 0);
        CHECK(memory.used_bytes() == 0);
        // Each host handle has its alias and no other mapping.
        CHECK(memory.mappings() == memory.handles(Place::Host));
    });
    // Fences are kept for their streams' next ones.
    rig.destroy_streams();
    CHECK(rig.gpu().live_events() == 0);
    CHECK(rig.gpu().violation() == "");
}

TEST_CASE(
    "free: the chunks of a buffer are let in and taken away together, or where that is refused by itself") {
    for (const bool maps_host : {true, false}) {
        for (const bool refused : {false, true}) {
            CAPTURE(maps_host);
            CAPTURE(refused);
            RigOptions options = small(maps_host);
            options.granules = 4096;
            Rig rig(options);
            FakePort& gpu = rig.gpu();
            allocate(rig, 16);
            if (refused) gpu.fail(Call::Admit, 1, CUDA_ERROR_INVALID_VALUE);
            const std::uint64_t maps = gpu.calls(Call::Map), admits = gpu.calls(Call::Admit);
            const Region region = allocate(rig, 512);
            CHECK(gpu.calls(Call::Map) - maps > 1);
            CHECK(gpu.calls(Call::Admit) - admits == 1);
            CHECK(rig.on_device(region) == region.bytes);
            const Bytes bytes = noise(3, region.bytes);
            Bytes found;
            REQUIRE(rig.write(rig.stream(), region, bytes) == CUDA_SUCCESS);
            REQUIRE(rig.read(rig.stream(), region, found) == CUDA_SUCCESS);
            CHECK(found == bytes);
            rig.drain();
            if (refused) gpu.fail(Call::Unmap, 1, CUDA_ERROR_INVALID_VALUE);
            const std::uint64_t unmaps = gpu.calls(Call::Unmap);
            CHECK(rig.session().free(region.address) == CUDA_SUCCESS);
            CHECK((gpu.calls(Call::Unmap) - unmaps == 1) == !refused);
            CHECK(gpu.violation() == "");
            gpu.with_memory([&](const Memory& memory) {
                CHECK(memory.mappings(region.address, region.address + region.bytes) == 0);
            });
        }
    }
}

TEST_CASE("free: a buffer of which a part in the middle is not mapped") {
    RigOptions options = small(false);
    options.granules = 512;
    Rig rig(options);
    const CUstream stream = rig.stream();
    const std::uint64_t granule = options.granularity;
    const Region region = allocate(rig, 256), cold{region.address + 64 * granule, 64 * granule};
    const Region other = allocate(rig, 192), late = allocate(rig, 96);
    const auto nothing = [](Memory&) { return true; };
    const auto use = [&](const Region& one) {
        REQUIRE(rig.submit({stream, {}, {{one.address, one.bytes}}, false, nothing}) == CUDA_SUCCESS);
    };
    use({region.address, 64 * granule});
    use({region.address + 128 * granule, 128 * granule});
    use(other);
    rig.drain();
    use(late);
    rig.drain();
    REQUIRE(rig.on_device(cold) < cold.bytes);
    REQUIRE(rig.on_device({region.address, granule}) == granule);
    CHECK(rig.session().free(region.address) == CUDA_SUCCESS);
    CHECK(rig.gpu().violation() == "");
    rig.gpu().with_memory([&](const Memory& memory) {
        CHECK(memory.mappings(region.address, region.address + region.bytes) == 0);
    });
}

TEST_CASE("free: buffers are freed on the device, on the host and while they come in") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            RigOptions options = small(maps_host);
            options.seed = seed;
            Rig rig(options);
            const CUstream stream = rig.stream();
            std::vector<Region> buffers;
            for (int i = 0; i < 8; ++i) {
                buffers.push_back(allocate(rig, 16));
                rig.write(stream, buffers.back(), noise(7, buffers.back().bytes));
            }
            // Its copy in may be on its way; the launch has ended by the time of the free.
            rig.submit({stream, {buffers[0].address}, {}, false, [](Memory&) { return true; }});
            rig.gpu().finish(rig.gpu().mark(stream));
            for (const Region& region : buffers) {
                CHECK(rig.session().buffer_at(region.address + 1));
                CHECK(rig.session().free(region.address + 1) == CUDA_ERROR_INVALID_VALUE);
                CHECK(rig.session().free(region.address) == CUDA_SUCCESS);
                CHECK_FALSE(rig.session().buffer_at(region.address));
                CHECK(rig.session().free(region.address) == CUDA_ERROR_INVALID_VALUE);
            }
            check_gone(rig);
        }
    }
}

TEST_CASE("free: freed in stream order, it goes once the stream is there") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Rig rig(small(maps_host));
        const CUstream stream = rig.stream();
        const Region first = allocate(rig, 16);
        const Region second = allocate(rig, 60);
        rig.write(stream, second, noise(2, second.bytes));
        rig.write(stream, first, noise(1, first.bytes));
        const auto open = std::make_shared<std::atomic<bool>>(false);
        const auto last = std::make_shared<Bytes>(first.bytes);
        REQUIRE(
            rig.submit({stream, {first.address}, {}, false, both(gate(open), read_kernel(first, last))}) ==
            CUDA_SUCCESS);
        REQUIRE(rig.session().free_on(stream, first.address) == CUDA_SUCCESS);
        CHECK(rig.session().free(first.address) == CUDA_ERROR_INVALID_VALUE);
        CHECK(rig.session().free_on(stream, first.address) == CUDA_ERROR_INVALID_VALUE);
        // Others must not get its memory yet.
        const Region third = allocate(rig, 16);
        CHECK(third.address != first.address);
        const CUstream other = rig.stream();
        rig.write(other, third, noise(3, third.bytes));
        *open = true;
        rig.gpu().finish(rig.gpu().mark(stream));
        CHECK(*last == noise(1, first.bytes));
        REQUIRE(rig.session().free(second.address) == CUDA_SUCCESS);
        REQUIRE(rig.session().free(third.address) == CUDA_SUCCESS);
        check_gone(rig);
    }
}

// It leaves the GPU for other work when it is freed in stream order; one thread finds its stream to be there,
// and another ends its context.
TEST_CASE("free: what goes with its context while it is given back goes once") {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        RigOptions options = small(true);
        options.seed = seed;
        Rig rig(options);
        const auto context = reinterpret_cast<CUcontext>(0x9010);
        const CUstream stream = rig.stream();
        Region goes{0, 16 * rig.options().granularity};
        REQUIRE(rig.session().allocate(goes.bytes, goes.address, context) == CUDA_SUCCESS);
        rig.write(stream, goes, noise(1, goes.bytes));
        const Region others[] = {allocate(rig, 32), allocate(rig, 32)};
        for (const Region& each : others) rig.write(stream, each, noise(2, each.bytes));
        const auto need = [&](const Region& each) {
            rig.submit({stream, {each.address}, {}, false, [](Memory&) { return true; }});
            rig.drain();
        };
        need(goes);
        std::vector<std::thread> threads;
        bool leaves = false;
        Region made{};
        rig.gpu().before_unmap(goes.address, goes.address + goes.bytes, Place::Device, [&] {
            leaves = true;
            CHECK(rig.session().free_on(rig.stream(), goes.address) == CUDA_SUCCESS);
            threads.emplace_back([&] { made = allocate(rig, 1); });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            threads.emplace_back([&] { rig.session().context_gone(context, {}); });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        });
        for (int i = 0; i < 4 && !leaves; ++i) std::ranges::for_each(others, need);
        REQUIRE(leaves);
        for (std::thread& each : threads) each.join();
        std::vector<Region> next{made};
        for (int i = 0; i < 3; ++i) next.push_back(allocate(rig, 8));
        for (std::uint32_t i = 0; i < next.size(); ++i) rig.write(stream, next[i], noise(i, next[i].bytes));
        for (std::uint32_t i = 0; i < next.size(); ++i) {
            Bytes bytes(next[i].bytes);
            rig.read(stream, next[i], bytes);
            CHECK(bytes == noise(i, next[i].bytes));
        }
        next.insert(next.end(), std::begin(others), std::end(others));
        for (const Region& each : next) CHECK(rig.session().free(each.address) == CUDA_SUCCESS);
        check_gone(rig);
    }
}

TEST_CASE("free: memory freed on a stream comes back to the same stream at once, to no other") {
    Rig rig(small(true));
    const CUstream stream = rig.stream();
    const CUstream other = rig.stream();
    const Region buffer = allocate(rig, 4);
    const auto open = std::make_shared<std::atomic<bool>>(false);
    REQUIRE(rig.submit({stream, {buffer.address}, {}, false, gate(open)}) == CUDA_SUCCESS);
    REQUIRE(rig.session().free_on(stream, buffer.address) == CUDA_SUCCESS);
    Address elsewhere = 0;
    REQUIRE(rig.session().allocate_on(other, buffer.bytes, elsewhere) == CUDA_SUCCESS);
    CHECK(elsewhere != buffer.address);
    Address again = 0;
    REQUIRE(rig.session().allocate_on(stream, buffer.bytes - 5, again) == CUDA_SUCCESS);
    CHECK(again == buffer.address);
    REQUIRE(rig.session().buffer_at(again));
    CHECK(rig.session().buffer_at(again)->bytes == buffer.bytes - 5);
    Address third = 0;
    REQUIRE(rig.session().allocate_on(stream, buffer.bytes, third) == CUDA_SUCCESS);
    CHECK(third != buffer.address);
    *open = true;
    rig.drain();
    for (const Address address : {elsewhere, again, third}) {
        CHECK(rig.session().free(address) == CUDA_SUCCESS);
    }
    check_gone(rig);
}

TEST_CASE("free: what was freed in stream order counts as free once the stream is there") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        RigOptions options = small(maps_host);
        options.host_granules = 32;
        Rig rig(options);
        const CUstream stream = rig.stream();
        const Region all = allocate(rig, rig.capacity() / options.granularity);
        const auto open = std::make_shared<std::atomic<bool>>(false);
        // It names nothing: what is allocated is more than fits at once.
        REQUIRE(rig.submit({stream, {}, {}, false, gate(open)}) == CUDA_SUCCESS);
        REQUIRE(rig.session().free_on(stream, all.address) == CUDA_SUCCESS);
        SUBCASE("long ago") {
            *open = true;
            rig.drain();
        }
        SUBCASE("soon") {
            rig.gpu().at(Call::Query, 20, [&] { *open = true; });
        }
        const Region again = allocate(rig, rig.capacity() / options.granularity);
        REQUIRE(rig.session().free(again.address) == CUDA_SUCCESS);
        check_gone(rig);
    }
}

// The stream comes to the earliest free first, and then that memory is anybody's.
TEST_CASE("free: an allocation in stream order takes what was freed last, and leaves what is free first") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Rig rig(small(maps_host));
        const CUstream stream = rig.stream();
        const Region first = allocate(rig, 16), second = allocate(rig, 16), rest = allocate(rig, 30);
        for (const Region& each : {first, second, rest}) rig.write(stream, each, noise(1, each.bytes));
        REQUIRE(rig.session().free_on(stream, first.address) == CUDA_SUCCESS);
        rig.drain();
        const auto open = std::make_shared<std::atomic<bool>>(false);
        REQUIRE(rig.submit({stream, {second.address}, {}, false, gate(open)}) == CUDA_SUCCESS);
        REQUIRE(rig.session().free_on(stream, second.address) == CUDA_SUCCESS);
        Address again = 0;
        REQUIRE(rig.session().allocate_on(stream, second.bytes, again) == CUDA_SUCCESS);
        CHECK(again == second.address);
        // Another stream gets the other's memory while the kernel runs.
        const Region third = allocate(rig, 16);
        rig.write(rig.stream(), third, noise(3, third.bytes));
        *open = true;
        for (const Address each : {again, rest.address, third.address})
            REQUIRE(rig.session().free(each) == CUDA_SUCCESS);
        check_gone(rig);
    }
}

namespace {

// A buffer that its stream has yet to free lies beside a cold one, and a new one wants its place.
struct Behind {
    Behind(bool maps_host, const Gate& open) : scene(options_of(Safety::Opaque, 1, maps_host)) {
        // Memory moves from here on, so that work from before is over; no more was live than fits.
        const Gate first = closed();
        freed_behind(scene.make(50), first);
        const Region large = allocate(scene.rig, 50);
        *first = true;
        scene.rig.drain();
        REQUIRE(scene.rig.session().free(large.address) == CUDA_SUCCESS);
        cold = scene.make(24);
        freed_behind(scene.make(30), open);
        fresh = {0, 24 * scene.rig.options().granularity};
        REQUIRE(scene.rig.session().allocate(fresh.bytes, fresh.address) == CUDA_SUCCESS);
    }
    void freed_behind(std::size_t index, const Gate& open) {
        REQUIRE(scene.rig.submit(scene.late_write(scene.stream, index, open, true)) == CUDA_SUCCESS);
        REQUIRE(scene.rig.session().free_on(scene.stream, scene.regions[index].address) == CUDA_SUCCESS);
        scene.regions.pop_back();
        scene.expected.pop_back();
    }
    CUresult use_fresh() {
        return scene.rig.submit(
            {scene.rig.stream(), {fresh.address}, {}, false, [](Memory&) { return true; }});
    }

    Scene scene;
    std::size_t cold = 0;
    Region fresh{};
};

}  // namespace

TEST_CASE("free: what a stream has yet to free makes room without a move, where all else fits") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const Gate open = closed();
        Behind behind(maps_host, open);
        behind.scene.open_after_a_while(open);
        CHECK(behind.use_fresh() == CUDA_SUCCESS);
        CHECK(behind.scene.place(behind.cold) == Place::Device);
        behind.scene.check();
    }
}

TEST_CASE("free: what a stream does not come to free is not waited for, and something cold goes") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const Gate open = closed();
        Behind behind(maps_host, open);
        CHECK(behind.use_fresh() == CUDA_SUCCESS);
        CHECK(behind.scene.place(behind.cold) == Place::Host);
        *open = true;
        behind.scene.check();
    }
}

TEST_CASE("free: stale addresses among a launch's arguments") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Rig rig(small(maps_host));
        const CUstream stream = rig.stream();
        const Region kept = allocate(rig, 60);
        const Region dying = allocate(rig, 16);
        const Region gone = allocate(rig, 16);
        rig.write(stream, kept, noise(1, kept.bytes));
        REQUIRE(rig.session().free(gone.address) == CUDA_SUCCESS);
        REQUIRE(rig.session().free_on(stream, dying.address) == CUDA_SUCCESS);
        rig.drain();
        CHECK(rig.submit({stream,
                          {dying.address, kept.address, gone.address, gone.address + 1000000},
                          {{dying.address, dying.bytes}, {gone.address, gone.bytes}},
                          false,
                          [](Memory&) { return true; }}) == CUDA_SUCCESS);
        Bytes bytes;
        CHECK(rig.read(stream, kept, bytes) == CUDA_SUCCESS);
        CHECK(bytes == noise(1, kept.bytes));
        rig.drain();
        REQUIRE(rig.session().free(kept.address) == CUDA_SUCCESS);
        check_gone(rig);
    }
}

TEST_CASE("free: a buffer that another thread frees after it was named is not held") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Rig rig(small(maps_host));
        const CUstream stream = rig.stream();
        const Region kept = allocate(rig, 60);
        rig.write(stream, kept, noise(1, kept.bytes));
        const Region stale = allocate(rig, 16);
        const Address names[] = {stale.address};
        std::pmr::vector<engine::ChunkRequest> needs;
        rig.session().name(names, {}, needs);
        REQUIRE(rig.session().free(stale.address) == CUDA_SUCCESS);
        Region next{};
        SUBCASE("nothing takes its place") {}
        SUBCASE("a buffer of other sizes does") {
            next = allocate(rig, 5);
            rig.write(stream, next, noise(2, next.bytes));
            Bytes bytes;
            rig.read(stream, kept, bytes);
        }
        session::ResidentPins pins;
        REQUIRE(rig.session().pin_resident(needs, pins) == CUDA_SUCCESS);
        CHECK(pins.chunks.empty());
        Bytes bytes;
        CHECK(rig.read(stream, kept, bytes) == CUDA_SUCCESS);
        CHECK(bytes == noise(1, kept.bytes));
        if (next.bytes > 0) {
            CHECK(rig.read(stream, next, bytes) == CUDA_SUCCESS);
            CHECK(bytes == noise(2, next.bytes));
            REQUIRE(rig.session().free(next.address) == CUDA_SUCCESS);
        }
        REQUIRE(rig.session().free(kept.address) == CUDA_SUCCESS);
        check_gone(rig);
    }
}

// The launch's work on the device stands in the way of room; a free must not wait for that.
TEST_CASE("free: a buffer that work is about to use in place stays until it has") {
    RigOptions options;
    options.granules = 64;
    Rig rig(options);
    const CUstream stream = rig.stream();
    const Region cold = allocate(rig, 2);  // one chunk
    const Bytes bytes = noise(1, cold.bytes);
    rig.write(stream, cold, bytes);
    const Region other = allocate(rig, 63);
    rig.write(stream, other, noise(2, other.bytes));
    rig.drain();
    session::WorkingSet reach;
    reach.ranges.push_back({cold.address, cold.bytes, false, true});
    reach.stream = stream;
    session::Work work(reach);
    REQUIRE(rig.session().acquire(work) == CUDA_SUCCESS);
    REQUIRE(!work.hold.in_place.empty());
    std::thread freeing([&] { CHECK(rig.session().free(cold.address) == CUDA_SUCCESS); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto seen = std::make_shared<Bytes>(cold.bytes);
    rig.gpu().launch(stream, read_kernel(cold, seen));
    rig.gpu().finish(rig.gpu().mark(stream));
    rig.session().submitted(work);
    freeing.join();
    CHECK(*seen == bytes);
    CHECK(rig.gpu().violation() == "");
}

TEST_CASE("free: a stale address names a part in the middle of a buffer that is being made") {
    RigOptions options = small(true);
    options.granules = 512;
    Rig rig(options);
    const CUstream stream = rig.stream();
    const std::uint64_t granule = options.granularity;
    // From here on launches are looked at, and what they name is brought in.
    const Region stale = allocate(rig, 600);
    REQUIRE(rig.session().free(stale.address) == CUDA_SUCCESS);
    rig.session().reclaim(rig.budget());
    bool named = false;
    rig.gpu().at(Call::Create, 2, [&] {
        const auto status = rig.submit(
            {stream, {}, {{stale.address + 64 * granule, granule}}, false, [](Memory&) { return true; }});
        named = status == CUDA_SUCCESS && rig.on_device({stale.address + 64 * granule, granule}) > 0;
    });
    const Region next = allocate(rig, 128);
    REQUIRE(next.address == stale.address);
    CHECK(named);
    CHECK(rig.on_device(next) == next.bytes);
    Bytes bytes;
    REQUIRE(rig.write(stream, next, noise(4, next.bytes)) == CUDA_SUCCESS);
    REQUIRE(rig.read(stream, next, bytes) == CUDA_SUCCESS);
    CHECK(bytes == noise(4, next.bytes));
    rig.drain();
    CHECK(rig.session().free(next.address) == CUDA_SUCCESS);
    check_gone(rig);
}

TEST_CASE("free: a buffer is freed while a launch that names it waits for room") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Rig rig(small(maps_host));
        const CUstream stream = rig.stream();
        const Region stale = allocate(rig, 4);
        const Region busy = allocate(rig, 56);
        const Region next = allocate(rig, 40);
        rig.write(stream, busy, noise(1, busy.bytes));
        const auto open = std::make_shared<std::atomic<bool>>(false);
        const CUstream other = rig.stream();
        REQUIRE(rig.submit({other, {stale.address}, {}, false, [](Memory&) { return true; }}) ==
                CUDA_SUCCESS);
        rig.gpu().finish(rig.gpu().mark(other));
        REQUIRE(rig.submit({other, {busy.address}, {}, false, gate(open)}) == CUDA_SUCCESS);
        std::atomic<bool> freed = false;
        bool in_time = true;
        std::thread freeing;
        std::thread watching;
        rig.gpu().at(Call::Query, 5, [&] {
            freeing = std::thread([&] {
                rig.session().free(stale.address);
                freed = true;
                *open = true;
            });
            watching = std::thread([&] {
                for (int i = 0; i < 10000 && !freed; ++i) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                in_time = freed;
                *open = true;
            });
        });
        CHECK(rig.submit({stream,
                          {stale.address, next.address},
                          {},
                          false,
                          write_kernel(next.address, noise(2, next.bytes))}) == CUDA_SUCCESS);
        REQUIRE(freeing.joinable());
        freeing.join();
        watching.join();
        CHECK(in_time);
        Bytes bytes;
        CHECK(rig.read(stream, next, bytes) == CUDA_SUCCESS);
        CHECK(bytes == noise(2, next.bytes));
        CHECK(rig.gpu().violation() == "");
    }
}

TEST_CASE("free: a buffer freed in stream order while a launch that names it looks for room") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Rig rig(small(maps_host));
        const CUstream stream = rig.stream();
        const Region stale = allocate(rig, 4);
        const Region dummy = allocate(rig, 4);
        const Region busy = allocate(rig, 50);
        const Region next = allocate(rig, 40);
        rig.write(stream, busy, noise(1, busy.bytes));
        const CUstream other = rig.stream();
        REQUIRE(rig.submit({other, {stale.address}, {}, false, [](Memory&) { return true; }}) ==
                CUDA_SUCCESS);
        // While the launch looks at fences, the free is reached, and noticed.
        rig.gpu().at(Call::Query, 1, [&] {
            REQUIRE(rig.session().free_on(other, stale.address) == CUDA_SUCCESS);
            rig.gpu().finish(rig.gpu().mark(other));
            REQUIRE(rig.session().free_on(other, dummy.address) == CUDA_SUCCESS);
        });
        CHECK(rig.submit({stream,
                          {stale.address, next.address},
                          {},
                          false,
                          write_kernel(next.address, noise(2, next.bytes))}) == CUDA_SUCCESS);
        Bytes bytes;
        CHECK(rig.read(stream, next, bytes) == CUDA_SUCCESS);
        CHECK(bytes == noise(2, next.bytes));
        rig.drain();
        REQUIRE(rig.session().free(busy.address) == CUDA_SUCCESS);
        REQUIRE(rig.session().free(next.address) == CUDA_SUCCESS);
        // Looks at what has been freed.
        REQUIRE(rig.session().free(allocate(rig, 1).address) == CUDA_SUCCESS);
        check_gone(rig);
    }
}

// There is no context here, as after the last has gone.
TEST_CASE(
    "free: a handle of the program's that outlives the last context gives its memory back when it goes") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Rig rig(options_of(Safety::Opaque, 1, maps_host));
        const std::uint64_t bytes = 8 * rig.options().granularity;
        Address home = 0;
        Address at = 0;
        REQUIRE(rig.session().create(bytes, home) == CUDA_SUCCESS);
        REQUIRE(rig.gpu().reserve(bytes, at) == CUDA_SUCCESS);
        REQUIRE(rig.map(home, at) == CUDA_SUCCESS);
        const auto handles = [&] {
            return rig.gpu().with_memory([](const Memory& memory) { return memory.handles(Place::Device); });
        };
        CHECK(handles() > 0);
        REQUIRE(rig.session().unmap(home, at) == CUDA_SUCCESS);
        rig.session().forget(home);
        CHECK(handles() == 0);
        CHECK(rig.gpu().violation() == "");
    }
}

}  // namespace
}  // namespace lms::fake
