// Orders that know what comes, for the rows of `lms replay` that say how far there is to go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "shim/engine/ranking.h"
#include "tools/lms/replay_script.h"

namespace lms::tool {

// The victim is the chunk that is needed last; what is needed first comes in ahead. The replay reports each
// chunk's next use (will_be_used).
class Foreseen final : public engine::Ranking {
  public:
    // Not `ahead`: chunks come in only when a work needs them, which moves the fewest bytes.
    explicit Foreseen(bool ahead) : ahead_(ahead) {}

    void added(const engine::Added& one) override {
        chunks_.resize(std::max<std::size_t>(chunks_.size(), one.chunk + 1));
        chunks_[one.chunk] = {};
        absent_.insert({ReplayScript::kNever, one.chunk});
    }
    void freed(engine::ChunkId chunk) override { forget(chunk); }
    void removed(engine::ChunkId chunk) override { forget(chunk); }
    void used(engine::ChunkId) override {}
    void resident(engine::ChunkId chunk) override { place(chunk, true); }
    void evicted(engine::ChunkId chunk) override { place(chunk, false); }
    void work(std::span<const engine::ChunkId>, const engine::WorkFacts*) override {}
    engine::ChunkId next_victim(const engine::VictimRequest& wanted,
                                const std::function<bool(engine::ChunkId)>& eligible) override {
        if (wanted.purpose == engine::Purpose::Foretold) return engine::kNoChunk;
        const bool for_another =
            wanted.purpose == engine::Purpose::Ahead && wanted.sooner != engine::kNoChunk;
        const std::uint32_t sooner = for_another ? chunks_[wanted.sooner].next : 0;
        for (auto each = resident_.rbegin(); each != resident_.rend(); ++each) {
            if (for_another && each->first <= sooner) break;
            if (eligible(each->second)) return each->second;
        }
        return engine::kNoChunk;
    }
    std::size_t upcoming(std::span<engine::ChunkId> out) override {
        std::size_t count = 0;
        for (auto each = absent_.begin(); ahead_ && each != absent_.end() && count < out.size(); ++each) {
            if (each->first == ReplayScript::kNever) break;
            out[count++] = each->second;
        }
        return count;
    }
    std::uint64_t eviction_start(std::uint64_t budget, std::uint64_t) override { return budget; }

    void will_be_used(engine::ChunkId chunk, std::uint32_t work) {
        auto& order = chunks_[chunk].is_resident ? resident_ : absent_;
        auto there = order.extract({chunks_[chunk].next, chunk});
        chunks_[chunk].next = work;
        if (there.empty()) return;
        there.value().first = work;
        order.insert(std::move(there));
    }

  private:
    struct Chunk {
        std::uint32_t next = ReplayScript::kNever;
        bool is_resident = false;
    };
    using Order = std::set<std::pair<std::uint32_t, engine::ChunkId>>;  // by next use

    void forget(engine::ChunkId chunk) {
        resident_.erase({chunks_[chunk].next, chunk});
        absent_.erase({chunks_[chunk].next, chunk});
    }
    void place(engine::ChunkId chunk, bool is_resident) {
        forget(chunk);
        chunks_[chunk].is_resident = is_resident;
        (is_resident ? resident_ : absent_).insert({chunks_[chunk].next, chunk});
    }

    const bool ahead_;
    std::vector<Chunk> chunks_;
    Order resident_, absent_;
};

}  // namespace lms::tool
