// Memory of the program's own that becomes the driver's, beside work that is given meanwhile.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

constexpr std::uint64_t kGranules = 8;

// A set comes as the first chunk is copied over: whichever it is for, it is not to write where the copy has
// been, nor while nothing is mapped.
TEST_CASE("hand over: work that comes meanwhile is held up, whichever chunk it is for") {
    for (const bool evicted : {false, true}) {
        for (std::uint64_t named = 0; named < kGranules; ++named) {
            CAPTURE(evicted);
            CAPTURE(named);
            RigOptions options;
            options.granules = 64;
            options.seed = named + 1;
            Rig rig(options);
            const CUstream stream = rig.stream();
            const std::uint64_t bytes = kGranules * options.granularity;
            const Bytes written = noise(1, bytes);
            Region view{0, bytes};
            Address home = 0;
            REQUIRE(rig.session().create(bytes, home) == CUDA_SUCCESS);
            REQUIRE(rig.gpu().reserve(bytes, view.address) == CUDA_SUCCESS);
            REQUIRE(rig.map(home, view.address) == CUDA_SUCCESS);
            rig.gpu().launch(stream, write_kernel(view.address, written));
            rig.gpu().finish(rig.gpu().mark(stream));
            if (evicted) {
                Region other{0, (options.granules - kGranules / 2) * options.granularity};
                REQUIRE(rig.session().allocate(other.bytes, other.address) == CUDA_SUCCESS);
                REQUIRE(rig.write(stream, other, noise(2, other.bytes)) == CUDA_SUCCESS);
                REQUIRE(rig.on_device(view) < bytes);
                REQUIRE(rig.session().free(other.address) == CUDA_SUCCESS);
                rig.session().reclaim(rig.budget());
            }
            CUmemGenericAllocationHandle real = 0;
            REQUIRE(rig.gpu().create(bytes, Place::Device, real) == CUDA_SUCCESS);

            const std::uint64_t offset = named * options.granularity;
            const Bytes later = noise(3, options.granularity);
            std::atomic<bool> given{false};
            std::thread other;
            rig.gpu().at(Call::Copy, 1, [&] {
                other = std::thread([&] {
                    CHECK(rig.submit({stream,
                                      {},
                                      {{home + offset, later.size()}},
                                      false,
                                      write_kernel(view.address + offset, later)}) == CUDA_SUCCESS);
                    given = true;
                });
                const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
                while (!given && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
                CHECK_FALSE(given);
            });
            CHECK(rig.session().hand_over(home, real) == CUDA_SUCCESS);
            other.join();
            const auto seen = std::make_shared<Bytes>(bytes);
            rig.gpu().launch(stream, read_kernel(view, seen));
            rig.gpu().finish(rig.gpu().mark(stream));
            Bytes expected = written;
            std::ranges::copy(later, expected.begin() + static_cast<std::ptrdiff_t>(offset));
            CHECK(*seen == expected);
            CHECK(rig.gpu().violation() == "");
        }
    }
}

// What is handed over is in use; others need nothing of that.
TEST_CASE("hand over: who waits for the memory's work does not hold up those who need none of it") {
    Scene scene(options_of(Safety::Opaque));
    Rig& rig = scene.rig;
    const std::uint64_t bytes = kGranules * rig.options().granularity;
    Region view{0, bytes};
    Address home = 0;
    REQUIRE(rig.session().create(bytes, home) == CUDA_SUCCESS);
    REQUIRE(rig.gpu().reserve(bytes, view.address) == CUDA_SUCCESS);
    REQUIRE(rig.map(home, view.address) == CUDA_SUCCESS);
    const std::size_t first = scene.make(30);
    const std::size_t second = scene.make(30);
    const Bytes written = noise(1, bytes);
    const CUstream stream = rig.stream();
    const auto named = [&](Kernel kernel) { return Job{stream, {home}, {}, false, std::move(kernel)}; };
    REQUIRE(rig.submit(named(write_kernel(view.address, written))) == CUDA_SUCCESS);
    rig.drain();
    const Gate endless = closed();
    REQUIRE(rig.submit(named(both(gate(endless), mix_kernel(view, {}, 9)))) == CUDA_SUCCESS);

    std::atomic<bool> waiting{true};
    const std::uint64_t before = rig.gpu().calls(Call::Query);
    std::thread other([&] {
        CHECK(rig.session().await_unused(home));
        waiting = false;
    });
    while (waiting && rig.gpu().calls(Call::Query) < before + 100) std::this_thread::yield();
    for (const std::size_t index : {first, second, first, second}) {
        CHECK(scene.need(index, scene.stream) == CUDA_SUCCESS);
        rig.gpu().finish(rig.gpu().mark(scene.stream));
    }
    CHECK(waiting);
    CUmemGenericAllocationHandle real = 0;
    rig.session().reclaim(bytes);
    REQUIRE(rig.gpu().create(bytes, Place::Device, real) == CUDA_SUCCESS);
    CHECK(!rig.session().hand_over(home, real));
    *endless = true;
    rig.drain();
    other.join();
    CHECK(rig.session().hand_over(home, real) == CUDA_SUCCESS);
    const auto seen = std::make_shared<Bytes>(bytes);
    rig.gpu().launch(stream, read_kernel(view, seen));
    rig.gpu().finish(rig.gpu().mark(stream));
    Bytes expected = written;
    mix(expected, {}, 9);
    CHECK(*seen == expected);
    scene.check();
}

}  // namespace
}  // namespace lms::fake
