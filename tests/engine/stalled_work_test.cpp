// Work that never ends is waited for once, not by every launch that would need it to end.
#include <doctest/doctest.h>

#include <optional>
#include <thread>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

constexpr std::size_t kLaunches = 20;
// A wait for the bound looks at fences for a second; a launch that does not wait, a few times.
constexpr std::uint64_t kLooks = 20 * kLaunches;

// Launches that need a buffer which cannot come in: none waits.
void check_no_waits(Scene& scene, std::size_t index) {
    const std::uint64_t before = scene.rig.gpu().calls(Call::Query);
    for (std::size_t i = 0; i < kLaunches; ++i) CHECK(scene.need(index, scene.stream) == CUDA_SUCCESS);
    CHECK(scene.rig.gpu().calls(Call::Query) - before < kLooks);
    CHECK(scene.place(index) == Place::Host);
}

TEST_CASE("stalled work: work that never ends is waited for once") {
    for (const Safety safety : {Safety::Args, Safety::Opaque, Safety::Strict}) {
        Scene scene(options_of(safety));
        const std::size_t first = scene.make(30);
        const std::size_t second = scene.make(30);
        const std::size_t away = scene.make(30);
        REQUIRE(scene.need(first, scene.stream) == CUDA_SUCCESS);
        REQUIRE(scene.need(second, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        REQUIRE(scene.place(away) == Place::Host);
        // Two of them, on streams of their own, hold all there is on the GPU.
        const Gate endless = closed();
        const CUstream streams[] = {scene.rig.stream(), scene.rig.stream()};
        for (const std::size_t index : {first, second}) {
            Job job = scene.late_write(streams[index], index, endless, safety == Safety::Args);
            job.opaque = safety == Safety::Opaque;
            REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
            scene.changed(index);
        }
        const std::uint64_t before = scene.rig.gpu().calls(Call::Query);
        CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
        CHECK(scene.rig.gpu().calls(Call::Query) - before > kLooks);
        check_no_waits(scene, away);
        // Nor for what was given to such a stream later.
        for (const std::size_t index : {first, second}) {
            Job job = scene.late_write(streams[index], index, endless, true);
            job.opaque = safety == Safety::Opaque;
            REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
            scene.changed(index);
        }
        check_no_waits(scene, away);

        // They end after all, and the stream is waited for as any other.
        *endless = true;
        scene.rig.drain();
        CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
        CHECK(scene.place(away) == Place::Device);
        scene.rig.drain();
        const Gate gate_ = closed();
        const std::size_t gone = scene.place(first) == Place::Host ? first : second;
        Job job = scene.late_write(streams[0], away, gate_, safety == Safety::Args);
        job.opaque = safety == Safety::Opaque;
        REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
        scene.changed(away);
        const std::size_t other = gone == first ? second : first;
        REQUIRE(scene.rig.submit(scene.late_write(streams[1], other, gate_, true)) == CUDA_SUCCESS);
        scene.changed(other);
        scene.open_after_a_while(gate_);
        CHECK(scene.need(gone, scene.stream) == CUDA_SUCCESS);
        CHECK(scene.place(gone) == Place::Device);
        scene.check();
    }
}

TEST_CASE("stalled work: beside work that never ends, other work is still waited for") {
    Scene scene(options_of(Safety::Args));
    const std::size_t first = scene.make(30);
    const std::size_t second = scene.make(30);
    const std::size_t away = scene.make(30);
    REQUIRE(scene.need(first, scene.stream) == CUDA_SUCCESS);
    REQUIRE(scene.need(second, scene.stream) == CUDA_SUCCESS);
    scene.rig.drain();
    const Gate endless = closed();
    const Gate long_one = closed();
    const CUstream other = scene.rig.stream();
    REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), first, endless, true)) == CUDA_SUCCESS);
    REQUIRE(scene.rig.submit(scene.late_write(other, second, long_one, true)) == CUDA_SUCCESS);
    scene.changed(first);
    scene.changed(second);
    CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
    CHECK(scene.place(away) == Place::Host);
    // What is used least recently still stands still, the rest goes on.
    *long_one = true;
    scene.rig.gpu().finish(scene.rig.gpu().mark(other));
    const Gate gate_ = closed();
    REQUIRE(scene.rig.submit(scene.late_write(other, second, gate_, true)) == CUDA_SUCCESS);
    scene.changed(second);
    scene.open_after_a_while(gate_);
    CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
    CHECK(scene.place(away) == Place::Device);
    CHECK(scene.place(second) == Place::Host);
    *endless = true;
    scene.check();
}

TEST_CASE("stalled work: beside a free in a stream that stands still, other work is still waited for") {
    Scene scene(options_of(Safety::Args));
    const std::size_t second = scene.make(30);
    const std::size_t away = scene.make(30);
    const std::size_t freed = scene.make(30);
    REQUIRE(scene.need(second, scene.stream) == CUDA_SUCCESS);
    REQUIRE(scene.need(freed, scene.stream) == CUDA_SUCCESS);
    scene.rig.drain();
    REQUIRE(scene.place(away) == Place::Host);
    const Gate endless = closed();
    const Gate long_one = closed();
    const CUstream still = scene.rig.stream();
    const CUstream other = scene.rig.stream();
    REQUIRE(scene.rig.submit(scene.late_write(still, freed, endless, true)) == CUDA_SUCCESS);
    REQUIRE(scene.rig.session().free_on(still, scene.regions[freed].address) == CUDA_SUCCESS);
    scene.regions.pop_back();
    scene.expected.pop_back();
    REQUIRE(scene.rig.submit(scene.late_write(other, second, long_one, true)) == CUDA_SUCCESS);
    scene.changed(second);
    CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
    CHECK(scene.place(away) == Place::Host);
    *long_one = true;
    scene.rig.gpu().finish(scene.rig.gpu().mark(other));
    const Gate gate_ = closed();
    REQUIRE(scene.rig.submit(scene.late_write(other, second, gate_, true)) == CUDA_SUCCESS);
    scene.changed(second);
    scene.open_after_a_while(gate_);
    CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
    CHECK(scene.place(away) == Place::Device);
    *endless = true;
    scene.check();
}

// A thread between acquire() and submitted(), in the driver for as long as the program makes it: in a
// synchronous copy behind a gate, or before a full queue.
struct InDriver {
    InDriver(Scene& scene, session::WorkingSet reach_)
        : session(scene.rig.session()), reach(reach_), work(reach) {
        REQUIRE(session.acquire(work) == CUDA_SUCCESS);
    }
    ~InDriver() { session.submitted(work); }

    session::Session& session;
    const session::WorkingSet reach;
    session::Work work;
};

TEST_CASE("stalled work: a thread that stands in the driver is waited for once") {
    enum class Holds { Nothing, Room, InPlace };
    for (const Holds holds : {Holds::Nothing, Holds::Room, Holds::InPlace}) {
        CAPTURE(static_cast<int>(holds));
        Scene scene(options_of(Safety::Opaque));
        const std::size_t first = scene.make(30);
        const std::size_t second = scene.make(30);
        const std::size_t away = scene.make(30);
        for (const std::size_t index : {first, second})
            REQUIRE(scene.need(index, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        REQUIRE(scene.place(away) == Place::Host);
        // Each look at what is over asks for this.
        const Gate endless = closed();
        Job waiting{scene.rig.stream(), {}, {}, false, gate(endless)};
        waiting.unseen = true;
        REQUIRE(scene.rig.submit(std::move(waiting)) == CUDA_SUCCESS);
        session::WorkingSet reach;
        reach.stream = scene.rig.stream();
        switch (holds) {
            case Holds::Nothing:
                reach.opaque = true;
                break;
            case Holds::Room:
                reach.addresses = {scene.regions[first].address, scene.regions[second].address};
                break;
            case Holds::InPlace:
                reach.ranges = {{.address = scene.regions[away].address,
                                 .bytes = scene.regions[away].bytes,
                                 .may_stay = true}};
        }
        std::optional<InDriver> thread(std::in_place, scene, reach);
        CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
        check_no_waits(scene, away);
        std::thread([&] { check_no_waits(scene, away); }).join();

        // It comes back after all, and the next is waited for.
        thread.reset();
        for (const CUstream stream : {scene.stream, reach.stream})
            scene.rig.gpu().finish(scene.rig.gpu().mark(stream));
        CHECK(scene.need(away, scene.stream) == CUDA_SUCCESS);
        CHECK(scene.place(away) == Place::Device);
        *endless = true;
        scene.check();
    }
}

// Whether `get_on` comes back while another thread is inside `wait`, which waits for what `endless` holds up.
template <typename Wait, typename GetOn>
bool gets_on(Scene& scene, Wait wait, GetOn get_on) {
    std::atomic<bool> waiting{true};
    const std::uint64_t before = scene.rig.gpu().calls(Call::Query);
    std::thread other([&] {
        wait();
        waiting = false;
    });
    // It looks again and again.
    while (waiting && scene.rig.gpu().calls(Call::Query) < before + 100) std::this_thread::yield();
    get_on();
    const bool before_it = waiting;
    other.join();
    return before_it;
}

namespace {

enum class Wants { Launch, Pin, Room };

bool others_get_on(Wants wants) {
    Scene scene(options_of(Safety::Opaque));
    const std::size_t busy = scene.make(20);
    const std::size_t idle = scene.make(20);
    const std::size_t held = scene.make(40);
    const std::size_t away = scene.make(20);
    REQUIRE(scene.need(held, scene.stream) == CUDA_SUCCESS);
    scene.rig.drain();
    const Gate endless = closed();
    const CUstream stream = scene.rig.stream();
    REQUIRE(scene.rig.submit(scene.late_write(stream, held, endless, true)) == CUDA_SUCCESS);
    scene.changed(held);
    REQUIRE(scene.place(busy) == Place::Host);
    // Used in place, it cannot come in.
    session::WorkingSet reach;
    reach.stream = stream;
    reach.ranges = {{.address = scene.regions[busy].address, .bytes = 20 * 64, .may_stay = true}};
    std::optional<InDriver> in_place(std::in_place, scene, reach);
    const auto wait = [&] {
        const Address at = scene.regions[busy].address;
        switch (wants) {
            case Wants::Launch:
                CHECK(scene.need(busy, scene.rig.stream()) == CUDA_SUCCESS);
                break;
            case Wants::Pin:
                CHECK(scene.rig.session().pin(at, 20 * 64) == session::Session::Asked::Busy);
                break;
            case Wants::Room:
                scene.rig.session().reclaim(1000 * 64);
        }
    };
    const bool got_on = gets_on(scene, wait, [&] {
        for (const std::size_t index : {away, idle, away, idle}) {
            CHECK(scene.need(index, scene.stream) == CUDA_SUCCESS);
            scene.rig.gpu().finish(scene.rig.gpu().mark(scene.stream));
        }
    });
    *endless = true;
    in_place.reset();
    scene.check();
    return got_on;
}

}  // namespace

// The wait ends after a second, which a busy machine may take for the rest: then it is tried again.
TEST_CASE(
    "stalled work: who waits for it, for a launch or for more, does not hold up those who need none of it") {
    constexpr int kTries = 5;
    for (const Wants wants : {Wants::Launch, Wants::Pin, Wants::Room}) {
        CAPTURE(static_cast<int>(wants));
        int tries = 0;
        while (!others_get_on(wants) && ++tries < kTries) {
        }
        CHECK(tries < kTries);
    }
}

TEST_CASE("stalled work: what stood still before the context went says nothing of the next one's") {
    const auto context = reinterpret_cast<CUcontext>(0x9010);
    Scene scene(options_of(Safety::Opaque));
    const CUstream other = scene.rig.stream();
    // Of two buffers the second finds no room while work from before is held up.
    const auto begin = [&](const Gate& gate_) {
        const std::size_t held = scene.make(64);
        scene.rig.drain();
        REQUIRE(scene.rig.submit(scene.late_write(other, held, gate_, true)) == CUDA_SUCCESS);
        scene.changed(held);
    };
    const Gate endless = closed();
    begin(endless);
    CHECK(scene.place(scene.make(60)) == Place::Host);
    *endless = true;
    scene.check();
    scene.rig.session().context_gone(scene.rig.session().context(), {});
    scene.regions.clear();
    scene.expected.clear();
    REQUIRE(scene.rig.session().wake(context) == CUDA_SUCCESS);
    const Gate slow = closed();
    begin(slow);
    scene.open_after_a_while(slow);
    CHECK(scene.place(scene.make(60)) == Place::Device);
    *slow = true;
    scene.check();
}

}  // namespace
}  // namespace lms::fake
