// Every transition of a chunk in every state, under each kind of use.
#include "tests/unit/residency.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lms::engine {
namespace {

// Where a state's bytes count.
std::uint64_t on_device(State state) {
    return state == State::Empty || state == State::OnHost ? 0 : 2 * kGranule;
}
std::uint64_t on_host(State state) {
    return state == State::OnHost ? 2 * kGranule : 0;
}

// One chunk of two granules, brought into a state.
struct One {
    explicit One(State state) {
        const std::uint64_t sizes[] = {2 * kGranule};
        residency.add(kBegin + kGranule, 2 * kGranule - 3, sizes);
        switch (state) {
            case State::Empty:
                break;
            case State::OnHost:
                residency.back_by_host(0);
                break;
            default:
                residency.begin_in(0);
        }
        if (state == State::Filling) residency.begin_fill(0);
        if (state == State::Resident || state == State::Evicting) residency.mapped_empty(0);
        if (state == State::Evicting) residency.begin_out(0);
        REQUIRE(residency.chunk(0).state == state);
        spy.told.clear();
    }
    void check(State state) {
        CHECK(residency.chunk(0).state == state);
        CHECK(residency.device_bytes() == on_device(state));
        CHECK(residency.host_bytes() == on_host(state));
        CHECK(residency.allocated_bytes() == 2 * kGranule);
        CHECK(residency.consistent());
    }

    Spy spy;
    Residency residency{kBegin, kSpan, kGranule, spy};
};

TEST_CASE("residency: each transition in each state, under each kind of use") {
    for (const State state : kStates) {
        for (const Transition& transition : transitions()) {
            for (unsigned held = 0; held < 16; ++held) {
                const bool pinned = held & 1;
                const bool in_place = held & 2;
                const bool in_flight = held & 4;
                const bool kept = held & 8;
                CAPTURE(std::string(name_of(state)));
                CAPTURE(std::string(transition.name));
                CAPTURE(held);
                One one(state);
                Residency& residency = one.residency;
                const TimelineId timeline = residency.timelines.create();
                if (pinned) residency.pin(0);
                if (in_place) residency.pin_in_place(0);
                if (in_flight) residency.use(0, {timeline, 1});
                if (kept) residency.pin_resident(0);

                bool legal =
                    std::find(transition.from.begin(), transition.from.end(), state) != transition.from.end();
                if (transition.call == &Residency::begin_in) legal &= !in_place && !in_flight;
                if (transition.call == &Residency::begin_out) legal &= !pinned && !in_flight && !kept;
                CHECK((residency.*transition.call)(0) == legal);
                one.check(legal ? transition.to : state);
                const auto told = legal && !transition.tells.empty()
                                      ? std::vector<std::string>{transition.tells + "0"}
                                      : std::vector<std::string>{};
                CHECK(one.spy.told == told);

                // What is finished holds nothing up.
                if (legal || !in_flight || pinned || in_place || kept) continue;
                residency.timelines.complete(timeline, 1);
                legal =
                    std::find(transition.from.begin(), transition.from.end(), state) != transition.from.end();
                CHECK((residency.*transition.call)(0) == legal);
            }
        }
    }
}

TEST_CASE("residency: mapping that failed goes back to where the chunk was") {
    for (const State state : kStates) {
        for (const bool had_contents : {false, true}) {
            CAPTURE(std::string(name_of(state)));
            One one(state);
            const bool legal = state == State::Remapping;
            CHECK(one.residency.undo_in(0, had_contents) == legal);
            one.check(!legal ? state : had_contents ? State::OnHost : State::Empty);
        }
    }
}

TEST_CASE("residency: a chunk is clean from its coming in until it may be written, or goes out") {
    for (const State state : kStates) {
        CAPTURE(std::string(name_of(state)));
        One one(state);
        one.residency.clean(0);
        CHECK(one.residency.chunk(0).clean == (state == State::Filling));
        CHECK(one.residency.consistent());
    }
    One one(State::Filling);
    one.residency.clean(0);
    one.residency.filled(0);
    one.residency.begin_out(0);
    one.residency.cancel_out(0);
    CHECK(one.residency.chunk(0).clean);
    one.residency.begin_out(0);
    one.residency.begin_remap(0);
    one.residency.out(0);
    CHECK_FALSE(one.residency.chunk(0).clean);
    CHECK(one.residency.consistent());
    One written(State::Filling);
    written.residency.clean(0);
    written.residency.soil(0);
    written.residency.filled(0);
    CHECK_FALSE(written.residency.chunk(0).clean);
}

TEST_CASE("residency: a buffer goes only when nothing holds it") {
    for (const State state : kStates) {
        for (const char held : {'-', 'p', 'i', 'k'}) {
            CAPTURE(std::string(name_of(state)));
            CAPTURE(held);
            One one(state);
            std::uint64_t serial = 0;
            if (held == 'p') one.residency.pin(0);
            if (held == 'i') one.residency.pin_in_place(0);
            if (held == 'k') serial = one.residency.pin_resident(0);
            const bool settled = state == State::Empty || state == State::Resident || state == State::OnHost;
            const bool legal = settled && held != 'p' && held != 'i';
            CHECK(one.residency.remove(0) == legal);
            if (!legal) {
                one.check(state);
                continue;
            }
            CHECK(one.spy.told == std::vector<std::string>{"removed0"});
            CHECK(one.residency.allocated_bytes() == 0);
            CHECK(one.residency.device_bytes() == 0);
            CHECK(one.residency.host_bytes() == 0);
            CHECK(one.residency.chunk_at(kBegin + kGranule) == kNoChunk);
            CHECK(one.residency.allocations().empty());
            CHECK(one.residency.consistent());
            CHECK_FALSE(one.residency.remove(0));
            // Whoever kept it must not touch the next chunk of that number.
            const std::uint64_t sizes[] = {kGranule};
            one.residency.add(kBegin, kGranule, sizes);
            CHECK(one.residency.chunk(0).serial != serial);
            one.residency.pin_resident(0);
            one.residency.unpin_resident(0, serial);
            one.residency.begin_in(0);
            one.residency.mapped_empty(0);
            CHECK_FALSE(one.residency.begin_out(0));
        }
    }
}

TEST_CASE("residency: which chunks may be victims") {
    for (const State state : kStates) {
        CAPTURE(std::string(name_of(state)));
        using InFlight = Residency::InFlight;
        const ChunkId expected = state == State::Resident ? 0 : kNoChunk;
        One one(state);
        Residency& residency = one.residency;
        CHECK(residency.next_victim({1}, InFlight::Refuse) == expected);
        residency.pin(0);
        CHECK(residency.next_victim({1}, InFlight::Accept) == kNoChunk);
        residency.unpin(0);
        const std::uint64_t serial = residency.pin_resident(0);
        CHECK(residency.next_victim({1}, InFlight::Accept) == kNoChunk);
        residency.unpin_resident(0, serial);
        residency.kill(0);
        CHECK(residency.next_victim({1}, InFlight::Accept) == kNoChunk);
        residency.revive(0, kGranule + 1);
        CHECK(residency.allocation(0).asked_bytes == kGranule + 1);
        residency.use(0, {residency.timelines.create(), 1});
        CHECK(residency.next_victim({1}, InFlight::Refuse) == kNoChunk);
        CHECK(residency.next_victim({1}, InFlight::Accept) == expected);
        CHECK(residency.eviction_start(7) == 7000 + 2 * kGranule);
    }
}

TEST_CASE("residency: where the policy names no victim, any will do") {
    One one(State::Resident);
    one.spy.known.clear();
    CHECK(one.residency.next_victim({1}, Residency::InFlight::Refuse) == 0);
    one.residency.pin(0);
    CHECK(one.residency.next_victim({1}, Residency::InFlight::Refuse) == kNoChunk);
    one.residency.unpin(0);
    CHECK(one.residency.remove(0));
    CHECK(one.residency.next_victim({1}, Residency::InFlight::Refuse) == kNoChunk);
}

TEST_CASE("residency: another policy is told of all that is there, and then alone") {
    for (const State state : kStates) {
        if (state == State::Remapping) continue;  // nothing may be moving
        One one(state);
        const std::uint64_t sizes[] = {kGranule, kGranule};
        const AllocationId gone = one.residency.add(kBegin + 8 * kGranule, 2 * kGranule, sizes);
        one.residency.remove(gone);
        one.spy.told.clear();
        Spy other;
        one.residency.rank_by(other);
        CHECK(other.known == std::map<ChunkId, std::uint64_t>{{0, 2 * kGranule}});
        const bool there = state == State::Filling || state == State::Resident || state == State::Evicting;
        CHECK(other.told ==
              (there ? std::vector<std::string>{"added0", "resident0"} : std::vector<std::string>{"added0"}));
        one.residency.touch(0);
        CHECK(other.told.back() == "used0");
        CHECK(one.spy.told.empty());
    }
}

TEST_CASE("residency: consistent() sees through wrong sums") {
    // Two chunks that would take each other's place: the map of addresses no longer leads to the first.
    Spy spy;
    Residency residency(kBegin, kSpan, kGranule, spy);
    const std::uint64_t sizes[] = {kGranule};
    residency.add(kBegin, kGranule, sizes);
    CHECK(residency.consistent());
    residency.add(kBegin, kGranule, sizes);
    CHECK_FALSE(residency.consistent());
}

}  // namespace
}  // namespace lms::engine
