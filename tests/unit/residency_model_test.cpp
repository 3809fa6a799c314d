// Random operations on the residency map, against a model that answers by the most naive means.
#include "tests/unit/residency.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lms::engine {
namespace {

class Model {
  public:
    struct Part {
        ChunkId id;
        Address address;
        std::uint64_t bytes;
        State state = State::Empty;
        int pins = 0;
        int in_place = 0;
        std::vector<Use> uses{};
    };
    struct Buffer {
        AllocationId id;
        std::vector<Part> parts;
        bool dead = false;
    };

    std::vector<Buffer> buffers;
    std::vector<std::uint64_t> completed;

    bool in_flight(const Part& part) const {
        return std::any_of(part.uses.begin(), part.uses.end(),
                           [&](const Use& use) { return use.position > completed[use.timeline]; });
    }
    const Part* at(Address address) const {
        for (const Buffer& buffer : buffers) {
            for (const Part& part : buffer.parts) {
                if (part.address <= address && address < part.address + part.bytes) return &part;
            }
        }
        return nullptr;
    }
    template <typename Count>
    std::uint64_t sum(Count&& counts) const {
        std::uint64_t bytes = 0;
        for (const Buffer& buffer : buffers) {
            for (const Part& part : buffer.parts) {
                if (counts(part)) bytes += part.bytes;
            }
        }
        return bytes;
    }
    ChunkId victim(bool accept_in_flight) const {
        ChunkId lowest = kNoChunk;
        for (const Buffer& buffer : buffers) {
            for (const Part& part : buffer.parts) {
                if (part.state == State::Resident && part.pins == 0 && !buffer.dead &&
                    (accept_in_flight || !in_flight(part))) {
                    lowest = std::min(lowest, part.id);
                }
            }
        }
        return lowest;
    }
};

class Walk {
  public:
    explicit Walk(std::uint64_t seed) : random_(seed) {
        for (int i = 0; i < 3; ++i) {
            residency_.timelines.create();
            model_.completed.push_back(0);
        }
    }

    void step() {
        const std::uint64_t dice = below(20);
        if (dice == 0 || model_.buffers.empty()) return add();
        Model::Buffer& buffer = model_.buffers[below(model_.buffers.size())];
        if (dice == 1) return remove(buffer);
        if (dice == 2) return kill(buffer);
        Model::Part& part = buffer.parts[below(buffer.parts.size())];
        if (dice < 5) return hold(part);
        if (dice < 7) return use(part);
        if (dice == 7) return complete();
        if (dice == 8) return undo_in(part);
        transition(part);
    }

    void check() {
        REQUIRE(residency_.consistent());
        using Part = Model::Part;
        const auto away = [](const Part& part) {
            return part.state == State::Empty || part.state == State::OnHost;
        };
        CHECK(residency_.allocated_bytes() == model_.sum([](const Part&) { return true; }));
        CHECK(residency_.device_bytes() == model_.sum([&](const Part& part) { return !away(part); }));
        CHECK(residency_.host_bytes() ==
              model_.sum([](const Part& part) { return part.state == State::OnHost; }));
        CHECK(residency_.next_victim({1}, Residency::InFlight::Refuse) == model_.victim(false));
        CHECK(residency_.next_victim({1}, Residency::InFlight::Accept) == model_.victim(true));
        for (const Model::Buffer& buffer : model_.buffers) {
            for (const Part& part : buffer.parts) {
                CHECK(residency_.chunk(part.id).state == part.state);
                CHECK(residency_.in_flight(part.id) == model_.in_flight(part));
                CHECK(residency_.may_come_in(part.id) == (part.in_place == 0 && !model_.in_flight(part)));
            }
        }
        check_addresses();
    }

  private:
    void check_addresses() {
        for (int i = 0; i < 8; ++i) {
            const Address address = kBegin - 20 + below(kSpan + 40);
            const Model::Part* part = model_.at(address);
            CHECK(residency_.chunk_at(address) == (part ? part->id : kNoChunk));
            CHECK(residency_.allocation_at(address).has_value() == (part != nullptr));
            const std::uint64_t bytes = below(200);
            std::vector<ChunkId> found;
            residency_.chunks_in(address, bytes, found);
            std::vector<ChunkId> expected;
            for (Address at = address; at < address + bytes; ++at) {
                const Model::Part* each = model_.at(at);
                if (each && (expected.empty() || expected.back() != each->id)) expected.push_back(each->id);
            }
            CHECK(found == expected);
        }
    }

    void add() {
        const std::uint64_t granules = 1 + below(8);
        const Address address = kBegin + below(kSpan / kGranule - granules + 1) * kGranule;
        for (Address at = address; at < address + granules * kGranule; at += kGranule) {
            if (model_.at(at)) return;
        }
        std::vector<std::uint64_t> sizes;
        for (std::uint64_t left = granules; left > 0;) {
            const std::uint64_t piece = 1 + below(left);
            sizes.push_back(piece * kGranule);
            left -= piece;
        }
        const AllocationId id = residency_.add(address, granules * kGranule - below(kGranule), sizes);
        Model::Buffer buffer{id, {}};
        Address at = address;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            buffer.parts.push_back({residency_.allocation(id).chunks[i], at, sizes[i]});
            at += sizes[i];
        }
        model_.buffers.push_back(buffer);
    }

    void remove(Model::Buffer& buffer) {
        const bool settled = std::all_of(buffer.parts.begin(), buffer.parts.end(), [](const auto& part) {
            return part.pins == 0 && part.in_place == 0 &&
                   (part.state == State::Empty || part.state == State::Resident ||
                    part.state == State::OnHost);
        });
        CHECK(residency_.remove(buffer.id) == settled);
        if (settled) model_.buffers.erase(model_.buffers.begin() + (&buffer - model_.buffers.data()));
    }

    void kill(Model::Buffer& buffer) {
        if (buffer.dead) {
            residency_.revive(buffer.id, 1);
        } else {
            residency_.kill(buffer.id);
        }
        buffer.dead = !buffer.dead;
    }

    void hold(Model::Part& part) {
        const bool in_place = below(2);
        int& count = in_place ? part.in_place : part.pins;
        if (count > 0 && below(3) > 0) {
            in_place ? residency_.unpin_in_place(part.id) : residency_.unpin(part.id);
            --count;
        } else {
            in_place ? residency_.pin_in_place(part.id) : residency_.pin(part.id);
            ++count;
        }
    }

    void use(Model::Part& part) {
        // A stream's positions only grow.
        const auto timeline = static_cast<TimelineId>(below(3));
        const Use use{timeline, ++last_[timeline]};
        residency_.use(part.id, use);
        part.uses.push_back(use);
    }

    void complete() {
        const auto timeline = static_cast<TimelineId>(below(3));
        const std::uint64_t position = below(last_[timeline] + 1);
        residency_.timelines.complete(timeline, position);
        model_.completed[timeline] = std::max(model_.completed[timeline], position);
        CHECK(residency_.timelines.completed(timeline) == model_.completed[timeline]);
    }

    void undo_in(Model::Part& part) {
        const bool legal = part.state == State::Remapping;
        const bool had_contents = below(2);
        CHECK(residency_.undo_in(part.id, had_contents) == legal);
        if (legal) part.state = had_contents ? State::OnHost : State::Empty;
    }

    void transition(Model::Part& part) {
        const Transition& any = transitions()[below(transitions().size())];
        bool legal = std::find(any.from.begin(), any.from.end(), part.state) != any.from.end();
        if (any.call == &Residency::begin_in) legal &= part.in_place == 0 && !model_.in_flight(part);
        if (any.call == &Residency::begin_out) legal &= part.pins == 0 && !model_.in_flight(part);
        CHECK((residency_.*any.call)(part.id) == legal);
        if (legal) part.state = any.to;
    }

    std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

    std::mt19937_64 random_;
    Spy spy_;
    Residency residency_{kBegin, kSpan, kGranule, spy_};
    Model model_;
    std::uint64_t last_[3] = {};
};

TEST_CASE("residency: random operations agree with a naive model") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        INFO("seed ", seed);
        Walk walk(seed);
        for (int i = 0; i < 1500; ++i) {
            INFO("step ", i);
            walk.step();
            walk.check();
        }
    }
}

}  // namespace
}  // namespace lms::engine
