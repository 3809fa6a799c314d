// A driver whose remaps wait for all work: one wait serves many.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

RigOptions draining(std::uint64_t seed, bool maps_host = true) {
    RigOptions options = options_of(Safety::Opaque, seed, maps_host);
    options.remaps_wait = true;
    return options;
}

// The program's work is over when something is unmapped, although it is never waited for by the program.
TEST_CASE("drain: nothing is unmapped while the program's work runs") {
    for (const bool maps_host : {true, false}) {
        std::uint64_t held_up = 0, unmaps = 0;
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            Scene scene(draining(seed, maps_host));
            const Gate open = std::make_shared<std::atomic<bool>>(true);
            for (const std::uint64_t granules : {8, 5, 11, 3, 9, 16, 1, 7, 13, 6, 10, 12})
                scene.make(granules);
            scene.rig.drain();
            FakePort& gpu = scene.rig.gpu();
            const std::uint64_t held_up_before = gpu.unmaps_held_up();
            const std::uint64_t unmaps_before = gpu.calls(Call::Unmap);
            for (std::size_t i = 0; i < 48; ++i) {
                const std::size_t each = i * 5 % 12;
                REQUIRE(scene.rig.submit(scene.late_write(scene.stream, each, open, true)) == CUDA_SUCCESS);
                scene.changed(each);
            }
            held_up += gpu.unmaps_held_up() - held_up_before;
            unmaps += gpu.calls(Call::Unmap) - unmaps_before;
            scene.check();
        }
        CAPTURE(maps_host);
        CHECK(held_up == 0);
        CHECK(unmaps > 500);
    }
}

// The chunks of a buffer are foretold, and those of all others go for them.
class Coming final : public engine::Ranking {
  public:
    explicit Coming(const Region& region) : region_(region) {}

    void added(const engine::Added& one) override {
        const bool coming = one.address - region_.address < region_.bytes;
        (coming ? coming_ : others_)[one.chunk] = false;
    }
    void freed(engine::ChunkId) override {}
    void removed(engine::ChunkId chunk) override {
        coming_.erase(chunk);
        others_.erase(chunk);
    }
    void used(engine::ChunkId) override {}
    void resident(engine::ChunkId chunk) override { note(chunk, true); }
    void evicted(engine::ChunkId chunk) override { note(chunk, false); }
    void work(std::span<const engine::ChunkId>, const engine::WorkFacts*) override {}
    engine::ChunkId next_victim(const engine::VictimRequest& wanted,
                                const std::function<bool(engine::ChunkId)>& eligible) override {
        if (wanted.purpose == engine::Purpose::Foretold) return engine::kNoChunk;
        for (const auto* const some : {&others_, &coming_}) {
            for (const auto& [chunk, there] : *some) {
                if (there && eligible(chunk)) return chunk;
            }
        }
        return engine::kNoChunk;
    }
    std::size_t upcoming(std::span<engine::ChunkId> out) override {
        std::size_t count = 0;
        for (const auto& [chunk, there] : coming_) {
            if (!there && count < out.size()) out[count++] = chunk;
        }
        return count;
    }
    std::uint64_t eviction_start(std::uint64_t budget_bytes, std::uint64_t) override { return budget_bytes; }

  private:
    void note(engine::ChunkId chunk, bool there) {
        const auto it = coming_.find(chunk);
        (it != coming_.end() ? it->second : others_[chunk]) = there;
    }

    Region region_;
    std::map<engine::ChunkId, bool> coming_, others_;
};

TEST_CASE("drain: what is foretold is mapped with what is needed, before the first copy in") {
    for (const bool waits : {true, false}) {
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            CAPTURE(waits);
            CAPTURE(seed);
            RigOptions options = draining(seed);
            options.remaps_wait = waits;
            Scene scene(options);
            const std::size_t needed = scene.make(12), coming = scene.make(12);
            std::vector<std::size_t> rest;
            for (int i = 0; i < 5; ++i) rest.push_back(scene.make(12));
            for (const std::size_t each : rest) REQUIRE(scene.need(each, scene.stream) == CUDA_SUCCESS);
            scene.rig.drain();
            REQUIRE(scene.place(needed) == Place::Host);
            REQUIRE(scene.place(coming) == Place::Host);
            for (int i = 0; i < 3; ++i) {  // there is room for both
                REQUIRE(scene.rig.session().free(scene.regions.back().address) == CUDA_SUCCESS);
                scene.regions.pop_back();
                scene.expected.pop_back();
            }
            scene.rig.session().rank_by(std::make_unique<Coming>(scene.regions[coming]));
            const Gate gate_ = closed();
            REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), rest[0], gate_, true)) ==
                    CUDA_SUCCESS);
            scene.changed(rest[0]);
            scene.open_after_a_while(gate_);
            const std::uint64_t copies = scene.rig.gpu().calls(Call::Copy);
            const std::uint64_t held_up = scene.rig.gpu().unmaps_held_up();
            std::uint64_t copied = ~std::uint64_t{0};
            const Region& region = scene.regions[coming];
            scene.rig.gpu().before_unmap(region.address, region.address + region.bytes, Place::Host,
                                         [&] { copied = scene.rig.gpu().calls(Call::Copy) - copies; });
            REQUIRE(scene.need(needed, scene.stream) == CUDA_SUCCESS);
            CHECK((copied == 0) == waits);
            CHECK(scene.rig.gpu().unmaps_held_up() == held_up);
            *gate_ = true;
            scene.check();
        }
    }
}

// Work that waits for the thread which asks for a move: it is waited for no longer than other things are.
TEST_CASE("drain: beside work that does not end a launch uses what it names where it is") {
    Scene scene(draining(1));
    for (int i = 0; i < 12; ++i) scene.make(8);
    scene.rig.drain();
    const Gate gate_ = closed();
    const CUstream other = scene.rig.stream();
    REQUIRE(scene.rig.submit(scene.late_write(other, 0, gate_, true)) == CUDA_SUCCESS);
    scene.changed(0);
    const std::uint64_t before = scene.rig.gpu().unmaps_held_up();
    for (std::size_t i = 1; i < 12; ++i) REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
    CHECK(scene.rig.gpu().unmaps_held_up() == before);
    *gate_ = true;
    scene.check();
}

}  // namespace
}  // namespace lms::fake
