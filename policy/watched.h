// A plugin's policy under watch, with an lru beside it. The lru decides if the plugin's answer cannot be
// used, and always after the plugin has taken too long.
#pragma once

#include <lms/policy.h>

#include <memory>
#include <utility>

#include "policy/host.h"
#include "shim/util/clock.h"

namespace lms::policy {

class Watched final : public Host {
  public:
    // `lru` gets the same events as the plugin.
    Watched(const lms_policy* table, void* state, std::unique_ptr<Host> lru)
        : Host(table, state, true), lru_(std::move(lru)) {}

    // Whether it has taken too long, on any device. Any thread.
    static bool given_up(const lms_policy* table);

    void added(const engine::Added& chunk) override;
    void freed(engine::ChunkId chunk) override;
    void removed(engine::ChunkId chunk) override;
    void used(engine::ChunkId chunk) override;
    void resident(engine::ChunkId chunk) override;
    void evicted(engine::ChunkId chunk) override;
    void work(std::span<const engine::ChunkId> chunks, const engine::WorkFacts* facts) override;
    std::size_t upcoming(std::span<engine::ChunkId> out) override;
    engine::ChunkId next_victim(const engine::VictimRequest& wanted,
                                const std::function<bool(engine::ChunkId)>& eligible) override;
    std::uint64_t eviction_start(std::uint64_t budget_bytes, std::uint64_t allocated_bytes) override;

  private:
    bool decides() const { return !given_up(table_); }
    template <typename Call>
    auto timed(const char* function, Call&& call);

    const std::unique_ptr<Host> lru_;
    util::Clock::duration debt_{0};  // what calls took beyond what they may, not paid back
};

}  // namespace lms::policy
