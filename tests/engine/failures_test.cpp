// The driver refuses a call, any call, once: no byte is lost, nothing is leaked, and everything works again.
#include <doctest/doctest.h>

#include "tests/engine/program.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

struct Failing {
    Call call;
    const char* name;
    bool leaks;  // what could not be taken away cannot be given back
};

constexpr Failing kFailing[] = {
    {Call::Info, "memory_info", false}, {Call::Create, "create", false},
    {Call::Map, "map", false},          {Call::Admit, "admit", false},
    {Call::Pin, "pin", false},          {Call::Copy, "copy", false},
    {Call::Record, "record", false},    {Call::Wait, "wait_in_stream", false},
    {Call::Query, "query", false},      {Call::Unmap, "unmap", true},
};

void run_failing(bool maps_host, const Failing& failing, std::uint64_t nth) {
    CAPTURE(maps_host);
    CAPTURE(failing.name);
    CAPTURE(nth);
    RigOptions options;
    options.maps_host = maps_host;
    options.granules = 40;
    options.seed = nth;
    if (nth % 2) options.policy = "build/random/reckless.so";
    Rig rig(options);
    ProgramOptions shape;
    shape.streams = 2;
    shape.buffers = 8;
    shape.granules = 10;
    shape.may_run_out = true;
    Program program(rig, shape, nth);
    rig.gpu().fail(failing.call, nth, CUDA_ERROR_OUT_OF_MEMORY);
    program.run(60);
    // A failure that has not come up yet is not to disturb the comparison.
    rig.gpu().fail(failing.call, 0, CUDA_SUCCESS);
    program.verify();
    CHECK(program.problem() == "");
    program.finish();
    CHECK(program.problem() == "");
    rig.drain();
    rig.session().reclaim(rig.budget());
    rig.gpu().with_memory([&](const Memory& memory) {
        if (failing.leaks) return;
        CHECK(memory.handles(Place::Device) == 0);
        CHECK(memory.mappings() == memory.handles(Place::Host));
    });
    CHECK(rig.gpu().violation() == "");
}

TEST_CASE("failures: any call fails once") {
    for (const bool maps_host : {true, false}) {
        for (const Failing& failing : kFailing) {
            // Dense at first, then sparse, deep into the program.
            for (std::uint64_t n = 1; n <= 24; ++n) run_failing(maps_host, failing, n * (n + 1) / 2);
        }
    }
}

// It answers errors for long, then no more.
void run_lasting(bool maps_host, const Failing& failing, std::uint64_t nth, std::uint64_t times) {
    CAPTURE(maps_host);
    const std::string name = failing.name;
    CAPTURE(name);
    CAPTURE(nth);
    CAPTURE(times);
    RigOptions options;
    options.maps_host = maps_host;
    options.granules = 40;
    options.seed = nth;
    Rig rig(options);
    ProgramOptions shape;
    shape.streams = 2;
    shape.buffers = 8;
    shape.granules = 10;
    shape.may_run_out = true;
    Program program(rig, shape, nth);
    program.run(60);
    rig.gpu().fail(failing.call, nth, CUDA_ERROR_OUT_OF_MEMORY, times);
    program.run(60);
    rig.gpu().fail(failing.call, 0, CUDA_SUCCESS);
    program.run(60);
    program.verify();
    CHECK(program.problem() == "");
    program.finish();
    CHECK(program.problem() == "");
    rig.drain();
    Region all{0, rig.budget()};
    CHECK(rig.session().allocate(all.bytes, all.address) == CUDA_SUCCESS);
    CHECK(rig.write(rig.stream(), all, noise(1, all.bytes)) == CUDA_SUCCESS);
    // What was refused for long is tried anew after some launches.
    for (int launches = 600; launches > 0 && rig.on_device(all) < all.bytes; --launches)
        REQUIRE(rig.write(rig.stream(), all, noise(1, all.bytes)) == CUDA_SUCCESS);
    CHECK(rig.on_device(all) == all.bytes);
    CHECK(rig.gpu().violation() == "");
}

TEST_CASE("failures: any call fails for long, and no byte is lost, nor any room") {
    std::vector<Failing> every(std::begin(kFailing), std::end(kFailing));
    every.push_back({Call::Release, "release", true});
    every.push_back({Call::Unpin, "unpin", true});
    for (const bool maps_host : {true, false}) {
        for (const Failing& failing : every) {
            for (const std::uint64_t nth : {1, 2, 3, 9}) {
                for (const std::uint64_t times : {10, 40}) run_lasting(maps_host, failing, nth, times);
            }
            // For longer than anybody waits.
            run_lasting(maps_host, failing, 2, 2000);
        }
    }
}

TEST_CASE("failures: a copy in that is refused leaves the buffer where it is, and in use there") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(2);  // one chunk
    const std::size_t other = scene.make(63);
    scene.rig.drain();
    REQUIRE(scene.place(cold) == Place::Host);
    // With room for it nothing is copied but in.
    REQUIRE(scene.rig.session().free(scene.regions[other].address) == CUDA_SUCCESS);
    scene.regions.pop_back();
    scene.expected.pop_back();
    scene.rig.gpu().fail(Call::Copy, 1, CUDA_ERROR_UNKNOWN);
    scene.check();
}

TEST_CASE("failures: where a copy in and taking its mapping away again are refused, nothing stays mapped") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        RigOptions options = options_of(Safety::Args);
        options.maps_host = maps_host;
        Scene scene(options);
        const std::size_t cold = scene.make(2);
        const std::size_t other = scene.make(60);
        scene.make(2);
        scene.make(2);
        scene.rig.drain();
        REQUIRE(scene.rig.session().free(scene.regions[other].address) == CUDA_SUCCESS);
        scene.regions.erase(scene.regions.begin() + 1);
        scene.expected.erase(scene.expected.begin() + 1);
        scene.rig.gpu().fail(Call::Copy, 1, CUDA_ERROR_UNKNOWN);
        // Where host memory was mapped there, that goes first.
        scene.rig.gpu().fail(Call::Unmap, maps_host ? 2 : 1, CUDA_ERROR_UNKNOWN);
        const CUresult first = scene.need(cold, scene.stream);
        CHECK((first == CUDA_SUCCESS || first == CUDA_ERROR_OUT_OF_MEMORY));
        CHECK(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.check();
    }
}

TEST_CASE("failures: a stream that cannot be made to wait for a copy in has it waited for") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(2);
    scene.make(63);
    scene.rig.drain();
    REQUIRE(scene.place(cold) == Place::Host);
    FakePort& gpu = scene.rig.gpu();
    const Gate copies = std::make_shared<std::atomic<bool>>(false);
    const Gate open = std::make_shared<std::atomic<bool>>(true);
    gpu.launch(gpu.stream(device::Direction::In), gate(copies));
    gpu.at(Call::Wait, 1, [&] { scene.open_after_a_while(copies); });
    gpu.fail(Call::Wait, 1, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(scene.rig.submit(scene.late_write(scene.stream, cold, open, true)) == CUDA_SUCCESS);
    scene.changed(cold);
    gpu.finish(gpu.mark(scene.stream));
    *copies = true;
    scene.check();
}

TEST_CASE("failures: who may call nothing is told so, and waits for no copy in") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(2);
    scene.make(63);
    scene.rig.drain();
    FakePort& gpu = scene.rig.gpu();
    const Gate copies = closed();
    gpu.launch(gpu.stream(device::Direction::In), gate(copies));
    gpu.at(Call::Wait, 1, [&] { scene.open_after_a_while(copies); });
    gpu.fail(Call::Wait, 1, CUDA_ERROR_NOT_PERMITTED);
    session::WorkingSet reach;
    reach.addresses.assign({scene.regions[cold].address});
    reach.stream = scene.stream;
    session::Work work(reach);
    CHECK(scene.rig.session().acquire(work) == CUDA_ERROR_NOT_PERMITTED);
    *copies = true;
    scene.check();
}

TEST_CASE("failures: a copy in whose fence is refused is waited for") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(2);
    const std::size_t other = scene.make(63);
    scene.rig.drain();
    REQUIRE(scene.place(cold) == Place::Host);
    REQUIRE(scene.rig.session().free(scene.regions[other].address) == CUDA_SUCCESS);
    scene.regions.pop_back();
    scene.expected.pop_back();
    FakePort& gpu = scene.rig.gpu();
    const Gate copies = std::make_shared<std::atomic<bool>>(false);
    const Gate open = std::make_shared<std::atomic<bool>>(true);
    gpu.launch(gpu.stream(device::Direction::In), gate(copies));
    gpu.at(Call::WaitForStream, 1, [&] { *copies = true; });
    gpu.fail(Call::Record, 1, CUDA_ERROR_UNKNOWN);
    REQUIRE(scene.rig.submit(scene.late_write(scene.stream, cold, open, true)) == CUDA_SUCCESS);
    scene.changed(cold);
    gpu.finish(gpu.mark(scene.stream));
    *copies = true;
    scene.check();
}

TEST_CASE("failures: a copy out whose fence is refused is waited for") {
    Scene scene(options_of(Safety::Args));
    const std::size_t cold = scene.make(60);
    scene.make(60);
    scene.rig.drain();
    REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
    scene.rig.drain();
    FakePort& gpu = scene.rig.gpu();
    for (std::uint64_t nth = 1; nth <= 8; ++nth) {
        CAPTURE(nth);
        const Gate copies = std::make_shared<std::atomic<bool>>(false);
        gpu.launch(gpu.stream(device::Direction::Out), gate(copies));
        gpu.at(Call::WaitForStream, 1, [&] { *copies = true; });
        scene.open_after_a_while(copies);
        gpu.fail(Call::Record, nth, CUDA_ERROR_UNKNOWN);
        REQUIRE(scene.need(nth % 2, scene.stream) == CUDA_SUCCESS);
        gpu.fail(Call::Record, 0, CUDA_SUCCESS);
        *copies = true;
        scene.check();
    }
}

TEST_CASE("failures: a copy out whose fence is refused, and the wait for it too, counts for nothing") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Scene scene(options_of(Safety::Args, 1, maps_host));
        const std::size_t cold = scene.make(60);
        const std::size_t next = scene.make(60);
        scene.rig.drain();
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        FakePort& gpu = scene.rig.gpu();
        const Gate copies = closed();
        gpu.launch(gpu.stream(device::Direction::Out), gate(copies));
        gpu.at(Call::Copy, 1, [&] { gpu.fail(Call::Record, 1, CUDA_ERROR_UNKNOWN); });
        gpu.fail(Call::WaitForStream, 1, CUDA_ERROR_UNKNOWN);
        scene.open_after_a_while(copies);
        const CUresult needed = scene.need(next, scene.stream);
        CHECK(needed == (maps_host ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));
        *copies = true;
        scene.check();
    }
}

TEST_CASE(
    "failures: a copy out that was taken for passed, for its fence could not be asked, is asked again") {
    for (std::uint64_t nth = 1; nth <= 12; ++nth) {
        CAPTURE(nth);
        Scene scene(options_of(Safety::Args));
        scene.make(60);
        scene.make(60);
        scene.rig.drain();
        FakePort& gpu = scene.rig.gpu();
        const Gate copies = closed();
        gpu.launch(gpu.stream(device::Direction::Out), gate(copies));
        gpu.at(Call::Copy, 1, [&] {
            gpu.fail(Call::Query, nth, CUDA_ERROR_UNKNOWN);
            gpu.at(Call::Query, nth + 1, [&] {
                gpu.fail(Call::Query, 0, CUDA_ERROR_UNKNOWN);
                scene.open_after_a_while(copies);
            });
        });
        REQUIRE(scene.need(0, scene.stream) == CUDA_SUCCESS);
        gpu.fail(Call::Query, 0, CUDA_SUCCESS);
        *copies = true;
        scene.check();
    }
}

TEST_CASE("failures: what the driver never lets go stays, and others go instead") {
    for (const bool maps_host : {true, false}) {
        for (const char* policy : {"lru", "next-use", "build/random/reckless.so"}) {
            CAPTURE(maps_host);
            CAPTURE(policy);
            RigOptions options = options_of(Safety::Opaque, 1, maps_host);
            options.policy = policy;
            Scene scene(options);
            const std::size_t stays = scene.make(24);
            const std::size_t goes = scene.make(30);
            const Region& held = scene.regions[stays];
            scene.rig.gpu().holds_on_to(held.address, held.address + held.bytes);
            for (int round = 0; round < 3; ++round) {
                CHECK(scene.need(scene.make(20), scene.stream) == CUDA_SUCCESS);
                CHECK(scene.need(goes, scene.stream) == CUDA_SUCCESS);
                scene.rig.drain();
                CHECK(scene.place(stays) == Place::Device);
            }
            scene.rig.gpu().holds_on_to(0, 0);
            scene.check();
        }
    }
}

// Where host memory is mapped, what finds no room is used there.
TEST_CASE("failures: where the driver lets nothing go, what finds no room is out of memory, and only then") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Scene scene(options_of(Safety::Opaque, 1, maps_host));
        const std::size_t next = scene.make(30);
        const std::size_t stays = scene.make(60);
        REQUIRE(scene.need(stays, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        const Region& held = scene.regions[stays];
        scene.rig.gpu().holds_on_to(held.address, held.address + held.bytes);
        CHECK(scene.need(next, scene.stream) == (maps_host ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));
        CHECK(scene.need(stays, scene.stream) == CUDA_SUCCESS);
        scene.rig.gpu().holds_on_to(0, 0);
        const auto is_there = [&] {
            scene.rig.drain();
            return scene.rig.on_device(scene.regions[next]) == scene.regions[next].bytes;
        };
        // What was out of memory is tried anew at once; what is used in place, after some launches more.
        for (int launches = maps_host ? 1000 : 1; launches > 0 && !is_there(); --launches)
            REQUIRE(scene.need(next, scene.stream) == CUDA_SUCCESS);
        CHECK(is_there());
        scene.check();
    }
}

// Out of page tables for a while: neither what a buffer's address is to lead to is mapped there, nor what it
// led to.
TEST_CASE(
    "failures: an address to which nothing can be mapped for a while leads to the buffer's memory again") {
    for (const bool inwards : {false, true}) {
        CAPTURE(inwards);
        Scene scene(options_of(Safety::Opaque));
        const std::size_t cold = scene.make(30);
        const std::size_t next = scene.make(60);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        if (inwards) {
            scene.rig.gpu().before_unmap(
                scene.regions[next].address, scene.regions[next].address + scene.regions[next].bytes,
                Place::Host, [&] { scene.rig.gpu().fail(Call::Map, 1, CUDA_ERROR_OUT_OF_MEMORY, 20); });
        } else {
            const Region& first = scene.regions[cold];
            scene.rig.gpu().before_unmap(first.address, first.address + first.bytes, Place::Device, [&] {
                scene.rig.gpu().fail(Call::Map, 1, CUDA_ERROR_OUT_OF_MEMORY, 20);
            });
        }
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        // A kernel that names neither.
        for (const std::size_t each : {cold, next}) {
            const auto seen = std::make_shared<Bytes>(scene.regions[each].bytes);
            scene.rig.gpu().launch(scene.stream, read_kernel(scene.regions[each], seen));
            scene.rig.gpu().finish(scene.rig.gpu().mark(scene.stream));
            CHECK(*seen == scene.expected[each]);
        }
        scene.check();
    }
}

TEST_CASE("failures: no work is given a buffer whose address leads to nothing, until it leads there again") {
    Scene scene(options_of(Safety::Opaque));
    const std::size_t cold = scene.make(2);  // one chunk
    scene.make(60);
    const Region& lost = scene.regions[cold];
    scene.rig.drain();
    scene.rig.gpu().maps_nothing(lost.address, lost.address + lost.bytes);
    CHECK(scene.need(scene.make(10), scene.stream) == CUDA_SUCCESS);
    CHECK(scene.need(cold, scene.stream) == CUDA_ERROR_OUT_OF_MEMORY);
    scene.rig.gpu().maps_nothing(0, 0);
    CHECK(scene.need(cold, scene.stream) == CUDA_SUCCESS);
    scene.check();
}

TEST_CASE("failures: a GPU that has failed for good says so, not that it is full") {
    RigOptions options;
    options.granules = 40;
    options.maps_host = false;
    Rig rig(options);
    const CUstream stream = rig.stream();
    Region regions[2] = {{0, 30 * 64}, {0, 30 * 64}};
    for (Region& region : regions) {
        REQUIRE(rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
        REQUIRE(rig.write(stream, region, noise(1, region.bytes)) == CUDA_SUCCESS);
    }
    rig.drain();
    rig.gpu().fall_ill(CUDA_ERROR_ILLEGAL_ADDRESS);
    rig.gpu().fail(Call::Copy, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    Bytes bytes;
    CHECK(rig.read(stream, regions[0], bytes) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("own mappings: a handle whose new memory is refused an address keeps what it has") {
    for (const bool maps_host : {true, false}) {
        // Of what makes it the driver's: where it is copied through, and each of its addresses.
        for (const std::uint64_t refused : {1, 2, 3}) {
            CAPTURE(maps_host);
            CAPTURE(refused);
            RigOptions options;
            options.granules = 64;
            options.maps_host = maps_host;
            Rig rig(options);
            const CUstream stream = rig.stream();
            const std::uint64_t bytes = 4 * options.granularity;
            Address home = 0, first = 0;
            REQUIRE(rig.session().create(bytes, home) == CUDA_SUCCESS);
            REQUIRE(rig.gpu().reserve(2 * bytes, first) == CUDA_SUCCESS);
            const Region views[] = {{first, bytes}, {first + bytes, bytes}};
            for (const Region& view : views) REQUIRE(rig.map(home, view.address) == CUDA_SUCCESS);
            const Bytes written = noise(refused, bytes);
            rig.gpu().launch(stream, write_kernel(first, written));
            rig.gpu().finish(rig.gpu().mark(stream));
            const auto check = [&] {
                for (const Region& view : views) {
                    const auto seen = std::make_shared<Bytes>(bytes);
                    rig.gpu().launch(stream, read_kernel(view, seen));
                    rig.gpu().finish(rig.gpu().mark(stream));
                    CHECK(*seen == written);
                }
                CHECK(rig.gpu().violation() == "");
            };
            CUmemGenericAllocationHandle real = 0;
            REQUIRE(rig.gpu().create(bytes, Place::Device, real) == CUDA_SUCCESS);
            rig.gpu().fail(Call::Map, refused, CUDA_ERROR_OUT_OF_MEMORY);
            CHECK(rig.session().hand_over(home, real) == CUDA_ERROR_OUT_OF_MEMORY);
            check();
            CHECK(rig.session().hand_over(home, real) == CUDA_SUCCESS);
            check();
        }
    }
}

// The copy of what is to become the driver's is refused, and so is what would be waited for behind it.
TEST_CASE("failures: memory whose contents cannot be copied does not become the driver's") {
    for (const bool unmaps : {true, false}) {
        CAPTURE(unmaps);
        RigOptions options;
        options.granules = 64;
        Rig rig(options);
        const CUstream stream = rig.stream();
        const Bytes written = noise(1, 4 * options.granularity);
        Region view{0, written.size()};
        Address home = 0;
        REQUIRE(rig.session().create(view.bytes, home) == CUDA_SUCCESS);
        REQUIRE(rig.gpu().reserve(view.bytes, view.address) == CUDA_SUCCESS);
        REQUIRE(rig.map(home, view.address) == CUDA_SUCCESS);
        rig.gpu().launch(stream, write_kernel(view.address, written));
        rig.gpu().finish(rig.gpu().mark(stream));
        CUmemGenericAllocationHandle real = 0;
        REQUIRE(rig.gpu().create(view.bytes, Place::Device, real) == CUDA_SUCCESS);
        rig.gpu().fail(Call::Copy, 1, CUDA_ERROR_OUT_OF_MEMORY);
        rig.gpu().fail(Call::Record, 1, CUDA_ERROR_OUT_OF_MEMORY);
        if (!unmaps) rig.gpu().fail(Call::Unmap, 1, CUDA_ERROR_UNKNOWN);
        REQUIRE(rig.session().hand_over(home, real) == CUDA_ERROR_OUT_OF_MEMORY);
        // By the address that was used for it others are copied.
        CHECK(rig.session().hand_over(home, real) == CUDA_SUCCESS);
        const auto seen = std::make_shared<Bytes>(view.bytes);
        rig.gpu().launch(stream, read_kernel(view, seen));
        rig.gpu().finish(rig.gpu().mark(stream));
        CHECK(*seen == written);
        CHECK(rig.gpu().violation() == "");
    }
}

TEST_CASE("failures: after a fault memory that was freed in stream order is not given out again") {
    RigOptions options;
    Rig rig(options);
    const CUstream stream = rig.stream();
    const std::uint64_t bytes = 4 * options.granularity;
    Address address = 0;
    REQUIRE(rig.session().allocate_on(stream, bytes, address) == CUDA_SUCCESS);
    REQUIRE(rig.session().free_on(stream, address) == CUDA_SUCCESS);
    rig.gpu().fall_ill(CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(rig.session().allocate_on(stream, bytes, address) == CUDA_ERROR_ILLEGAL_ADDRESS);
    rig.gpu().fall_ill(CUDA_SUCCESS);
    CHECK(rig.session().allocate_on(stream, bytes, address) == CUDA_SUCCESS);
}

// Else each later map would name it, and be refused as well.
TEST_CASE("failures: a peer that is refused is not let in to what is mapped later") {
    Scene scene(options_of(Safety::Opaque));
    scene.make(8);
    constexpr CUdevice kPeer = 7;
    scene.rig.gpu().fail(Call::Admit, 1, CUDA_ERROR_NOT_SUPPORTED);
    CHECK(scene.rig.session().admit(kPeer) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK_FALSE(scene.rig.gpu().has_peer(kPeer));
    CHECK(scene.rig.session().admit(kPeer) == CUDA_SUCCESS);
    // Refused anew it keeps what it has.
    scene.rig.gpu().fail(Call::Admit, 1, CUDA_ERROR_NOT_SUPPORTED);
    CHECK(scene.rig.session().admit(kPeer) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(scene.rig.gpu().has_peer(kPeer));
    scene.check();
}

}  // namespace
}  // namespace lms::fake
