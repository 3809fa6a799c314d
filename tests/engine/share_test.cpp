// A GPU that other processes under the shim use too: this one gives them room, and takes it back.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "shim/executor/gpu_share.h"
#include "shim/program/contexts.h"
#include "shim/sharing/page.h"
#include "shim/trace/live_folder.h"
#include "shim/trace/process_name.h"
#include "tests/engine/live_pages.h"
#include "tests/engine/scene.h"
#include "tests/support/child.h"

namespace lms::fake {
namespace {

using executor::GpuShare;

constexpr std::array<char, 16> kUuid{'s', 'h', 'a', 'r', 'e'};
const std::string kSharePage = "gpu.73686172650000000000000000000000";

// What this process says of itself to others.
sharing::Tenant own_entry() {
    const trace::LiveFolder folder;
    std::string problem;
    const auto seen = sharing::look_at_page(folder.number(), kSharePage, problem).tenants;
    for (const sharing::Seen& each : seen) {
        if (each.process == trace::this_process()) return each.tenant;
    }
    FAIL(problem);
    return {};
}

// Another process that uses the GPU all the time, and wants more than that has.
class Neighbour {
  public:
    explicit Neighbour(const util::ShareTerms& terms = {.shares = true}) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        process_ = support::start_child([&] {
            const auto share = GpuShare::open(0, kUuid, terms);
            const GpuShare::Levels levels{1 << 20, 0, 0, 1 << 12, 1 << 12};
            if (share) share->look(levels);
            if (!share || ::write(ends[1], "x", 1) != 1) ::_exit(1);
            for (;; ::usleep(20'000)) share->look(levels);
        });
        char letter = 0;
        REQUIRE(::read(ends[0], &letter, 1) == 1);
        ::close(ends[0]);
        ::close(ends[1]);
    }
    ~Neighbour() {
        ::kill(process_, SIGKILL);
        support::end_of_child(process_);
    }

  private:
    pid_t process_ = 0;
};

struct SharedScene : Scene {
    explicit SharedScene(const util::ShareTerms& terms = {.shares = true}, bool maps_host = true)
        : SharedScene(terms, options_of(Safety::Opaque, 1, maps_host)) {}
    SharedScene(const util::ShareTerms& terms, const RigOptions& options) : Scene(options) {
        rig.session().share_by(GpuShare::open(0, kUuid, terms));
    }
    // While some context is there.
    void begin_helper() {
        program::context_seen(context(), rig.session().device());
        REQUIRE(rig.session().wake(context()) == CUDA_SUCCESS);
        rig.session().help_while_idle();
    }
    ~SharedScene() { program::forget_context(context()); }
    CUcontext context() { return reinterpret_cast<CUcontext>(this); }
    void look() {
        while (!rig.session().share_is_due()) ::usleep(1000);
        rig.session().look_at_share();
    }
    std::uint64_t granules_used() {
        return rig.gpu().with_memory([](const Memory& memory) { return memory.used_bytes(); }) /
               rig.options().granularity;
    }
    void use_all() {
        for (std::size_t i = 0; i < regions.size(); ++i) {
            const Gate open = std::make_shared<std::atomic<bool>>(true);
            REQUIRE(rig.submit(late_write(stream, i, open, true)) == CUDA_SUCCESS);
            changed(i);
            rig.drain();
        }
    }
};

TEST_CASE("share: a process that comes gets its half, and one that ends leaves it") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const LivePages pages;
        SharedScene scene({.shares = true}, maps_host);
        scene.look();  // of its own coming
        CHECK_FALSE(scene.rig.session().share_is_due());
        for (int i = 0; i < 6; ++i) scene.make(8);
        CHECK(scene.granules_used() >= 48);
        {
            const Neighbour neighbour;
            CHECK(scene.rig.session().share_is_due());
            for (int round = 0; round < 3; ++round) {
                scene.look();
                CHECK(scene.granules_used() <= 32);
                scene.use_all();
                CHECK(scene.granules_used() <= 34);
            }
            scene.check();
        }
        scene.look();
        scene.use_all();
        for (std::size_t i = 0; i < 6; ++i) CHECK(scene.place(i) == Place::Device);
        scene.check();
    }
}

TEST_CASE("share: by weight, and not below what is kept") {
    const LivePages pages;
    const Neighbour neighbour({.shares = true, .weight = 3});
    {
        SharedScene scene;
        for (int i = 0; i < 6; ++i) scene.make(8);
        scene.look();
        CHECK(scene.granules_used() <= 16);
        CHECK(scene.granules_used() >= 8);
        scene.check();
    }
    SharedScene scene({.shares = true, .least_bytes = 40 * 64});
    for (int i = 0; i < 6; ++i) scene.make(8);
    scene.look();
    CHECK(scene.granules_used() <= 40);
    CHECK(scene.granules_used() >= 32);
    scene.check();
}

TEST_CASE("share: what fits beside others stays") {
    const LivePages pages;
    const Neighbour neighbour;
    SharedScene scene;
    for (int i = 0; i < 3; ++i) scene.make(8);
    for (int i = 0; i < 3; ++i) {
        scene.look();
        CHECK(scene.granules_used() >= 24);
        scene.use_all();
    }
    scene.check();
}

TEST_CASE("share: what the host has no room for is kept, and others are told") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const LivePages pages;
        RigOptions options = options_of(Safety::Opaque, 1, maps_host);
        options.host_granules = 24;
        SharedScene scene({.shares = true}, options);
        for (int i = 0; i < 6; ++i) scene.make(8);
        const Neighbour neighbour({.shares = true, .weight = 100});
        scene.look();
        scene.look();
        // And a chunk's room on either side, so that they can change places.
        CHECK(own_entry().least_bytes > 24 * options.granularity);
        CHECK(own_entry().least_bytes <= 48 * options.granularity);
        scene.use_all();
        scene.check();
    }
}

template <typename Condition>
void reaches(Condition condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) ::usleep(10'000);
    CHECK(condition());
}

TEST_CASE("share: while a program makes no calls its helper gives back what another wants") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const LivePages pages;
        SharedScene scene({.shares = true}, maps_host);
        scene.begin_helper();
        scene.look();
        for (int i = 0; i < 6; ++i) scene.make(8);
        const Neighbour neighbour;
        reaches([&] { return scene.granules_used() <= 32; });
        scene.use_all();
        scene.check();
    }
}

TEST_CASE("share: the helper takes nothing from unfinished work") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const LivePages pages;
        SharedScene scene({.shares = true}, maps_host);
        scene.begin_helper();
        scene.look();
        const Gate open = std::make_shared<std::atomic<bool>>(false);
        for (int i = 0; i < 6; ++i) scene.make(8);
        for (std::size_t i = 0; i < 6; ++i) {
            REQUIRE(scene.rig.submit(scene.late_write(scene.stream, i, open, true)) == CUDA_SUCCESS);
            scene.changed(i);
        }
        const Neighbour neighbour;
        reaches([&] { return scene.rig.session().is_shared(); });
        ::usleep(200'000);
        CHECK(scene.granules_used() >= 48);
        open->store(true);
        reaches([&] { return scene.granules_used() <= 34; });
        scene.rig.drain();
        scene.check();
    }
}

TEST_CASE("share: unfinished work is use of the GPU, without a call") {
    const LivePages pages;
    const Neighbour neighbour;
    SharedScene scene;
    for (int i = 0; i < 6; ++i) scene.make(8);
    scene.begin_helper();
    scene.look();
    scene.rig.drain();
    const Gate open = std::make_shared<std::atomic<bool>>(false);
    REQUIRE(scene.rig.submit(scene.late_write(scene.stream, 0, open, true)) == CUDA_SUCCESS);
    scene.changed(0);
    const std::uint64_t submitted_ns = util::now_ns();
    reaches([&] { return own_entry().last_use_ns > submitted_ns; });
    open->store(true);
    scene.rig.drain();
    const std::uint64_t over_ns = util::now_ns();
    ::usleep(200'000);
    CHECK(own_entry().last_use_ns <= over_ns);
    scene.check();
}

TEST_CASE("share: who destroys a context waits for the helper that works in it") {
    const LivePages pages;
    SharedScene scene;
    scene.begin_helper();
    scene.look();
    for (int i = 0; i < 6; ++i) scene.make(8);
    scene.rig.drain();
    std::atomic<bool> closed{false}, waits{false};
    std::thread destroyer;
    const auto destroy = [&] {
        if (destroyer.joinable()) return;
        destroyer = std::thread([&] {
            program::ContextEnd end(scene.context(), scene.rig.session().device());
            end.close();
            closed = true;
        });
        ::usleep(50'000);
        waits = !closed;
    };
    for (const Region& region : scene.regions)
        scene.rig.gpu().before_unmap(region.address, region.address + region.bytes, Place::Device, destroy);
    const Neighbour neighbour;
    reaches([&] { return closed.load(); });
    CHECK(waits);
    destroyer.join();
}

TEST_CASE("share: where the user wants none, or there is no page, the process is as if alone") {
    const LivePages pages;
    CHECK(GpuShare::open(0, kUuid, {.shares = true}) != nullptr);
    CHECK(GpuShare::open(0, kUuid, {.shares = false}) == nullptr);
    const std::string page =
        pages.scratch.path("lmsshim-" + std::to_string(geteuid())) + "/" + sharing::file_of_page(kSharePage);
    REQUIRE(::access(page.c_str(), F_OK) == 0);
    REQUIRE(::truncate(page.c_str(), 100) == 0);
    CHECK(GpuShare::open(0, kUuid, {.shares = true}) == nullptr);
}

TEST_CASE("share: the page is in LMS_SHARE_DIR, if that is the user's alone") {
    const LivePages pages;
    const Scratch folder;
    const std::string path = folder.path("shared");
    const auto opens = [&] { return GpuShare::open(0, kUuid, {.shares = true}, path) != nullptr; };
    CHECK_FALSE(opens());
    REQUIRE(::mkdir(path.c_str(), 0700) == 0);
    CHECK(opens());
    CHECK(::access((path + "/" + sharing::file_of_page(kSharePage)).c_str(), F_OK) == 0);
    CHECK(::access(pages.scratch.path("lmsshim-" + std::to_string(geteuid())).c_str(), F_OK) != 0);
    for (const mode_t mode : {0710, 0701, 0720, 01777}) {
        REQUIRE(::chmod(path.c_str(), mode) == 0);
        CHECK_FALSE(opens());
    }
    REQUIRE(::chmod(path.c_str(), 0700) == 0);
    if (geteuid() == 0) {
        REQUIRE(::chown(path.c_str(), 1, 1) == 0);
        CHECK_FALSE(opens());
        REQUIRE(::chown(path.c_str(), 0, 0) == 0);
    }
    const std::string link = folder.path("link");
    REQUIRE(::symlink(path.c_str(), link.c_str()) == 0);
    CHECK(GpuShare::open(0, kUuid, {.shares = true}, link) == nullptr);
    CHECK(opens());
}

}  // namespace
}  // namespace lms::fake
