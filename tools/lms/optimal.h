// The order that knows what comes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "shim/core/ranking.h"
#include "tools/lms/replay_script.h"

namespace lms::tool {

// Out goes what is needed last; in comes what is needed first. It is told what comes next by who replays.
class Optimal final : public core::Ranking {
  public:
    void added(const core::Added& one) override {
        next_.resize(std::max<std::size_t>(next_.size(), one.chunk + 1), ReplayScript::kNever);
        next_[one.chunk] = ReplayScript::kNever;
    }
    void freed(core::ChunkId chunk) override { gone(chunk); }
    void removed(core::ChunkId chunk) override { gone(chunk); }
    void used(core::ChunkId) override {}
    void resident(core::ChunkId chunk) override { resident_.insert({next_[chunk], chunk}); }
    void evicted(core::ChunkId chunk) override { gone(chunk); }
    void work(std::span<const core::ChunkId>, const core::WorkFacts*) override {}
    core::ChunkId next_victim(const core::VictimRequest&,
                              const std::function<bool(core::ChunkId)>& eligible) override {
        for (const auto& [next, chunk] : resident_) {
            if (eligible(chunk)) return chunk;
        }
        return core::kNoChunk;
    }
    std::size_t upcoming(std::span<core::ChunkId>) override { return 0; }
    std::uint64_t eviction_start(std::uint64_t budget, std::uint64_t) override { return budget; }

    void will_be_used(core::ChunkId chunk, std::uint32_t work) {
        auto there = resident_.extract({next_[chunk], chunk});
        next_[chunk] = work;
        if (there.empty()) return;
        there.value().first = work;
        resident_.insert(std::move(there));
    }

  private:
    void gone(core::ChunkId chunk) { resident_.erase({next_[chunk], chunk}); }

    std::vector<std::uint32_t> next_;                                             // by chunk
    std::set<std::pair<std::uint32_t, core::ChunkId>, std::greater<>> resident_;  // what is used last first
};

}  // namespace lms::tool
