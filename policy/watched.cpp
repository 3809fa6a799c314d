#include "policy/watched.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "shim/util/clock.h"
#include "shim/util/log.h"

namespace lms::policy {
namespace {

using util::Clock;

// Every launch on the device waits for these calls. What each may take, and what they may take beyond that: a
// thread may be kept from running for tenths of a second now and then, which is not the plugin's doing.
constexpr std::chrono::milliseconds kAllowed{10};
constexpr std::chrono::milliseconds kMostDebt{1000};

// The last that was too slow: those of other devices look here too.
std::atomic<const lms_policy*> too_slow{nullptr};

void give_up(const lms_policy* table, const char* function, Clock::duration took) {
    if (too_slow.exchange(table) == table) return;
    log::warn(
        "policy {} takes too long (its last call of {} took {} ms, allowed are {} on average); lru "
        "replaces it",
        table->name, function, std::chrono::duration_cast<std::chrono::milliseconds>(took).count(),
        kAllowed.count());
}

}  // namespace

bool Watched::given_up(const lms_policy* table) {
    return too_slow.load(std::memory_order_relaxed) == table;
}

template <typename Call>
auto Watched::timed(const char* function, Call&& call) {
    const Clock::time_point since = Clock::now();
    const auto answer = call();
    const Clock::duration took = Clock::now() - since;
    debt_ = std::max(Clock::duration::zero(), debt_ + took - kAllowed);
    if (debt_ > kMostDebt) give_up(table_, function, took);
    return answer;
}

void Watched::added(const engine::Added& chunk) {
    if (decides()) Host::added(chunk);
    lru_->added(chunk);
}

void Watched::freed(engine::ChunkId chunk) {
    if (decides()) Host::freed(chunk);
    lru_->freed(chunk);
}

void Watched::removed(engine::ChunkId chunk) {
    if (decides()) Host::removed(chunk);
    lru_->removed(chunk);
}

void Watched::used(engine::ChunkId chunk) {
    if (decides()) Host::used(chunk);
    lru_->used(chunk);
}

void Watched::resident(engine::ChunkId chunk) {
    if (decides()) Host::resident(chunk);
    lru_->resident(chunk);
}

void Watched::evicted(engine::ChunkId chunk) {
    if (decides()) Host::evicted(chunk);
    lru_->evicted(chunk);
}

void Watched::work(std::span<const engine::ChunkId> chunks, const engine::WorkFacts* facts) {
    if (decides()) timed("work", [&] { return Host::work(chunks, facts), 0; });
    lru_->work(chunks, nullptr);
}

std::size_t Watched::upcoming(std::span<engine::ChunkId> out) {
    return decides() ? timed("upcoming", [&] { return Host::upcoming(out); }) : 0;
}

engine::ChunkId Watched::next_victim(const engine::VictimRequest& wanted,
                                     const std::function<bool(engine::ChunkId)>& eligible) {
    const bool decides = this->decides();
    if (decides) {
        const engine::ChunkId victim =
            timed(wanted.purpose == engine::Purpose::Foretold ? "leaving" : "next_victim",
                  [&] { return Host::next_victim(wanted, eligible); });
        if (victim != engine::kNoChunk) return victim;
    }
    if (!engine::must_go(wanted.purpose)) return engine::kNoChunk;
    const engine::ChunkId victim = lru_->next_victim(wanted, eligible);
    if (decides && victim != engine::kNoChunk && wanted.asker != nullptr) wanted.asker->overruled();
    return victim;
}

std::uint64_t Watched::eviction_start(std::uint64_t budget_bytes, std::uint64_t allocated_bytes) {
    return decides() ? Host::eviction_start(budget_bytes, allocated_bytes)
                     : lru_->eviction_start(budget_bytes, allocated_bytes);
}

}  // namespace lms::policy
