// For the tests of the residency map: a small span, a policy that tells what it was told, the transitions.
#pragma once

#include "shim/engine/residency.h"

#include <map>
#include <string>
#include <vector>

namespace lms::engine {

inline constexpr Address kBegin = 0x10000;
inline constexpr std::uint64_t kGranule = 16;
inline constexpr std::uint64_t kSpan = 64 * kGranule;

// Tells what it was told, and chooses the eligible chunk with the lowest id.
class Spy final : public Ranking {
  public:
    void added(const Added& one) override {
        note("added", one.chunk);
        known[one.chunk] = one.bytes;
    }
    void freed(ChunkId chunk) override { note("freed", chunk); }
    void removed(ChunkId chunk) override {
        note("removed", chunk);
        known.erase(chunk);
    }
    void used(ChunkId chunk) override { note("used", chunk); }
    void resident(ChunkId chunk) override { note("resident", chunk); }
    void evicted(ChunkId chunk) override { note("evicted", chunk); }
    void work(std::span<const ChunkId>, const WorkFacts*) override {}
    std::size_t upcoming(std::span<ChunkId>) override { return 0; }
    ChunkId next_victim(const VictimRequest&, const std::function<bool(ChunkId)>& eligible) override {
        for (const auto& [chunk, bytes] : known) {
            if (eligible(chunk)) return chunk;
        }
        return kNoChunk;
    }
    std::uint64_t eviction_start(std::uint64_t budget, std::uint64_t allocated) override {
        return budget * 1000 + allocated;
    }

    std::map<ChunkId, std::uint64_t> known;
    std::vector<std::string> told;

  private:
    void note(const char* what, ChunkId chunk) { told.push_back(what + std::to_string(chunk)); }
};

inline constexpr State kStates[] = {State::Empty,    State::Remapping, State::Filling,
                                    State::Resident, State::Evicting,  State::OnHost};

struct Transition {
    const char* name;
    bool (Residency::*call)(ChunkId);
    std::vector<State> from;
    State to;
    std::string tells;  // the policy; empty: nothing
};

inline const std::vector<Transition>& transitions() {
    static const std::vector<Transition> all = {
        {"begin_in", &Residency::begin_in, {State::Empty, State::OnHost}, State::Remapping, ""},
        {"mapped_empty", &Residency::mapped_empty, {State::Remapping}, State::Resident, "resident"},
        {"begin_fill", &Residency::begin_fill, {State::Remapping}, State::Filling, "resident"},
        {"filled", &Residency::filled, {State::Filling}, State::Resident, ""},
        {"begin_out", &Residency::begin_out, {State::Resident}, State::Evicting, ""},
        {"cancel_out", &Residency::cancel_out, {State::Evicting}, State::Resident, ""},
        {"begin_remap", &Residency::begin_remap, {State::Evicting}, State::Remapping, ""},
        {"out", &Residency::out, {State::Remapping}, State::OnHost, "evicted"},
        {"undo_remap", &Residency::undo_remap, {State::Remapping}, State::Resident, ""},
        {"back_by_host", &Residency::back_by_host, {State::Empty, State::Remapping}, State::OnHost, ""},
    };
    return all;
}

}  // namespace lms::engine
