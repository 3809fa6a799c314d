// How much of the device is used, what the program is told of it, and what is kept there.
#include <doctest/doctest.h>

#include <numeric>

#include "shim/util/clock.h"
#include "tests/engine/rig.h"

namespace lms::fake {
namespace {

// `count` buffers, more than fit, each used once after the other in `rounds` rounds; watch() after each use.
template <typename Watch>
void use_in_turn(Rig& rig, int count, std::uint64_t granules, int rounds, Watch&& watch) {
    const CUstream stream = rig.stream();
    std::vector<Region> buffers;
    for (int i = 0; i < count; ++i) {
        Region region{0, granules * rig.options().granularity};
        REQUIRE(rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
        buffers.push_back(region);
    }
    for (int i = 0; i < count * rounds; ++i) {
        const Region& region = buffers[static_cast<std::size_t>(i % count)];
        REQUIRE(rig.submit({stream, {region.address}, {}, false, mix_kernel(region, {}, 1)}) == CUDA_SUCCESS);
        rig.gpu().finish(rig.gpu().mark(stream));
        watch(buffers);
    }
    for (const Region& region : buffers) CHECK(rig.session().free(region.address) == CUDA_SUCCESS);
    CHECK(rig.gpu().violation() == "");
}

TEST_CASE("budget: LMS_LIMIT and LMS_RESERVE bound what is taken of the device") {
    for (const bool maps_host : {true, false}) {
        RigOptions options;
        options.granules = 128;
        options.maps_host = maps_host;
        options.limit_granules = 80;
        options.reserve_granules = 20;
        Rig rig(options);
        std::uint64_t peak = 0;
        use_in_turn(rig, 10, 16, 4, [&](const std::vector<Region>&) {
            peak = std::max(peak,
                            rig.gpu().with_memory([](const Memory& memory) { return memory.used_bytes(); }));
        });
        CHECK(peak <= rig.budget());
        CHECK(peak > rig.budget() / 2);
    }
}

TEST_CASE("LMS_FRAC: what is cold goes once that share is full, and not before") {
    for (const double frac : {0.0, 0.3, 0.5, 1.0}) {
        CAPTURE(frac);
        RigOptions options;
        options.granules = 128;
        options.frac = frac;
        Rig rig(options);
        std::uint64_t peak = 0;
        use_in_turn(rig, 16, 16, 4, [&](const std::vector<Region>& buffers) {
            std::uint64_t sum = 0;
            for (const Region& region : buffers) sum += rig.on_device(region);
            peak = std::max(peak, sum);
        });
        // A launch's own buffers come in whatever the share.
        const auto share = static_cast<std::uint64_t>(frac * static_cast<double>(rig.budget()));
        const std::uint64_t one = 16 * options.granularity;
        CHECK(peak <= std::max(share, one));
        CHECK(peak + one > share);
    }
}

TEST_CASE("budget: what the program is told of its memory") {
    for (const MemInfo meminfo : {MemInfo::Physical, MemInfo::Enlarged}) {
        RigOptions options;
        options.granules = 128;
        options.host_granules = 1000;
        options.limit_granules = 100;
        options.reserve_granules = 10;
        options.meminfo = meminfo;
        Rig rig(options);
        const std::uint64_t unit = options.granularity;
        const std::uint64_t total = (meminfo == MemInfo::Enlarged ? 1100 : 100) * unit;
        const auto check_free = [&](std::uint64_t free_bytes) {
            device::MemoryInfo info{};
            CHECK(rig.session().visible_memory(info) == CUDA_SUCCESS);
            CHECK(info.total_bytes == total);
            CHECK(info.free_bytes == free_bytes);
        };
        check_free(total - 10 * unit);
        Address address = 0;
        REQUIRE(rig.session().allocate(50 * unit, address) == CUDA_SUCCESS);
        check_free(total - 60 * unit);
        rig.gpu().with_memory([&](Memory& memory) { memory.take_outside(20 * unit); });
        check_free(total - 80 * unit);
        Address second = 0;
        REQUIRE(rig.session().allocate(500 * unit, second) == CUDA_SUCCESS);
        check_free(meminfo == MemInfo::Enlarged ? total - 580 * unit : 0);
        // Where the bytes are makes no difference.
        REQUIRE(rig.session().reclaim(30 * unit));
        check_free(meminfo == MemInfo::Enlarged ? total - 580 * unit : 0);
        REQUIRE(rig.session().free(second) == CUDA_SUCCESS);
        check_free(total - 80 * unit);
    }
}

TEST_CASE("budget: what a program without the shim gives back is used, though nothing is refused") {
    for (const bool maps_host : {true, false}) {
        RigOptions options;
        options.granules = 128;
        options.maps_host = maps_host;
        Rig rig(options);
        const std::uint64_t half = 64 * options.granularity;
        const auto take_outside = [&](std::uint64_t bytes) {
            rig.gpu().with_memory([&](Memory& memory) { memory.take_outside(bytes); });
        };
        std::uint64_t most = 0;
        const auto watch = [&](const std::vector<Region>& buffers) {
            std::uint64_t sum = 0;
            for (const Region& region : buffers) sum += rig.on_device(region);
            most = std::max(most, sum);
        };
        take_outside(half);
        rig.session().look_at_budget();
        use_in_turn(rig, 16, 8, 2, watch);
        CHECK(most <= half);
        take_outside(0);
        const auto deadline = util::Clock::now() + std::chrono::seconds(30);
        while (most <= half && util::Clock::now() < deadline) use_in_turn(rig, 16, 8, 1, watch);
        CHECK(most > half);
    }
}

TEST_CASE("budget: what is kept stays on the device, until it is let go or freed") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        RigOptions options;
        options.granules = 64;
        options.maps_host = maps_host;
        Rig rig(options);
        const CUstream stream = rig.stream();
        Region regions[4];
        for (Region& region : regions) {
            region.bytes = 24 * options.granularity;
            REQUIRE(rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
            REQUIRE(rig.write(stream, region, noise(region.address, region.bytes)) == CUDA_SUCCESS);
        }
        const auto need = [&](const Region& region) {
            std::pmr::vector<engine::ChunkRequest> needs;
            const session::Range range{region.address, region.bytes};
            rig.session().name({}, {&range, 1}, needs);
            return needs;
        };
        const auto use_others = [&] {
            Bytes bytes;
            for (const Region& region : {regions[1], regions[2], regions[3]}) {
                REQUIRE(rig.read(stream, region, bytes) == CUDA_SUCCESS);
                CHECK(bytes == noise(region.address, region.bytes));
            }
        };
        session::ResidentPins kept;
        REQUIRE(rig.session().pin_resident(need(regions[0]), kept) == CUDA_SUCCESS);
        use_others();
        CHECK(rig.on_device(regions[0]) == regions[0].bytes);
        // More than there is beside it.
        std::pmr::vector<engine::ChunkRequest> much = need(regions[1]);
        for (const engine::ChunkRequest& each : need(regions[2])) much.push_back(each);
        session::ResidentPins none;
        CHECK(rig.session().pin_resident(much, none) == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(none.chunks.empty());
        use_others();
        SUBCASE("let go") {
            rig.session().unpin_resident(kept);
        }
        SUBCASE("freed, then let go") {
            rig.drain();
            REQUIRE(rig.session().free(regions[0].address) == CUDA_SUCCESS);
            REQUIRE(rig.session().allocate(regions[0].bytes, regions[0].address) == CUDA_SUCCESS);
            rig.session().unpin_resident(kept);
        }
        use_others();
        CHECK(rig.on_device(regions[0]) < regions[0].bytes);
        CHECK(rig.gpu().violation() == "");
    }
}

TEST_CASE("budget: an address just outside a buffer means that buffer") {
    RigOptions options;
    options.granules = 64;
    Rig rig(options);
    const CUstream stream = rig.stream();
    Region regions[3];
    for (Region& region : regions) {
        region.bytes = 40 * options.granularity;
        REQUIRE(rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
    }
    Bytes bytes;
    for (const Address address :
         {regions[1].address + regions[1].bytes, regions[1].address - 1, regions[1].address}) {
        for (const Region& other : {regions[0], regions[2]}) rig.read(stream, other, bytes);
        REQUIRE(rig.on_device(regions[1]) < regions[1].bytes);
        CHECK(rig.submit({stream, {address}, {}, false, [](Memory&) { return true; }}) == CUDA_SUCCESS);
        rig.drain();
        CHECK(rig.on_device(regions[1]) == regions[1].bytes);
        REQUIRE(rig.session().buffer_near(address));
        CHECK(rig.session().buffer_near(address)->address == regions[1].address);
    }
}

TEST_CASE("budget: pieces of copies are small enough for two to be there at once, and not tiny") {
    for (const std::uint64_t granules : {16, 64, 1000}) {
        RigOptions options;
        options.granules = granules;
        Rig rig(options);
        CHECK(2 * rig.session().piece_bytes() <= rig.budget());
        CHECK(rig.session().piece_bytes() >= options.granularity);
    }
}

}  // namespace
}  // namespace lms::fake
