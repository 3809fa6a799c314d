// Turns on a GPU that processes share: what waits for one, what does not, and what ends a wait.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "shim/executor/gpu_share.h"
#include "shim/trace/live_folder.h"
#include "tests/engine/live_pages.h"
#include "tests/engine/scene.h"
#include "tests/support/child.h"

namespace lms::fake {
namespace {

using executor::GpuShare;

constexpr std::array<char, 16> kTurnsUuid{'t', 'u', 'r', 'n', 's'};
constexpr const char* kPage = "gpu.7475726e730000000000000000000000";

std::unique_ptr<sharing::SharingPage> open_page() {
    const trace::LiveFolder folder;
    std::string problem;
    return sharing::SharingPage::open(folder.number(), kPage, problem);
}

// So long a process may get no processor, and is not to lose its turn for that.
constexpr std::uint64_t kSlowestMachine = 200'000'000;

// Another process, which has the turn and uses it all the time until it is killed.
class TurnHolder {
  public:
    explicit TurnHolder(std::uint32_t priority = 0, std::uint64_t allocated_bytes = 48 * 64,
                        std::uint64_t resident_bytes = 0) {
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        process_ = support::start_child([&] {
            const auto page = open_page();
            const auto now = [] { return util::now_ns(); };
            const auto write = [&] {
                return page->write({.allocated_bytes = allocated_bytes,
                                    .resident_bytes = resident_bytes,
                                    .priority = priority,
                                    .last_use_ns = now() + kSlowestMachine});
            };
            if (!page || !write()) ::_exit(1);
            std::size_t slot = 0;
            for (const sharing::Seen& seen : page->tenants())
                if (page->is_own(seen)) slot = seen.slot;
            page->take_turns_until(now() + 29'000'000'000);
            page->pass_turn(page->turn(), sharing::word_of({slot, now(), 28'000'000'000}));
            page->announce();
            if (::write(ends[1], "x", 1) != 1) ::_exit(1);
            for (;; ::usleep(2000)) write();
        });
        char letter = 0;
        REQUIRE(::read(ends[0], &letter, 1) == 1);
        ::close(ends[0]);
        ::close(ends[1]);
    }
    ~TurnHolder() { kill(); }
    void kill() {
        if (process_ == 0) return;
        ::kill(process_, SIGKILL);
        support::end_of_child(process_);
        process_ = 0;
    }
    void stop() { ::kill(process_, SIGSTOP); }

  private:
    pid_t process_ = 0;
};

// Six buffers of 8 granules each, on a GPU of 64, of which others have their part.
struct TurnsScene : Scene {
    explicit TurnsScene(const util::ShareTerms& terms = {.shares = true}, bool maps_host = true,
                        const util::GpuClock& clock = {})
        : Scene(options_of(Safety::Opaque, 1, maps_host)) {
        rig.session().share_by(GpuShare::open(0, kTurnsUuid, terms, {}, clock));
        for (int i = 0; i < 6; ++i) make(8);
    }
    std::uint64_t granules_used() {
        return rig.gpu().with_memory([](const Memory& memory) { return memory.used_bytes(); }) /
               rig.options().granularity;
    }
    // Until others have what is theirs.
    void give() {
        const auto any_left = [&] {
            for (std::size_t i = 0; i < regions.size(); ++i)
                if (place(i) == Place::Host) return true;
            return false;
        };
        while (!any_left()) look();
    }
    void look() {
        while (!rig.session().share_is_due()) ::usleep(1000);
        rig.session().look_at_share();
    }
    bool waits() {
        for (const sharing::Seen& seen : page->tenants())
            if (page->is_own(seen)) return seen.tenant.waiting_since_ns != 0;
        return false;
    }
    std::size_t own_slot() {
        for (const sharing::Seen& seen : page->tenants())
            if (page->is_own(seen)) return seen.slot;
        return sharing::kNoTenant;
    }
    std::size_t a_buffer(Place where) {
        for (std::size_t i = 0; i < regions.size(); ++i)
            if (place(i) == where) return i;
        FAIL("no such buffer");
        return 0;
    }
    // A call by another thread, which waits for the turn until `end` has been called.
    void until(const std::function<CUresult()>& call, const std::function<void()>& end) {
        over = false;
        std::thread other([&] {
            CHECK(call() == CUDA_SUCCESS);
            over = true;
        });
        while (!waits() && !over) ::usleep(1000);
        CHECK_FALSE(over);
        end();
        other.join();
        CHECK_FALSE(waits());  // others would give it turns that it does not use
    }
    // A launch of that buffer.
    void until(std::size_t index, const std::function<void()>& end) {
        until([&] { return need(index, stream); }, end);
    }
    const std::unique_ptr<sharing::SharingPage> page = open_page();
    std::atomic<bool> over{false};
};

TEST_CASE("turns: a launch that lacks chunks waits until the holder is killed, and others go on meanwhile") {
    const LivePages pages;
    TurnHolder holder;
    TurnsScene scene;
    scene.give();
    const CUstream beside = scene.rig.stream();
    scene.until(scene.a_buffer(Place::Host), [&] {
        // What is there is used, and memory is freed, copied and asked for.
        CHECK(scene.need(scene.a_buffer(Place::Device), beside) == CUDA_SUCCESS);
        Address address = 0;
        CHECK(scene.rig.session().allocate(64, address) == CUDA_SUCCESS);
        CHECK(scene.rig.session().buffer_at(address));
        CHECK(scene.rig.session().free(address) == CUDA_SUCCESS);
        const Region host = scene.regions[scene.a_buffer(Place::Host)];
        CHECK(scene.rig.submit({beside, {}, {{host.address, 64, false, true}}, false, [](Memory&) {
                                    return true;
                                }}) == CUDA_SUCCESS);
        holder.kill();
    });
    scene.check();
}

TEST_CASE("turns: a holder that is stopped loses its turn") {
    const LivePages pages;
    TurnHolder holder;
    TurnsScene scene;
    scene.give();
    scene.until(scene.a_buffer(Place::Host), [&] { holder.stop(); });
    scene.check();
}

TEST_CASE("turns: while one of higher priority has it, all work waits, and work of a higher one none") {
    const LivePages pages;
    TurnHolder holder(2);
    {
        TurnsScene scene({.shares = true, .priority = 1});
        scene.give();
        scene.until(scene.a_buffer(Place::Device), [&] { holder.kill(); });
        scene.check();
    }
    const TurnHolder lower(0);
    TurnsScene scene({.shares = true, .priority = 1});
    scene.look();
    for (std::size_t i = 0; i < 6; ++i) CHECK(scene.need(i, scene.stream) == CUDA_SUCCESS);
    scene.check();
}

TEST_CASE("turns: where all fit none waits") {
    const LivePages pages;
    const TurnHolder holder(2, 8 * 64);
    TurnsScene scene;
    scene.look();
    for (std::size_t i = 0; i < 6; ++i) CHECK(scene.need(i, scene.stream) == CUDA_SUCCESS);
    CHECK(scene.place(0) == Place::Device);
    scene.check();
}

TEST_CASE("turns: while one of higher priority has it, what is idle leaves at the first look, beside work") {
    const LivePages pages;
    TurnsScene scene({.shares = true, .priority = 1});
    for (int i = 0; i < 3; ++i) scene.make(8);  // or nothing would have moved yet
    const auto open = closed();
    REQUIRE(scene.rig.submit(scene.late_write(scene.stream, 0, open, true)) == CUDA_SUCCESS);
    scene.changed(0);
    const TurnHolder holder(2);
    scene.look();
    CHECK(scene.granules_used() <= 16);
    CHECK(scene.place(0) == Place::Device);
    open->store(true);
    scene.check();
}

// A clock that goes on by hand, and the helper that it calls.
struct TestClock {
    static inline std::atomic<std::uint64_t> now_ns{0};
    static inline util::GpuClock::Help* help = nullptr;
    static inline void* self = nullptr;

    static util::GpuClock make() {
        now_ns = 1'000'000'000;
        return {[] { return now_ns.load(); }, [](std::uint64_t ns) { now_ns += ns; },
                [](util::GpuClock::Help* to_call, void* of) {
                    help = to_call;
                    self = of;
                }};
    }
    // The helper is called after so long; when it is to be called again.
    static std::uint64_t helps_after(std::uint64_t ns) {
        now_ns += ns;
        return help(self);
    }
};

// It has the turn; another process waits for it all the time.
struct PausesScene : TurnsScene {
    static constexpr std::uint64_t kMs = 1'000'000;

    // The other came at `came_ns`.
    explicit PausesScene(std::uint64_t came_ns = 0) : TurnsScene({.shares = true}, true, TestClock::make()) {
        int context = 0;
        REQUIRE(rig.session().wake(reinterpret_cast<CUcontext>(&context)) == CUDA_SUCCESS);
        rig.session().help_while_idle();
        other_ = support::start_child([=] {
            const auto its_page = open_page();
            if (!its_page || !its_page->write({.allocated_bytes = 48 * 64,
                                               .last_use_ns = util::now_ns(),
                                               .waiting_since_ns = 1,
                                               .came_ns = came_ns}))
                ::_exit(1);
            for (;;) ::pause();
        });
        while (page->tenants().size() < 2) ::usleep(1000);
        take_turn();
    }
    ~PausesScene() {
        ::kill(other_, SIGKILL);
        support::end_of_child(other_);
    }
    void take_turn() {
        const std::uint64_t now = TestClock::now_ns;
        page->take_turns_until(now + 29'000 * kMs);
        page->pass_turn(page->turn(), sharing::word_of({own_slot(), now, 28'000 * kMs}));
        use();
        REQUIRE(has_turn());
    }
    bool has_turn() { return sharing::turn_of(page->turn(), TestClock::now_ns).holder == own_slot(); }
    // A launch, which sees what others have, and its end.
    void use() {
        CHECK(need(0, stream) == CUDA_SUCCESS);
        rig.drain();
        TestClock::now_ns += 10 * kMs;
        rig.session().look_at_share();
    }
    // How many ms of a pause there are until the turn is the other's.
    unsigned ms_until_lost() {
        for (unsigned ms = 1; ms < 1000; ++ms) {
            CHECK(TestClock::helps_after(kMs) <= 50 * kMs);
            if (!has_turn()) return ms;
        }
        return 0;
    }

  private:
    pid_t other_ = 0;
};

TEST_CASE("turns: a holder that pauses gives up its turn and what it has, sooner after each long pause") {
    const LivePages pages;
    PausesScene scene;
    unsigned before = 1000;
    for (const unsigned most : {32u, 17u, 10u, 6u, 4u, 3u, 3u}) {
        CAPTURE(most);
        const unsigned lost = scene.ms_until_lost();
        CHECK(lost >= 2);
        CHECK(lost <= most);
        CHECK(lost <= before);
        before = lost;
        CHECK(scene.granules_used() <= 16);
        TestClock::now_ns += 200 * scene.kMs;
        scene.take_turn();
    }
    scene.check();
}

TEST_CASE("turns: the first is of the process that came last, whoever waits") {
    for (const bool comes_last : {true, false}) {
        CAPTURE(comes_last);
        const LivePages pages;
        // It came before the other, but has been idle since.
        PausesScene scene(comes_last ? 5'000 * PausesScene::kMs : std::uint64_t{1} << 62);
        for (int i = 0; i < 3; ++i) scene.make(8);  // it would lack none
        scene.use();
        TestClock::now_ns += 29'000 * scene.kMs;  // without turns from now on
        scene.page->take_turns_until(TestClock::now_ns + static_cast<std::uint64_t>(sharing::kTurns.count()));
        scene.use();
        CHECK(scene.has_turn() == comes_last);
    }
}

TEST_CASE("turns: a holder keeps its turn while it has unfinished work, or submits") {
    const LivePages pages;
    PausesScene scene;
    for (int i = 0; i < 6; ++i) {  // it is known to pause
        scene.ms_until_lost();
        TestClock::now_ns += 200 * scene.kMs;
        scene.take_turn();
    }
    for (int i = 0; i < 100; ++i) {
        CHECK(scene.need(0, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        TestClock::helps_after(scene.kMs);
        REQUIRE(scene.has_turn());
    }
    const auto open = closed();
    REQUIRE(scene.rig.submit(scene.late_write(scene.stream, 0, open, true)) == CUDA_SUCCESS);
    scene.changed(0);
    CHECK(scene.ms_until_lost() == 0);
    open->store(true);
    scene.rig.drain();
    CHECK(scene.ms_until_lost() > 0);
    scene.check();
}

TEST_CASE("turns: a process that has been idle has others look when it uses the GPU again") {
    const LivePages pages;
    PausesScene scene;
    scene.use();
    const std::uint32_t before = scene.page->changes();
    TestClock::now_ns += 400 * scene.kMs;
    scene.use();
    CHECK(scene.page->changes() == before);
    TestClock::now_ns += 500 * scene.kMs;
    scene.use();
    CHECK(scene.page->changes() != before);
    scene.check();
}

TEST_CASE("turns: the helper of an idle process looks at what others announce, however soon after a look") {
    const LivePages pages;
    PausesScene scene;
    scene.ms_until_lost();
    TestClock::helps_after(60 * scene.kMs);
    for (int i = 0; i < 3; ++i) {
        scene.page->announce();
        REQUIRE(scene.rig.session().share_is_due());
        TestClock::helps_after(scene.kMs);
        CHECK_FALSE(scene.rig.session().share_is_due());
    }
    scene.check();
}

TEST_CASE("turns: a buffer is large, or in chunks, by what there is in a turn, whoever has it") {
    const LivePages pages;
    TurnHolder holder(0, 64 * 64);
    TurnsScene scene;
    const std::uint64_t alone = scene.rig.session().largest_chunk();
    const std::uint64_t piece = scene.rig.session().piece_bytes();
    scene.give();
    CHECK(scene.rig.session().largest_chunk() == alone);
    CHECK(scene.rig.session().piece_bytes() == piece);
    const Region host = scene.regions[scene.a_buffer(Place::Host)];
    // Of a large one the first half would stay where it is.
    const auto launch = [&] {
        const Address half = host.address + host.bytes / 2;
        return scene.rig.submit({scene.stream, {half}, {}, false, [](Memory&) { return true; }});
    };
    scene.until(launch, [&] { holder.kill(); });
    CHECK(scene.rig.on_device(host) == host.bytes);
    scene.check();
}

// Five of six buffers, of which others have most, at once.
struct MostScene : TurnsScene {
    explicit MostScene(bool maps_host) : TurnsScene({.shares = true}, maps_host) {}

    std::vector<session::Range> ranges() {
        std::vector<session::Range> all;
        for (std::size_t i = 0; i < 5; ++i) all.push_back({regions[i].address, regions[i].bytes});
        return all;
    }
    CUresult launch() {
        return rig.submit({stream, {}, ranges(), false, [](Memory&) { return true; }});
    }
    CUresult keep(std::span<const session::Range> those, session::ResidentPins& kept) {
        std::pmr::vector<engine::ChunkRequest> needs;
        rig.session().name({}, those, needs);
        return rig.session().pin_resident(needs, kept);
    }
    // What others have not given back yet.
    void is_held(std::uint64_t granules) {
        rig.gpu().with_memory([&](Memory& memory) { memory.take_outside(granules * 64); });
    }
    void hold_until(const std::function<CUresult()>& call, TurnHolder& holder, std::uint64_t granules = 32) {
        is_held(granules);
        until(call, [&] {
            holder.stop();
            const auto is_own = [&] {
                const auto turn = sharing::turn_of(page->turn(), util::now_ns());
                return turn.holder == own_slot();
            };
            while (!over && !is_own()) ::usleep(1000);
            ::usleep(100'000);  // more than a holder waits before it moves its own
            CHECK_FALSE(over);
            is_held(0);
        });
    }
};

// Nothing can be used where it is then, so it waits for what others have.
TEST_CASE("turns: where host memory cannot be mapped, work that needs more than is granted waits for that") {
    const LivePages pages;
    TurnHolder holder(0, 48 * 64, 32 * 64);
    MostScene scene(false);
    const auto launch = [&] { return scene.launch(); };
    SUBCASE("while another has the turn") {
        scene.give();
        scene.hold_until(launch, holder);
    }
    SUBCASE("while nobody has turns") {
        scene.page->take_turns_until(0);
        scene.give();
        scene.hold_until(launch, holder);
    }
    SUBCASE("while an object keeps some of it") {
        session::ResidentPins kept;
        const session::Range range{scene.regions[5].address, scene.regions[5].bytes};
        REQUIRE(scene.keep({&range, 1}, kept) == CUDA_SUCCESS);
        scene.give();
        scene.hold_until(launch, holder, 20);
        scene.rig.session().unpin_resident(kept);
    }
    scene.check();
}

// What it lacks may be less than what moves change at any moment.
TEST_CASE("turns: what is granted is taken to the byte while work waits for it") {
    const LivePages pages;
    const TurnHolder other(0, 4096, 2048);
    const auto page = open_page();
    page->take_turns_until(0);
    const auto share = GpuShare::open(0, kTurnsUuid, {.shares = true});
    REQUIRE(share);
    GpuShare::Levels own{.allocated_bytes = 1000,
                         .held_bytes = 1000,
                         .pinned_bytes = 0,
                         .free_bytes = 1048,
                         .most_bytes = 4096};
    own.granted_bytes = share->look(own).value_or(0);
    CHECK(own.granted_bytes == 1000);
    own.allocated_bytes = 1100;
    CHECK(share->look(own) == 1000);  // no news
    {
        const GpuShare::Waiter waiter(*share, util::now_ns());
        CHECK(share->look(own) == 1100);
    }
    CHECK(share->look(own) == 1000);
}

TEST_CASE("turns: what an object keeps on the GPU waits for what others have") {
    const LivePages pages;
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        TurnHolder holder(0, 48 * 64, 32 * 64);
        MostScene scene(maps_host);
        scene.give();
        session::ResidentPins kept;
        scene.hold_until([&] { return scene.keep(scene.ranges(), kept); }, holder);
        scene.rig.session().unpin_resident(kept);
        scene.check();
    }
}

TEST_CASE("turns: whatever a page says, and however it changes, launches come to an end, and bytes stay") {
    const LivePages pages;
    for (unsigned seed = 0; seed < 12; ++seed) {
        CAPTURE(seed);
        TurnsScene scene;
        std::atomic<bool> over{false};
        std::thread scribe([&] {
            std::mt19937_64 random(seed);
            const trace::LiveFolder folder;
            const int file = ::openat(folder.number(), sharing::file_of_page(kPage).c_str(), O_RDWR);
            constexpr std::size_t kHead = offsetof(sharing::PageLayout, changes);
            constexpr std::size_t kBytes = sizeof(sharing::PageLayout) - kHead;
            std::string bytes(kBytes, '\0');
            while (!over) {
                const std::uint64_t odds = 1 + random() % 8;
                for (char& byte : bytes) byte = static_cast<char>(random() % odds == 0 ? random() : 0);
                CHECK(::pwrite(file, bytes.data(), kBytes, kHead) == static_cast<ssize_t>(kBytes));
                ::usleep(random() % 3000);
            }
            // Such as none is held up by for long: what is left must not be either.
            ::close(file);
        });
        std::mt19937 random(seed);
        for (int i = 0; i < 60; ++i) {
            const std::size_t index = random() % scene.regions.size();
            const Gate open = std::make_shared<std::atomic<bool>>(true);
            if (scene.rig.session().share_is_due()) scene.rig.session().look_at_share();
            REQUIRE(scene.rig.submit(scene.late_write(scene.stream, index, open, true)) == CUDA_SUCCESS);
            scene.changed(index);
        }
        over = true;
        scribe.join();
        scene.check();
    }
}

}  // namespace
}  // namespace lms::fake
