// What the repetition of a program foretells: nets whose layers leave outputs behind, and long lives.
#include "policy/repetition.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

using lms::policy::Repetition;

namespace {

// A net of layers, each with weights of a chunk that stay. The first `saving` make an output of some chunks
// in the forward pass, which is freed in the backward pass. A step answers how many pieces of its work were
// not foretold.
class Net {
  public:
    Net(std::uint32_t layers, std::uint32_t chunks, std::uint32_t saving = ~0u)
        : outputs_(layers), chunks_(chunks), saving_(saving) {
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            repetition_.added(layer, kBytes / 2, kBytes / 2, true);
            weights_.push_back(layer);
        }
        for (std::uint32_t chunk = layers * (chunks + 1); chunk > layers; --chunk) free_.push_back(chunk - 1);
    }

    int step() {
        int missed = 0;
        for (std::size_t layer = 0; layer < outputs_.size(); ++layer) {
            if (layer < saving_) make(outputs_[layer]);
            missed += work(layer);
        }
        for (std::size_t layer = outputs_.size(); layer-- > 0;) {
            missed += work(layer);
            for (const std::uint32_t chunk : outputs_[layer]) repetition_.removed(chunk);
            std::ranges::shuffle(outputs_[layer], shuffle_);
            free_.insert(free_.end(), outputs_[layer].begin(), outputs_[layer].end());
            outputs_[layer].clear();
        }
        return missed;
    }

  private:
    static constexpr std::uint64_t kBytes = 4096;

    void make(std::vector<std::uint32_t>& output) {
        for (std::uint32_t i = 0; i < chunks_; ++i) {
            output.push_back(free_.back());
            free_.pop_back();
            repetition_.added(output.back(), kBytes, chunks_ * kBytes, i == 0);
        }
    }
    int work(std::size_t layer) {
        std::vector<std::uint32_t> named = outputs_[layer];
        named.push_back(weights_[layer]);
        const bool foretold = std::ranges::all_of(named, [&](std::uint32_t chunk) {
            return repetition_.next_use(chunk) == repetition_.place() + 1;
        });
        repetition_.work(named);
        return foretold ? 0 : 1;
    }

    Repetition repetition_;
    std::vector<std::uint32_t> weights_, free_;
    std::vector<std::vector<std::uint32_t>> outputs_;
    std::uint32_t chunks_, saving_;
    std::mt19937 shuffle_{5};
};

}  // namespace

TEST_CASE("repetition: buffers of many chunks that a step makes and frees are foretold") {
    for (const std::uint32_t chunks : {1u, 2u, 16u}) {
        CAPTURE(chunks);
        Net net(100, chunks);
        for (int i = 0; i < 10; ++i) net.step();
        CHECK(net.step() == 0);
    }
}

TEST_CASE("repetition: what a step makes is foretold where it is of another size each time") {
    constexpr std::uint32_t kLayers = 30, kChunk = 4096;
    Repetition repetition;
    std::mt19937 random(1);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) repetition.added(layer, 1 << 20, 1 << 20, true);
    int foretold = 0, all = 0;
    for (int round = 0; round < 40; ++round) {
        const std::uint64_t bytes = 4096 + random() % 100'000;
        // Of one to 25 chunks.
        const auto chunks = static_cast<std::uint32_t>((bytes + kChunk - 1) / kChunk);
        const auto named = [&](std::uint32_t layer) {
            std::vector<std::uint32_t> ids = {layer};
            for (std::uint32_t i = 0; i < chunks; ++i) ids.push_back(kLayers * (1 + i) + layer);
            return ids;
        };
        for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
            for (std::uint32_t i = 0; i < chunks; ++i)
                repetition.added(named(layer)[1 + i], kChunk, bytes, i == 0);
            repetition.work(named(layer));
        }
        for (std::uint32_t layer = kLayers; layer-- > 0;) {
            all += round >= 20;
            foretold += round >= 20 && std::ranges::all_of(named(layer), [&](std::uint32_t id) {
                            return repetition.next_use(id) == repetition.place() + 1;
                        });
            repetition.work(named(layer));
            for (const std::uint32_t id : named(layer)) {
                if (id >= kLayers) repetition.removed(id);
            }
        }
    }
    CHECK(foretold > all * 9 / 10);
}

TEST_CASE("repetition: layers that are alike are compared with the last step, not with the last layer") {
    // A tenth of all work names something else besides.
    constexpr std::uint32_t kLayers = 40, kWeights = 8, kOutputs = 10;
    Repetition repetition;
    std::mt19937 random(1);
    for (std::uint32_t i = 0; i < kOutputs; ++i) repetition.added(i, 1 << 20, 1 << 20, true);
    const auto work = [&](std::uint32_t layer, std::uint32_t to) {
        std::vector<std::uint32_t> named = {kOutputs + layer, kOutputs + to};
        if (layer % (kLayers / kWeights) == 0) named.push_back(layer / (kLayers / kWeights));
        if (random() % 10 == 0) named.push_back(kWeights + random() % (kOutputs - kWeights));
        repetition.work(named);
    };
    int far = 0, all = 0;
    for (int round = 0; round < 40; ++round) {
        const std::uint64_t bytes = 4096 + random() % 100'000;
        for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
            repetition.added(kOutputs + layer, bytes, bytes, true);
            work(layer, layer == 0 ? 0 : layer - 1);
            all += round >= 20;
            far += round >= 20 && repetition.trusted(0.5) && repetition.lag() > 2 * kLayers;
        }
        for (std::uint32_t layer = kLayers; layer-- > 0;) {
            work(layer, layer);
            repetition.removed(kOutputs + layer);
        }
    }
    CHECK(far > all * 9 / 10);
}

TEST_CASE("repetition: how long what a step makes lives is found within a few steps") {
    Net net(600, 1);
    for (int i = 0; i < 3; ++i) net.step();
    CHECK(net.step() <= 2);
}

TEST_CASE("repetition: so it is where all but a fortieth is foretold anyway") {
    Net net(600, 1, 30);
    for (int i = 0; i < 10; ++i) net.step();
    CHECK(net.step() == 0);
}

TEST_CASE("repetition: a step of more chunks than the history has events") {
    Net net(1000, 40);
    for (int i = 0; i < 5; ++i) net.step();
    CHECK(net.step() == 0);
}

TEST_CASE("repetition: a long life in bounded memory, and nothing is foretold of what is gone") {
    Repetition repetition;
    std::mt19937 random(3);
    std::vector<std::uint32_t> live;
    for (std::uint32_t chunk = 0; chunk < 100; ++chunk) {
        repetition.added(chunk, 4096, 4096, true);
        live.push_back(chunk);
    }
    for (int i = 0; i < 120000; ++i) {
        if (i % 3 == 0) {
            std::uint32_t& one = live[random() % live.size()];
            repetition.removed(one);
            const std::uint64_t bytes = 4096 << random() % 4;
            repetition.added(one, bytes, bytes, true);
        }
        std::vector<std::uint32_t> named(1 + i % 7);
        for (std::uint32_t& one : named)
            one = live[(static_cast<std::uint32_t>(i) / 7 * 5 + one) % live.size()];
        repetition.work(named);
        repetition.foretold(repetition.place(), [&](std::uint32_t chunk, Repetition::Position at) {
            CHECK(chunk < 100);
            CHECK(at > repetition.place());
            CHECK(at <= repetition.now());
            return at < repetition.place() + 4;
        });
        for (const std::uint32_t chunk : live) {
            const auto next = repetition.next_use(chunk);
            if (next <= repetition.place()) CHECK(next > repetition.place());
        }
    }
}
