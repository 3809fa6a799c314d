// New memory that found no room: what it holds is nobody's, until something can have written it.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "shim/trace/live_page.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

std::uint64_t bytes_in() {
    return trace::counters().bytes_in.load();
}

// A full GPU, and a buffer that has been allocated and no more. Blocks of both kinds have been used before.
struct Fresh : Scene {
    explicit Fresh(
        const RigOptions& options, const std::function<void(Scene&)>& before = [](Scene&) {})
        : Scene(options) {
        make(62);
        const std::size_t gone = make(4);
        make(4);
        REQUIRE(need(gone, stream) == CUDA_SUCCESS);
        rig.drain();
        REQUIRE(rig.session().free(regions[gone].address) == CUDA_SUCCESS);
        regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(gone));
        expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(gone));
        make(4);
        rig.drain();
        // Sees that all is over.
        std::vector<engine::Use> given = rig.session().given();
        REQUIRE_FALSE(rig.session().unfinished(given));
        before(*this);
        buffer.bytes = 2 * rig.options().granularity;
        REQUIRE(rig.session().allocate(buffer.bytes, buffer.address) == CUDA_SUCCESS);
    }

    Bytes read_fresh() {
        Bytes bytes;
        REQUIRE(rig.read(stream, buffer, bytes) == CUDA_SUCCESS);
        return bytes;
    }

    Region buffer{0, 0};
};

template <typename Body>
void at_each(const std::vector<Safety>& levels, bool unmapped_too, Body&& body) {
    for (const Safety safety : levels) {
        for (const bool maps_host : {true, false}) {
            if (!maps_host && !unmapped_too) continue;
            for (std::uint64_t seed = 1; seed <= 4; ++seed) {
                CAPTURE(static_cast<int>(safety));
                CAPTURE(maps_host);
                CAPTURE(seed);
                body(options_of(safety, seed, maps_host));
            }
        }
    }
}

TEST_CASE("fresh: nothing is copied in before it has been written, and it is zeros") {
    at_each({Safety::Opaque, Safety::Strict}, true, [](const RigOptions& options) {
        Fresh scene(options);
        const std::uint64_t before = bytes_in();
        const Bytes bytes = scene.read_fresh();
        CHECK(bytes_in() == before);
        CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; }));
        CHECK(scene.rig.on_device(scene.buffer) == scene.buffer.bytes);
        scene.check();
    });
}

TEST_CASE("fresh: what work wrote that it was named to goes and comes back") {
    at_each({Safety::Opaque, Safety::Strict}, true, [](const RigOptions& options) {
        Fresh scene(options);
        const Bytes contents = noise(7, scene.buffer.bytes);
        REQUIRE(scene.rig.submit({scene.stream,
                                  {scene.buffer.address},
                                  {},
                                  false,
                                  write_kernel(scene.buffer.address, contents)}) == CUDA_SUCCESS);
        scene.rig.drain();
        for (std::size_t i = 0; i < scene.regions.size(); ++i)
            REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        CHECK(scene.rig.on_device(scene.buffer) == 0);
        CHECK(scene.read_fresh() == contents);
        scene.check();
    });
}

// Where host memory is mapped such work finds it there.
TEST_CASE("fresh: what work wrote that does not name it is there when other work does") {
    enum class By { Opaque, Unseen, Anything };
    for (const By by : {By::Opaque, By::Unseen, By::Anything}) {
        CAPTURE(static_cast<int>(by));
        // What writes unseen without its being noticed can only be kept where nobody counts on noticing.
        const auto levels = by == By::Anything ? std::vector{Safety::Args, Safety::Strict}
                                               : std::vector{Safety::Opaque, Safety::Strict};
        at_each(levels, false, [&](const RigOptions& options) {
            Fresh scene(options);
            const Bytes contents = noise(7, scene.buffer.bytes);
            Job job{scene.stream, {}, {}, false, write_kernel(scene.buffer.address, contents)};
            // What names nothing at all is not work that the shim would look at.
            job.names = {scene.regions.back().address};
            job.opaque = by == By::Opaque;
            job.unseen = by == By::Unseen;
            REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
            scene.rig.drain();
            CHECK(scene.read_fresh() == contents);
            scene.check();
        });
    }
}

// A kernel that is given addresses while it runs, as through memory of the host's.
TEST_CASE("fresh: what work wrote that was unfinished when it was allocated is there") {
    for (const bool opaque : {true, false}) {
        CAPTURE(opaque);
        at_each({Safety::Opaque, Safety::Strict}, false, [&](const RigOptions& options) {
            const Gate told = closed();
            const auto write = std::make_shared<Kernel>();
            Fresh scene(options, [&](Scene& before) {
                Job job{before.rig.stream(), {before.regions.back().address}, {}, opaque, {}};
                job.unseen = !opaque;
                job.kernel = both(gate(told), [=](Memory& memory) { return (*write)(memory); });
                REQUIRE(before.rig.submit(job) == CUDA_SUCCESS);
            });
            const Bytes contents = noise(7, scene.buffer.bytes);
            *write = write_kernel(scene.buffer.address, contents);
            *told = true;
            scene.rig.drain();
            CHECK(scene.read_fresh() == contents);
            scene.check();
        });
    }
}

}  // namespace
}  // namespace lms::fake
