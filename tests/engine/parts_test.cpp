// Large buffers that the program divides itself: what a pointer means of one is brought in, and whatever it
// reaches beyond that is not lost.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

constexpr std::uint64_t kParts = 12;
constexpr std::uint64_t kBufferGranules = 8;  // of each

// One buffer half as large again as the GPU, divided into parts that all work has named once.
struct Divided {
    explicit Divided(const RigOptions& options) : rig(options), stream(rig.stream()) {
        const std::uint64_t bytes = kBufferGranules * options.granularity;
        whole.bytes = kParts * bytes;
        REQUIRE(rig.session().allocate(whole.bytes, whole.address) == CUDA_SUCCESS);
        for (std::uint64_t i = 0; i < kParts; ++i) {
            parts.push_back({whole.address + i * bytes, bytes});
            expected.push_back(noise(i + 1, bytes));
        }
        for (int pass = 0; pass < 2; ++pass) {
            for (std::uint64_t i = 0; i < kParts; ++i)
                REQUIRE(name(i, write_kernel(parts[i].address, expected[i])) == CUDA_SUCCESS);
        }
        rig.drain();
    }

    CUresult name(
        std::uint64_t part, Kernel kernel = [](Memory&) { return true; }) {
        return rig.submit({stream, {parts[part].address}, {}, false, std::move(kernel)});
    }
    bool is_there(std::uint64_t part) { return rig.on_device(parts[part]) == parts[part].bytes; }

    void check() {
        rig.drain();
        for (std::uint64_t i = 0; i < kParts; ++i) {
            CAPTURE(i);
            Bytes bytes;
            REQUIRE(rig.read(stream, parts[i], bytes) == CUDA_SUCCESS);
            CHECK(bytes == expected[i]);
        }
        CHECK(rig.gpu().violation() == "");
    }

    Rig rig;
    CUstream stream;
    Region whole{};
    std::vector<Region> parts;
    std::vector<Bytes> expected;
};

template <typename Body>
void at_each(Body&& body) {
    for (const Safety safety : {Safety::Args, Safety::Opaque, Safety::Strict}) {
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            CAPTURE(static_cast<int>(safety));
            CAPTURE(seed);
            body(options_of(safety, seed));
        }
    }
}

TEST_CASE("parts: what begins at a pointer comes in, and leaves what was needed before it where it is") {
    at_each([](const RigOptions& options) {
        Divided scene(options);
        for (const std::uint64_t i : {0, 5, 11, 0, 6}) {
            CHECK(scene.name(i) == CUDA_SUCCESS);
            scene.rig.drain();
            CHECK(scene.is_there(i));
        }
        // Of what is not needed so much goes as the others took.
        for (const std::uint64_t i : {0, 5, 6, 11}) CHECK(scene.is_there(i));
        scene.check();
    });
}

TEST_CASE("parts: what has not been needed for longest goes first, whatever could have been reached since") {
    at_each([](const RigOptions& options) {
        Divided scene(options);
        for (const std::uint64_t i : {11, 10, 9, 8, 7, 6, 5, 4, 0}) {
            CHECK(scene.name(i) == CUDA_SUCCESS);
            scene.rig.drain();
        }
        CHECK(scene.is_there(4));
        CHECK_FALSE(scene.is_there(11));
        scene.check();
    });
}

TEST_CASE("parts: several of one buffer are needed at once") {
    at_each([](const RigOptions& options) {
        Divided scene(options);
        for (std::uint64_t i = 0; i < kParts; ++i) {
            const std::uint64_t other = (i + 7) % kParts;
            mix(scene.expected[i], {&scene.expected[other]}, i);
            Job job{scene.stream,
                    {scene.parts[i].address},
                    {},
                    false,
                    mix_kernel(scene.parts[i], {scene.parts[other]}, i)};
            job.reads = {scene.parts[other].address};
            CHECK(scene.rig.submit(job) == CUDA_SUCCESS);
            scene.rig.drain();
            CHECK(scene.is_there(i));
            CHECK(scene.is_there(other));
        }
        scene.check();
    });
}

// The array goes on past where another pointer began, or the kernel goes back.
TEST_CASE("parts: what a pointer reaches beyond its part is not lost") {
    at_each([](const RigOptions& options) {
        Divided scene(options);
        const CUstream other = scene.rig.stream();
        std::minstd_rand random(static_cast<unsigned>(options.seed));
        for (int round = 0; round < 40; ++round) {
            const std::uint64_t named = random() % kParts, written = random() % kParts,
                                needed = random() % kParts;
            const Gate open = closed();
            // By its own pointer it is asked for while it is written through the other.
            CHECK(scene.name(named, both(gate(open), mix_kernel(scene.parts[written], {}, round))) ==
                  CUDA_SUCCESS);
            mix(scene.expected[written], {}, round);
            scene.rig.gpu().at(Call::Query, 20 + random() % 50, [open] { *open = true; });
            for (const std::uint64_t each : {needed, written}) {
                Job job{other, {scene.parts[each].address}, {}, false, [](Memory&) { return true; }};
                CHECK(scene.rig.submit(job) == CUDA_SUCCESS);
            }
            *open = true;
        }
        scene.check();
    });
}

// Of what it is thought to need some stays on the host, beside work that stands still. The rest it may reach
// too.
TEST_CASE("parts: what is let through with some of its parts in place holds all of the buffer") {
    for (const Safety safety : {Safety::Args, Safety::Opaque}) {
        const RigOptions options = options_of(safety);
        Divided scene(options);
        Rig& rig = scene.rig;
        Region other{0, 48 * options.granularity};
        REQUIRE(rig.session().allocate(other.bytes, other.address) == CUDA_SUCCESS);
        const auto use = [&](CUstream stream, Address address, Kernel kernel) {
            return rig.submit({stream, {address}, {}, false, std::move(kernel)});
        };
        const auto nothing = [](Memory&) { return true; };
        CHECK(use(scene.stream, other.address, nothing) == CUDA_SUCCESS);
        rig.drain();
        const Gate ends = closed(), open = closed();
        CHECK(use(rig.stream(), other.address, gate(ends)) == CUDA_SUCCESS);
        const std::uint64_t far = kParts - 1;
        Job job{scene.stream, {}, {}, false, both(gate(open), mix_kernel(scene.parts[far], {}, 9))};
        for (const std::uint64_t i : {0, 1, 2}) job.names.push_back(scene.parts[i].address);
        CHECK(rig.submit(job) == CUDA_SUCCESS);
        mix(scene.expected[far], {}, 9);
        *ends = true;
        rig.gpu().at(Call::Query, 200, [open] { *open = true; });
        // What a premature move does not survive: the address leads to what the copy in is to fill.
        const Region& part = scene.parts[far];
        rig.gpu().before_unmap(part.address, part.address + part.bytes, Place::Host, [&rig, open] {
            rig.gpu().at(Call::Copy, 1, [&rig, open] {
                *open = true;
                rig.gpu().run(1000);
            });
        });
        CHECK(use(rig.stream(), part.address, nothing) == CUDA_SUCCESS);
        *open = true;
        scene.check();
    }
}

// One thread makes a handle the driver's, another has the buffer's place already, a third launches.
TEST_CASE("parts: a mapping whose memory has just become another's names nothing beyond what is there") {
    Divided scene(options_of(Safety::Opaque));
    Rig& rig = scene.rig;
    const std::uint64_t granule = rig.options().granularity;
    Region small{0, 2 * granule}, next{0, 8 * granule};
    for (Region* region : {&small, &next})
        REQUIRE(rig.session().allocate(region->bytes, region->address) == CUDA_SUCCESS);
    REQUIRE(next.address == small.address + 3 * granule);
    program::View view{.address = 0, .bytes = 8 * granule, .handle = 1, .home = small.address};
    REQUIRE(rig.gpu().reserve(view.bytes, view.address) == CUDA_SUCCESS);
    {
        const lms::util::Lock lock(program::program_addresses().mutex);
        program::program_addresses().book.add(view);
    }
    program::managed_views = true;
    CHECK(rig.submit({scene.stream, {view.address}, {}, false, [](Memory&) { return true; }}) ==
          CUDA_SUCCESS);
    program::managed_views = false;
    {
        const lms::util::Lock lock(program::program_addresses().mutex);
        program::program_addresses().book.remove(view.address);
    }
    scene.check();
}

// Two buffers that do not fit at once, one of which is divided where work needs no more than its beginning.
struct Two {
    explicit Two(const RigOptions& options) : rig(options), stream(rig.stream()) {
        for (Region* region : {&buffer, &other})
            REQUIRE(rig.session().allocate(region->bytes, region->address) == CUDA_SUCCESS);
        granule = options.granularity;
        CHECK(submit({other.address, other.address + 8 * granule}) == CUDA_SUCCESS);
    }
    CUresult submit(std::vector<Address> names) {
        return rig.submit({stream, std::move(names), {}, false, [](Memory&) { return true; }});
    }
    // Granules of [begin, end) that are there, once work has named `address`.
    std::uint64_t there(Address address, std::uint64_t begin, std::uint64_t end) {
        Bytes bytes;
        rig.read(stream, other, bytes);
        REQUIRE(rig.on_device(buffer) < 10 * granule);
        CHECK(submit({address, other.address}) == CUDA_SUCCESS);
        rig.drain();
        return rig.on_device({buffer.address + begin * granule, (end - begin) * granule}) / granule;
    }

    Rig rig;
    CUstream stream;
    std::uint64_t granule = 64;
    Region buffer{0, 40 * 64};
    Region other{0, 60 * 64};
};

TEST_CASE("parts: a pointer to where nothing began means the rest of its buffer") {
    Two scene(options_of(Safety::Opaque));
    const Address begin = scene.buffer.address, middle = begin + 20 * scene.granule;
    CHECK(scene.there(begin, 0, 40) == 40);
    CHECK(scene.there(middle, 20, 40) == 20);
    // From there on it has two parts.
    CHECK(scene.there(begin, 0, 20) == 20);
    CHECK(scene.there(begin, 20, 40) < 20);
    // One outside tells nothing of them.
    CHECK(scene.there(begin - 1, 0, 40) == 40);
    CHECK(scene.there(begin + 40 * scene.granule, 0, 40) == 40);
}

TEST_CASE("parts: memory whose bounds are known begins a part, too") {
    Two scene(options_of(Safety::Opaque));
    const Address begin = scene.buffer.address, middle = begin + 20 * scene.granule;
    CHECK(scene.there(begin, 0, 40) == 40);
    Job bounded{scene.stream, {}, {}, false, [](Memory&) { return true; }};
    bounded.ranges = {{middle, 2 * scene.granule}};
    CHECK(scene.rig.submit(bounded) == CUDA_SUCCESS);
    CHECK(scene.there(begin, 0, 20) == 20);
    CHECK(scene.there(begin, 20, 40) < 20);
}

TEST_CASE("parts: where all that work names fits at once, all of it comes in") {
    Two scene(options_of(Safety::Opaque));
    const Address begin = scene.buffer.address, middle = begin + 20 * scene.granule;
    CHECK(scene.there(middle, 20, 40) == 20);
    Bytes bytes;
    scene.rig.read(scene.stream, scene.other, bytes);
    CHECK(scene.submit({begin}) == CUDA_SUCCESS);
    scene.rig.drain();
    CHECK(scene.rig.on_device(scene.buffer) == scene.buffer.bytes);
}

TEST_CASE("parts: where host memory cannot be mapped, all of a buffer comes in") {
    RigOptions options = options_of(Safety::Opaque, 1, false);
    Rig rig(options);
    const CUstream stream = rig.stream();
    Region buffer{0, 40 * options.granularity};
    Region others{0, 60 * options.granularity};
    REQUIRE(rig.session().allocate(buffer.bytes, buffer.address) == CUDA_SUCCESS);
    REQUIRE(rig.session().allocate(others.bytes, others.address) == CUDA_SUCCESS);
    for (const Address address : {buffer.address + buffer.bytes / 2, buffer.address}) {
        Bytes bytes;
        rig.read(stream, others, bytes);
        REQUIRE(rig.on_device(buffer) < buffer.bytes);
        CHECK(rig.submit({stream, {address}, {}, false, [](Memory&) { return true; }}) == CUDA_SUCCESS);
        rig.drain();
        CHECK(rig.on_device(buffer) == buffer.bytes);
    }
}

}  // namespace
}  // namespace lms::fake
