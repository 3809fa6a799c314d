// lru: the chunk whose last use is longest ago goes first, and nothing goes while everything fits.
#include <cstdint>

#include "policy/adapter.h"
#include "policy/builtin.h"
#include "policy/chunk_list.h"

namespace lms::policy {
namespace {

class Lru {
  public:
    explicit Lru(const lms_policy_config& config) noexcept
        : threshold_bytes_(config.threshold_bytes), frac_(config.frac) {}

    bool is_managed(std::uint64_t bytes) const { return bytes >= threshold_bytes_; }

    std::uint64_t eviction_start(const lms_policy_pressure& pressure) const {
        // The thread that needs room makes it, so free memory ahead of that is of no use. The whole budget is
        // used, unless LMS_FRAC asks for less.
        return frac_ >= 0 ? share_of(pressure.budget_bytes, frac_) : pressure.budget_bytes;
    }

    void added(const lms_policy_chunk& chunk) { resident_.reserve(chunk.chunk); }
    void removed(std::uint32_t chunk) { resident_.remove(chunk); }
    void used(const lms_policy_use& use) { resident_.move_to_back(use.chunk); }
    void resident(std::uint32_t chunk) { resident_.push_back(chunk); }
    void evicted(std::uint32_t chunk) { resident_.remove(chunk); }

    std::uint32_t next_victim(const lms_policy_request& request) const {
        return resident_.first_eligible(request);
    }

  private:
    std::uint64_t threshold_bytes_;
    double frac_;
    ChunkList resident_;  // least recently used first
};

}  // namespace

constinit const lms_policy kLru = table_of<Lru>("lru");

}  // namespace lms::policy

#ifdef LMS_POLICY_PLUGIN
const lms_policy* lms_policy_get(std::uint32_t abi_version) {
    return abi_version == LMS_POLICY_ABI_VERSION ? &lms::policy::kLru : nullptr;
}
#endif
