// What fits where: beyond the device, beyond everything, and nothing moved while all of it fits.
#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <thread>

#include "policy/host.h"
#include "shim/engine/chunking.h"
#include "shim/trace/live_page.h"
#include "shim/util/host_memory.h"
#include "tests/engine/scene.h"
#include "tests/support/scratch.h"

namespace lms::fake {
namespace {

struct Held {
    Region region;
    Bytes expected;
};

// Allocates and fills a buffer of `granules`.
Held make(Rig& rig, CUstream stream, std::uint64_t granules, std::uint64_t seed) {
    const std::uint64_t bytes = granules * rig.options().granularity;
    Held held{{0, bytes}, noise(seed, bytes)};
    REQUIRE(rig.session().allocate(bytes, held.region.address, nullptr, true) == CUDA_SUCCESS);
    REQUIRE(rig.write(stream, held.region, held.expected) == CUDA_SUCCESS);
    return held;
}

void check(Rig& rig, CUstream stream, const Held& held) {
    Bytes bytes;
    REQUIRE(rig.read(stream, held.region, bytes) == CUDA_SUCCESS);
    CHECK(bytes == held.expected);
}

template <typename Body>
void both_ways(Body&& body) {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        RigOptions options;
        options.granules = 64;
        options.maps_host = maps_host;
        body(options);
    }
}

TEST_CASE("capacity: while everything fits, launches make no call of the port, and no byte moves") {
    both_ways([](const RigOptions& options) {
        Rig rig(options);
        const CUstream stream = rig.stream();
        std::vector<Held> buffers;
        for (std::uint64_t i = 0; i < 8; ++i) buffers.push_back(make(rig, stream, 8, i));
        const std::uint64_t before = rig.gpu().all_calls();
        for (std::size_t i = 0; i < 100; ++i) {
            Held& target = buffers[i % 8];
            Held& source = buffers[(i + 3) % 8];
            REQUIRE(rig.submit({stream,
                                {target.region.address, source.region.address},
                                {},
                                false,
                                mix_kernel(target.region, {source.region}, i)}) == CUDA_SUCCESS);
            mix(target.expected, {&source.expected}, i);
        }
        CHECK(rig.gpu().all_calls() == before);
        for (const Held& held : buffers) check(rig, stream, held);
        CHECK(rig.gpu().calls(Call::Copy) == 0);
        CHECK(rig.gpu().calls(Call::Unmap) == 0);
        CHECK(rig.gpu().calls(Call::Pin) == 0);
        CHECK(rig.gpu().violation() == "");
    });
}

TEST_CASE("capacity: buffers five times the device keep every byte over many evictions") {
    both_ways([](const RigOptions& options) {
        Rig rig(options);
        const CUstream stream = rig.stream();
        std::vector<Held> buffers;
        for (std::uint64_t i = 0; i < 20; ++i) buffers.push_back(make(rig, stream, 16, i));
        for (std::size_t i = 0; i < 200; ++i) {
            Held& target = buffers[i % 20];
            Held& source = buffers[i * 7 % 20];
            if (&target == &source) continue;
            REQUIRE(rig.submit({stream,
                                {target.region.address, source.region.address},
                                {},
                                false,
                                mix_kernel(target.region, {source.region}, i)}) == CUDA_SUCCESS);
            mix(target.expected, {&source.expected}, i);
        }
        for (const Held& held : buffers) check(rig, stream, held);
        CHECK(rig.gpu().calls(Call::Copy) > 1000);
        CHECK(rig.gpu().violation() == "");
    });
}

TEST_CASE("beyond device and host together: out of memory, nothing lost, and room again after a free") {
    both_ways([](RigOptions options) {
        options.host_granules = 100;
        Rig rig(options);
        const CUstream stream = rig.stream();
        std::vector<Held> buffers;
        const std::uint64_t fit = rig.capacity() / (8 * options.granularity);
        for (std::uint64_t i = 0; i < fit; ++i) buffers.push_back(make(rig, stream, 8, i));
        for (int attempt = 0; attempt < 3; ++attempt) {
            Address address = 42;
            CHECK(rig.session().allocate(8 * options.granularity, address) == CUDA_ERROR_OUT_OF_MEMORY);
            CHECK(address == 42);
            for (const Held& held : buffers) check(rig, stream, held);
        }
        rig.drain();
        REQUIRE(rig.session().free(buffers.back().region.address) == CUDA_SUCCESS);
        buffers.back() = make(rig, stream, 8, 77);
        for (const Held& held : buffers) check(rig, stream, held);
        CHECK(rig.gpu().violation() == "");
    });
}

TEST_CASE("soft limit: beyond it an allocation fails once; memory freed in a stream counts as given back") {
    both_ways([](RigOptions options) {
        options.soft_limit_granules = 32;
        Rig rig(options);
        const CUstream stream = rig.stream();
        // Whether it is refused because of the limit.
        const auto refused = [&](std::uint64_t bytes) {
            const std::uint64_t before = trace::counters().refusals;
            Address address = 0;
            CHECK(rig.session().allocate(bytes, address, nullptr, true) == CUDA_ERROR_OUT_OF_MEMORY);
            return trace::counters().refusals > before;
        };
        std::vector<Held> buffers;
        for (std::uint64_t i = 0; i < 4; ++i) buffers.push_back(make(rig, stream, 8, i));
        CHECK(refused(8 * options.granularity));
        rig.drain();
        REQUIRE(rig.session().free_on(stream, buffers.back().region.address) == CUDA_SUCCESS);
        rig.drain();
        buffers.back() = make(rig, stream, 8, 5);
        CHECK(refused(1));
        // Nothing given back: served, and with it what fits into the step of 4 granules.
        buffers.push_back(make(rig, stream, 1, 6));
        buffers.push_back(make(rig, stream, 3, 7));
        // What cannot be had at all is not asked for twice.
        CHECK(!refused(UINT64_MAX));
        CHECK(!refused(rig.capacity() + 1));
        for (const Held& held : buffers) check(rig, stream, held);
        CHECK(rig.gpu().violation() == "");
    });
}

TEST_CASE("capacity: filled to capacity with buffers of all sizes, each can still be used") {
    both_ways([](RigOptions options) {
        options.granules = 256;  // so that chunks have several sizes
        options.host_granules = 200;
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            Rig rig(options);
            const CUstream stream = rig.stream();
            std::vector<Held> buffers;
            for (std::uint64_t left = rig.capacity() / options.granularity; left > 0;) {
                const std::uint64_t granules = std::min<std::uint64_t>(left, 1 + random() % 24);
                buffers.push_back(make(rig, stream, granules, random()));
                left -= granules;
            }
            Address none = 0;
            CHECK(rig.session().allocate(1, none) == CUDA_ERROR_OUT_OF_MEMORY);
            for (int round = 0; round < 3; ++round) {
                for (std::size_t i = 0; i < buffers.size(); ++i) {
                    check(rig, stream, buffers[random() % buffers.size()]);
                }
            }
            for (const Held& held : buffers) check(rig, stream, held);
            CHECK(rig.gpu().violation() == "");
        }
    });
}

TEST_CASE("capacity: a thread that gets no time for a second while moves end has its memory all the same") {
    RigOptions options;
    options.granules = 64;
    options.host_granules = 100;
    Rig rig(options);
    const CUstream stream = rig.stream();
    std::vector<Held> buffers;
    const std::uint64_t fit = rig.capacity() / (8 * options.granularity);
    for (std::uint64_t i = 0; i + 1 < fit; ++i) buffers.push_back(make(rig, stream, 8, i));
    for (const std::size_t i : {1, 0, 2}) {
        const auto nothing = [](Memory&) { return true; };
        REQUIRE(rig.submit({stream, {buffers[i].region.address}, {}, false, nothing}) == CUDA_SUCCESS);
    }
    bool waited = false;
    rig.gpu().at(Call::Query, 1, [&] {
        waited = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // longer than the shim waits in vain
    });
    buffers.push_back(make(rig, stream, 8, 77));
    CHECK(waited);
    for (const Held& held : buffers) check(rig, stream, held);
    CHECK(rig.gpu().violation() == "");
}

TEST_CASE("capacity: one launch that names more than the device has") {
    both_ways([](const RigOptions& options) {
        Rig rig(options);
        const CUstream stream = rig.stream();
        std::vector<Held> buffers;
        for (std::uint64_t i = 0; i < 6; ++i) buffers.push_back(make(rig, stream, 16, i));
        Job job{stream, {}, {}, false, nullptr};
        std::vector<Region> sources;
        std::vector<const Bytes*> contents;
        for (std::size_t i = 1; i < buffers.size(); ++i) {
            sources.push_back(buffers[i].region);
            contents.push_back(&buffers[i].expected);
        }
        for (const Held& held : buffers) job.names.push_back(held.region.address);
        job.kernel = mix_kernel(buffers[0].region, sources, 5);
        const CUresult status = rig.submit(job);
        if (options.maps_host) {
            CHECK(status == CUDA_SUCCESS);
            mix(buffers[0].expected, contents, 5);
        } else {
            CHECK(status == CUDA_ERROR_OUT_OF_MEMORY);
        }
        for (const Held& held : buffers) check(rig, stream, held);
        CHECK(rig.gpu().violation() == "");
    });
}

TEST_CASE("capacity: a copy that is refused leaves its target as it was") {
    RigOptions options;
    options.granules = 64;
    options.maps_host = false;
    Rig rig(options);
    const CUstream stream = rig.stream();
    const Held source = make(rig, stream, 40, 1);
    const Held target = make(rig, stream, 40, 2);
    const Held other = make(rig, stream, 60, 3);
    check(rig, stream, other);
    CHECK(rig.submit({stream,
                      {},
                      {{source.region.address, source.region.bytes},
                       {target.region.address, target.region.bytes, true}},
                      false,
                      copy_kernel(target.region.address, source.region.address, target.region.bytes)}) ==
          CUDA_ERROR_OUT_OF_MEMORY);
    check(rig, stream, target);
    check(rig, stream, source);
    CHECK(rig.gpu().violation() == "");
}

TEST_CASE("capacity: sizes no one could serve") {
    Rig rig(RigOptions{});
    Address address = 42;
    for (const std::uint64_t bytes : {~std::uint64_t{0}, ~std::uint64_t{0} - 64, std::uint64_t{1} << 63}) {
        CHECK(rig.session().allocate(bytes, address) == CUDA_ERROR_OUT_OF_MEMORY);
    }
    CHECK(address == 42);
    CHECK(rig.session().free(42) == CUDA_ERROR_INVALID_VALUE);
}

// What the host has left, as the engine sees it while one of these lives.
class Machine {
  public:
    explicit Machine(std::uint64_t kib) {
        has(kib);
        util::host_memory().look_below(root_.path());
    }
    ~Machine() { util::host_memory().look_below(""); }
    void has(std::uint64_t kib) {
        root_.put("proc/meminfo", "MemAvailable: " + std::to_string(kib) + " kB\n");
    }
    void look() { util::host_memory().spare_bytes({}); }

  private:
    Scratch root_;
};

TEST_CASE(
    "capacity: beyond what the machine can spare it is as beyond LMS_HOST_LIMIT, and what was promised "
    "stays") {
    both_ways([](RigOptions options) {
        options.granularity = 1024;
        Machine machine(100);
        Rig rig(options);
        const CUstream stream = rig.stream();
        std::vector<Held> buffers;
        const std::uint64_t way = 2 * engine::largest_chunk(rig.budget(), options.granularity);
        const std::uint64_t fit = (rig.budget() + (100 << 10) - way) / (8 * options.granularity);
        for (std::uint64_t i = 0; i < fit; ++i) {
            const std::uint64_t bytes = 8 * options.granularity;
            buffers.push_back({{0, bytes}, noise(i, bytes)});
            REQUIRE(rig.session().allocate(bytes, buffers.back().region.address) == CUDA_SUCCESS);
        }
        Address address = 42;
        const auto allocate = [&] { return rig.session().allocate(32 * options.granularity, address); };
        // Taken by others, what is not pinned yet too.
        machine.has(0);
        machine.look();
        CHECK(allocate() == CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(address == 42);
        for (const Held& held : buffers)
            REQUIRE(rig.write(stream, held.region, held.expected) == CUDA_SUCCESS);
        for (int round = 0; round < 3; ++round) {
            for (const Held& held : buffers) check(rig, stream, held);
        }
        CHECK(allocate() == CUDA_ERROR_OUT_OF_MEMORY);
        // Found when an allocation would be refused, without waiting for the next look.
        machine.has(100);
        CHECK(allocate() == CUDA_SUCCESS);
        rig.drain();
        CHECK(rig.session().free(address) == CUDA_SUCCESS);
        for (const Held& held : buffers) check(rig, stream, held);
        CHECK(rig.gpu().violation() == "");
    });
}

TEST_CASE("capacity: where the driver has few addresses, fewer are reserved, down to what memory needs") {
    both_ways([](RigOptions options) {
        // For the GPU's 64 granules and the host's 1024, rounded up to 64.
        constexpr std::uint64_t kMemory = 1152;
        for (const std::uint64_t granules : {6 * kMemory, 6 * kMemory - 1, 3 * kMemory - 1, 2 * kMemory}) {
            options.address_granules = granules;
            Rig rig(options);
            CHECK(rig.session().span_end() - rig.session().span_begin() <= granules * options.granularity);
            const CUstream stream = rig.stream();
            std::vector<Held> buffers;
            const std::uint64_t fit = rig.capacity() / (64 * options.granularity);
            for (std::uint64_t i = 0; i < fit; ++i) buffers.push_back(make(rig, stream, 64, i));
            for (const Held& held : buffers) check(rig, stream, held);
            CHECK(rig.gpu().violation() == "");
        }
        Settings settings;
        settings.host_limit_bytes = options.host_granules * options.granularity;
        auto port =
            std::make_unique<FakePort>(Options{.granularity = options.granularity,
                                               .device_bytes = options.granules * options.granularity,
                                               .maps_host = options.maps_host,
                                               .address_bytes = (2 * kMemory - 1) * options.granularity});
        CUresult error = CUDA_SUCCESS;
        CHECK(session::Session::open({0, nullptr}, std::move(port), policy::Host::create("lru", {}, 0),
                                     settings, error) == nullptr);
        CHECK(error == CUDA_ERROR_OUT_OF_MEMORY);
    });
}

TEST_CASE("capacity: LMS_HOST_LIMIT beyond what the machine has means all it has") {
    Settings settings;
    settings.host_limit_bytes = 4ull << 40 << 10;
    CUresult error = CUDA_ERROR_UNKNOWN;
    const auto session = session::Session::open({0, nullptr}, std::make_unique<FakePort>(Options{}),
                                                policy::Host::create("lru", {}, 0), settings, error);
    REQUIRE(session);
    CHECK(session->span_end() - session->span_begin() <= 4 * util::machine_bytes() + (1 << 20));
}

TEST_CASE("capacity: memory that others take is respected, and given to them on demand") {
    both_ways([](const RigOptions& options) {
        Rig rig(options);
        const CUstream stream = rig.stream();
        std::vector<Held> buffers;
        for (std::uint64_t i = 0; i < 6; ++i) buffers.push_back(make(rig, stream, 16, i));
        CHECK(rig.session().reclaim(16 * options.granularity));
        const auto free_bytes = [&] {
            return rig.gpu().with_memory(
                [](const Memory& memory) { return memory.device_bytes() - memory.used_bytes(); });
        };
        CHECK(free_bytes() >= 16 * options.granularity);
        rig.gpu().with_memory([&](Memory& memory) { memory.take_outside(16 * options.granularity); });
        for (const Held& held : buffers) check(rig, stream, held);
        rig.gpu().with_memory([&](Memory& memory) { memory.take_outside(0); });
        for (const Held& held : buffers) check(rig, stream, held);
        CHECK(rig.gpu().violation() == "");
    });
}

}  // namespace
TEST_CASE(
    "capacity: what a stream has yet to free makes room where moves hold a GPU up that has much to do") {
    for (const int behind : {200, 4}) {
        CAPTURE(behind);
        Scene scene(options_of(Safety::Opaque));
        // More is live than fits, and what comes in is waited for.
        constexpr std::size_t cold = 1, small = 2, last = 3;
        for (const std::uint64_t granules : {40, 20, 2, 30}) scene.make(granules);
        for (std::size_t i = 0; i <= last; ++i, scene.rig.drain())
            REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
        const Gate open = closed();
        REQUIRE(scene.rig.submit(scene.late_write(scene.stream, last, open, true)) == CUDA_SUCCESS);
        REQUIRE(scene.rig.session().free_on(scene.stream, scene.regions[last].address) == CUDA_SUCCESS);
        scene.regions.pop_back();
        scene.expected.pop_back();
        for (int i = 0; i < behind; ++i) REQUIRE(scene.need(small, scene.stream) == CUDA_SUCCESS);
        Region fresh{0, 20 * scene.rig.options().granularity};
        REQUIRE(scene.rig.session().allocate(fresh.bytes, fresh.address) == CUDA_SUCCESS);
        scene.regions.push_back(fresh);
        scene.open_after_a_while(open);
        REQUIRE(scene.need(last, scene.rig.stream()) == CUDA_SUCCESS);
        scene.regions.pop_back();
        CHECK(scene.place(cold) == (behind > 4 ? Place::Device : Place::Host));
        *open = true;
        scene.check();
    }
}

}  // namespace lms::fake
