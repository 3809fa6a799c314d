// Finds a policy, built in or a plugin, and connects it to the residency map.
#pragma once

#include <lms/policy.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shim/engine/ranking.h"

namespace lms::policy {

// The table of the policy that `setting` means, "name[,key=value...]": a built-in one ("next-use", "lru",
// "lms"), or the path of a plugin (anything with a slash or ending in ".so"), which is loaded and stays
// loaded. Null if there is none that can be used, or it does not take those keys; `problem` is then one line
// that says why. May throw std::bad_alloc.
const lms_policy* find(const std::string& setting, std::string& problem);

// One device's policy. Unless said otherwise, called with the session's lock held.
class Host : public engine::Ranking {
  public:
    // The policy that `setting` means, or lru with a line at warn if it cannot be used. May throw
    // std::bad_alloc. `frac` as LMS_FRAC, `threshold_bytes` as LMS_THRESHOLD.
    static std::unique_ptr<Host> create(const std::string& setting, std::optional<double> frac,
                                        std::uint64_t threshold_bytes);
    ~Host() override;
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    const char* name() const { return table_->name; }
    // Whether the shim serves an allocation of `bytes`. Any thread, no lock needed.
    bool is_managed(std::uint64_t bytes) const { return table_->is_managed(state_, bytes) != 0; }

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

  protected:
    Host(const lms_policy* table, void* state, bool is_plugin);

    const lms_policy* const table_;

  private:
    void* const state_;
    // For every launch: null where the table has none.
    const decltype(lms_policy::work) work_;
    const decltype(lms_policy::upcoming) upcoming_;
    const decltype(lms_policy::leaving) leaving_;
    std::uint64_t sequence_ = 0;
    engine::ChunkId chunk_end_ = 0;  // above every chunk ever added
};

}  // namespace lms::policy
