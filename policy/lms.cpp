// lms: what IBM's Large Model Support does. Eviction starts at LMS_FRAC of the budget, whether or not
// everything would fit; the chunk that fits the need best goes first, and where none is large enough, the
// least recently used.
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "policy/adapter.h"
#include "policy/builtin.h"
#include "policy/chunk_list.h"

namespace lms::policy {
namespace {

// IBM's start of eviction, as a share of the budget.
constexpr double kDefaultFrac = 0.9;

class Lms {
  public:
    explicit Lms(const lms_policy_config& config) noexcept
        : threshold_bytes_(config.threshold_bytes), frac_(config.frac >= 0 ? config.frac : kDefaultFrac) {}

    bool is_managed(std::uint64_t bytes) const { return bytes >= threshold_bytes_; }

    std::uint64_t eviction_start(const lms_policy_pressure& pressure) const {
        return share_of(pressure.budget_bytes, frac_);
    }

    void added(const lms_policy_chunk& chunk) {
        if (chunk.chunk >= size_class_.size()) size_class_.resize(std::size_t{chunk.chunk} + 1);
        ChunkList& same_size = by_size_[chunk.bytes];
        same_size.reserve(chunk.chunk);
        resident_.reserve(chunk.chunk);
        size_class_[chunk.chunk] = &same_size;
    }
    void removed(std::uint32_t chunk) {
        evicted(chunk);
        if (chunk < size_class_.size()) size_class_[chunk] = nullptr;
    }
    void used(const lms_policy_use& use) {
        resident_.move_to_back(use.chunk);
        if (ChunkList* const same_size = size_class(use.chunk)) same_size->move_to_back(use.chunk);
    }
    void resident(std::uint32_t chunk) {
        ChunkList* const same_size = size_class(chunk);
        if (same_size == nullptr) return;
        resident_.push_back(chunk);
        same_size->push_back(chunk);
    }
    void evicted(std::uint32_t chunk) {
        resident_.remove(chunk);
        if (ChunkList* const same_size = size_class(chunk)) same_size->remove(chunk);
    }

    std::uint32_t next_victim(const lms_policy_request& request) const {
        for (auto fit = by_size_.lower_bound(request.need_bytes); fit != by_size_.end(); ++fit) {
            const std::uint32_t chunk = fit->second.first_eligible(request);
            if (chunk != LMS_NO_CHUNK) return chunk;
        }
        return resident_.first_eligible(request);
    }

  private:
    ChunkList* size_class(std::uint32_t chunk) {
        return chunk < size_class_.size() ? size_class_[chunk] : nullptr;
    }

    std::uint64_t threshold_bytes_;
    double frac_;
    ChunkList resident_;                          // least recently used first
    std::map<std::uint64_t, ChunkList> by_size_;  // the same order, by bytes; sizes are few
    std::vector<ChunkList*> size_class_;  // by chunk: its list in by_size_, null if it was never added
};

}  // namespace

constinit const lms_policy kLms = table_of<Lms>("lms");

}  // namespace lms::policy

#ifdef LMS_POLICY_PLUGIN
const lms_policy* lms_policy_get(std::uint32_t abi_version) {
    return abi_version == LMS_POLICY_ABI_VERSION ? &lms::policy::kLms : nullptr;
}
#endif
