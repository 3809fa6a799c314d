// What is copied out before its room is needed: it may be claimed back, freed, or in the way.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <thread>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

// What leaves next is copied out before its room is needed (`cold` here), and stays until it is.
struct AheadScene : Scene {
    explicit AheadScene(const RigOptions& options)
        : Scene(options), first(make(8)), cold(make(4)), warm(make(50)), third(make(10)) {
        for (const std::size_t each : {first, cold, warm}) REQUIRE(need(each, stream) == CUDA_SUCCESS);
        rig.drain();
        const std::uint64_t copies = rig.gpu().calls(Call::Copy);
        REQUIRE(need(third, stream) == CUDA_SUCCESS);
        // Without any ahead of need it is as many out as in.
        copied_ahead = rig.gpu().calls(Call::Copy) - copies > 2 * kChunksIn;
        REQUIRE(place(cold) == Place::Device);
    }
    static constexpr std::uint64_t kChunksIn = 8;  // of `third`, whose first 2 granules were there

    std::size_t first;
    std::size_t cold;
    std::size_t warm;
    std::size_t third;
    bool copied_ahead = false;
};

TEST_CASE("ahead: what is copied out ahead of need and written then is copied again") {
    for (const bool maps_host : {true, false}) {
        for (const Safety safety : {Safety::Args, Safety::Opaque, Safety::Strict}) {
            for (const bool named : {true, false}) {
                if (!named && (safety == Safety::Args || !maps_host)) continue;
                for (std::uint64_t seed = 1; seed <= 5; ++seed) {
                    CAPTURE(maps_host);
                    CAPTURE(named);
                    CAPTURE(seed);
                    AheadScene scene(options_of(safety, seed, maps_host));
                    CHECK(scene.copied_ahead == (safety != Safety::Strict));
                    if (seed % 2) scene.rig.drain();
                    const Gate open = std::make_shared<std::atomic<bool>>(true);
                    Job job = scene.late_write(scene.stream, scene.cold, open, named);
                    job.opaque = !named;
                    REQUIRE(scene.rig.submit(job) == CUDA_SUCCESS);
                    scene.changed(scene.cold);
                    scene.rig.drain();
                    // Now everything else is needed more recently than it.
                    for (const std::size_t each : {scene.third, scene.first, scene.warm})
                        REQUIRE(scene.need(each, scene.stream) == CUDA_SUCCESS);
                    scene.check();
                }
            }
        }
    }
}

// No level but strict promises it: nothing tells of such a write. But a copy is not old when it is used.
TEST_CASE("ahead: what is copied out ahead of need is copied again once much work has passed by") {
    for (const bool maps_host : {true, false}) {
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
            CAPTURE(maps_host);
            CAPTURE(seed);
            AheadScene scene(options_of(Safety::Opaque, seed, maps_host));
            const Gate open = std::make_shared<std::atomic<bool>>(true);
            REQUIRE(scene.rig.submit(scene.late_write(scene.stream, scene.cold, open, false)) ==
                    CUDA_SUCCESS);
            scene.changed(scene.cold);
            for (int i = 0; i < 100; ++i) REQUIRE(scene.need(scene.third, scene.stream) == CUDA_SUCCESS);
            scene.rig.drain();
            for (const std::size_t each : {scene.first, scene.warm})
                REQUIRE(scene.need(each, scene.stream) == CUDA_SUCCESS);
            CHECK(scene.place(scene.cold) == Place::Host);
            scene.check();
        }
    }
}

// Asks for whatever is not there, and lets go for it of whatever is.
class Undecided final : public engine::Ranking {
  public:
    explicit Undecided(std::size_t& asked) : asked_(asked) {}

    void added(const engine::Added& one) override { there_[one.chunk] = false; }
    void freed(engine::ChunkId) override {}
    void removed(engine::ChunkId chunk) override { there_.erase(chunk); }
    void used(engine::ChunkId) override {}
    void resident(engine::ChunkId chunk) override { there_[chunk] = true; }
    void evicted(engine::ChunkId chunk) override { there_[chunk] = false; }
    void work(std::span<const engine::ChunkId>, const engine::WorkFacts*) override {}
    engine::ChunkId next_victim(const engine::VictimRequest&,
                                const std::function<bool(engine::ChunkId)>& eligible) override {
        for (const auto& [chunk, there] : there_) {
            if (there && eligible(chunk)) return chunk;
        }
        return engine::kNoChunk;
    }
    std::size_t upcoming(std::span<engine::ChunkId> out) override {
        // A thread that is kept by it is let go at last.
        if (++asked_ > kTooOften) return 0;
        std::size_t count = 0;
        for (const auto& [chunk, there] : there_) {
            if (!there && count < out.size()) out[count++] = chunk;
        }
        return count;
    }
    std::uint64_t eviction_start(std::uint64_t budget_bytes, std::uint64_t) override { return budget_bytes; }

    static constexpr std::size_t kTooOften = 10'000;

  private:
    std::map<engine::ChunkId, bool> there_;
    std::size_t& asked_;
};

TEST_CASE("ahead: a policy that takes back what it has asked for does not keep the thread") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Scene scene(options_of(Safety::Opaque, 1, maps_host));
        for (int i = 0; i < 16; ++i) scene.make(8);
        scene.rig.drain();
        std::size_t asked = 0;
        scene.rig.session().rank_by(std::make_unique<Undecided>(asked));
        for (int i = 0; i < 16; ++i) {
            asked = 0;
            REQUIRE(scene.need(0, scene.stream) == CUDA_SUCCESS);
            scene.rig.session().move_ahead();
            CHECK(asked > 0);
            CHECK(asked < Undecided::kTooOften / 10);
        }
        scene.check();
    }
}

// What a new buffer gets is there when the driver is asked for it, and not a moment later.
TEST_CASE("ahead: nothing goes out for what is foretold while a new buffer gets its memory") {
    for (const Call call : {Call::Create, Call::Map}) {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            CAPTURE(seed);
            Scene scene(options_of(Safety::Opaque, seed));
            for (int i = 0; i < 16; ++i) scene.make(8);
            scene.rig.drain();
            std::size_t asked = 0;
            scene.rig.session().rank_by(std::make_unique<Undecided>(asked));
            REQUIRE(scene.need(0, scene.stream) == CUDA_SUCCESS);
            const auto look = [&] {
                for (int i = 0; i < 8; ++i) {
                    scene.rig.gpu().run(1000);
                    scene.rig.session().move_ahead();
                }
            };
            scene.rig.drain();
            std::uint64_t copies = 0;
            scene.rig.gpu().at(call, 1, [&] {
                const std::uint64_t before = scene.rig.gpu().calls(Call::Copy);
                std::thread(look).join();
                copies = scene.rig.gpu().calls(Call::Copy) - before;
            });
            scene.make(8);
            CHECK(copies == 0);
            // Once it has it, something does.
            const std::uint64_t before = scene.rig.gpu().calls(Call::Copy);
            look();
            CHECK(scene.rig.gpu().calls(Call::Copy) > before);
            scene.check();
        }
    }
}

// Foretells that room will be lacking for as long as a certain buffer is there.
class Foretelling final : public engine::Ranking {
  public:
    explicit Foretelling(engine::Address from, engine::Address to) : from_(from), to_(to) {}

    void added(const engine::Added& one) override {
        if (one.address >= from_ && one.address < to_) going_.push_back(one.chunk);
        chunks_ = std::max(chunks_, one.chunk + 1);
    }
    void freed(engine::ChunkId) override {}
    void removed(engine::ChunkId) override {}
    void used(engine::ChunkId) override {}
    void resident(engine::ChunkId) override {}
    void evicted(engine::ChunkId) override {}
    void work(std::span<const engine::ChunkId>, const engine::WorkFacts*) override {}
    engine::ChunkId next_victim(const engine::VictimRequest& wanted,
                                const std::function<bool(engine::ChunkId)>& eligible) override {
        if (wanted.purpose == engine::Purpose::Foretold) {
            const auto one = std::ranges::find_if(going_, eligible);
            return one == going_.end() ? engine::kNoChunk : *one;
        }
        for (engine::ChunkId chunk = 0; chunk < chunks_; ++chunk) {
            if (eligible(chunk)) return chunk;
        }
        return engine::kNoChunk;
    }
    std::size_t upcoming(std::span<engine::ChunkId>) override { return 0; }
    std::uint64_t eviction_start(std::uint64_t budget_bytes, std::uint64_t) override { return budget_bytes; }

  private:
    engine::Address from_, to_;
    std::vector<engine::ChunkId> going_;
    engine::ChunkId chunks_ = 0;
};

TEST_CASE("ahead: what is foretold to lack room goes beside work, but not what that work may still change") {
    for (const bool maps_host : {true, false}) {
        for (const Safety safety : {Safety::Args, Safety::Opaque, Safety::Strict}) {
            for (std::uint64_t seed = 1; seed <= 10; ++seed) {
                CAPTURE(maps_host);
                CAPTURE(seed);
                AheadScene scene(options_of(safety, seed, maps_host));
                const Region& warm = scene.regions[scene.warm];
                scene.rig.session().rank_by(
                    std::make_unique<Foretelling>(warm.address, warm.address + warm.bytes));
                const CUstream other = scene.rig.stream();
                const Gate gate = std::make_shared<std::atomic<bool>>(false);
                REQUIRE(scene.rig.submit(scene.late_write(other, scene.warm, gate, true)) == CUDA_SUCCESS);
                const auto look = [&] {
                    for (int i = 0; i < 8; ++i) {
                        scene.rig.gpu().run(1000);
                        scene.rig.session().move_ahead();
                    }
                };
                look();
                CHECK(scene.place(scene.warm) == Place::Device);
                *gate = true;
                scene.changed(scene.warm);
                scene.rig.drain();
                look();
                CHECK((scene.place(scene.warm) == Place::Host) == (safety != Safety::Strict));
                scene.check();
            }
        }
    }
}

TEST_CASE("ahead: a buffer copied out ahead of need is freed, and its memory given back to the driver") {
    for (const bool maps_host : {true, false}) {
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            CAPTURE(maps_host);
            CAPTURE(seed);
            AheadScene scene(options_of(Safety::Opaque, seed, maps_host));
            REQUIRE(scene.rig.session().free(scene.regions[scene.cold].address) == CUDA_SUCCESS);
            scene.rig.session().reclaim(64 * 64);
            scene.regions.erase(scene.regions.begin() + static_cast<std::ptrdiff_t>(scene.cold));
            scene.expected.erase(scene.expected.begin() + static_cast<std::ptrdiff_t>(scene.cold));
            scene.check();
        }
    }
}

TEST_CASE("ahead: copies ahead of need end before a GPU is given access to all there is") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        AheadScene scene(options_of(Safety::Opaque, seed));
        CHECK(scene.rig.session().admit(1) == CUDA_SUCCESS);
        scene.check();
    }
}

TEST_CASE("ahead: beside opaque work, which ends all evictions, hardly anything is copied ahead of need") {
    for (const Safety safety : {Safety::Args, Safety::Opaque}) {
        Scene scene(options_of(safety));
        for (int i = 0; i < 16; ++i) scene.make(8);
        const std::uint64_t before = scene.rig.gpu().calls(Call::Copy);
        constexpr int kRounds = 6;
        for (int round = 0; round < kRounds; ++round) {
            for (std::size_t i = 0; i < 16; ++i) {
                REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
                REQUIRE(scene.rig.submit({scene.stream, {}, {}, true, [](Memory&) { return true; }}) ==
                        CUDA_SUCCESS);
                scene.rig.drain();
            }
        }
        // Every launch brings a buffer of 8 chunks in, for which as many go out.
        const std::uint64_t needed = std::uint64_t{kRounds} * 16 * 8 * 2;
        const std::uint64_t copies = scene.rig.gpu().calls(Call::Copy) - before;
        CHECK(copies >= needed - 64);
        CHECK(copies <= needed + needed / 8);
        scene.check();
    }
}

TEST_CASE("ahead: host memory that copies out hold for a moment is there for a new buffer") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        RigOptions options = options_of(Safety::Opaque, seed);
        options.host_granules = 24;
        Scene scene(options);
        const std::size_t cold = scene.make(8);
        const std::size_t warm = scene.make(48);
        const std::size_t next = scene.make(16);
        REQUIRE(scene.need(cold, scene.stream) == CUDA_SUCCESS);
        REQUIRE(scene.need(warm, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        CUresult status = CUDA_ERROR_UNKNOWN;
        std::thread other;
        scene.rig.gpu().at(Call::Copy, 1, [&] {
            other = std::thread([&] {
                Address address = 0;
                const std::uint64_t rest = scene.rig.capacity() - 72 * options.granularity;
                status = scene.rig.session().allocate(rest, address);
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
        CHECK(scene.need(next, scene.stream) == CUDA_SUCCESS);
        REQUIRE(other.joinable());
        other.join();
        CHECK(status == CUDA_SUCCESS);
        scene.check();
    }
}

}  // namespace
}  // namespace lms::fake
