// Turns on a GPU that other processes use too (sharing/turns.h), and what those are to give back.
#include <algorithm>

#include "shim/executor/budget.h"
#include "shim/executor/gpu_share.h"
#include "shim/executor/migrator.h"
#include "shim/util/bounds.h"

namespace lms::executor {

void Migrator::keep_to_budget(SessionLock& lock, bool waits_for_copies) {
    note_levels(core_);
    if (excess_bytes(core_) == 0) return;
    begin_pressure(core_, lock);
    give_back_excess(lock, waits_for_copies);
}

bool Migrator::has_lost_turn() const {
    return core_.share && core_.share->waits(true);
}

// Waits as one that wants a turn. False: in vain, or not at all in a host function, where nothing may be
// called: what it waits for might come behind it.
template <typename Ready>
bool Migrator::await_share(SessionLock& lock, Ready ready) {
    GpuShare& share = *core_.share;
    if (unlocked(lock, [&] { return core_.port.health(); }) == CUDA_ERROR_NOT_PERMITTED) return false;
    const GpuShare::Waiter waiter(share, unlocked(lock, [&] { return share.now_ns(); }));
    for (;;) {
        if (refresh_grant(core_, share, lock) != CUDA_SUCCESS || waiter.for_too_long()) return false;
        keep_to_budget(lock, true);
        if (ready()) return true;
        unlocked(lock, [&] { waiter.pause(); });
    }
}

// Work that may go on does not wait: while this process's chunks leave one by one, it uses those that are
// there yet. What leaves it does not claim back, or none would ever leave.
bool Migrator::await_turn(std::span<const ChunkRequest> needs, SessionLock& lock) {
    GpuShare* const share = core_.share;
    const auto leaves = [&](const ChunkRequest& need) LMS_LOCKED {
        return !gone(need, core_.residency) &&
               core_.residency.chunk(need.chunk).state == engine::State::Evicting;
    };
    const auto waits = [&]() LMS_LOCKED {
        return share->waits(!core_.engine.present(needs) || std::ranges::any_of(needs, leaves));
    };
    if (!share || !share->takes_turns() || needs.empty()) return true;
    return !waits() || await_share(lock, [&]() LMS_LOCKED { return !waits(); });
}

bool Migrator::await_grant(std::span<const ChunkRequest> needs, SessionLock& lock) {
    GpuShare* const share = core_.share;
    const auto bytes = [&]() LMS_LOCKED {
        std::uint64_t sum = core_.residency.kept_bytes();
        for (const ChunkRequest& need : needs) {
            if (gone(need, core_.residency) || need.aside) continue;
            const engine::Chunk& chunk = core_.residency.chunk(need.chunk);
            if (chunk.keeps == 0) sum += chunk.bytes;
        }
        return sum;
    };
    // What the host has no room for cannot leave, and what nothing leaves for cannot come.
    const auto fits = [&]() LMS_LOCKED {
        return std::max(bytes(), least_of_grant(core_)) <= core_.engine.budget_bytes();
    };
    if (!share || fits()) return false;
    const bool over = await_share(lock, [&]() LMS_LOCKED {
        if (fits() || bytes() > share->most_bytes()) return true;
        share->begin_turns();
        return false;
    });
    return over && fits();
}

// Whether more of what is granted has come to be free. Else what this process evicts of its own it would soon
// bring in again.
bool Migrator::await_others(SessionLock& lock) {
    GpuShare* const share = core_.share;
    if (!share || !share->takes_turns()) return false;
    const std::uint64_t before = core_.engine.budget_bytes();
    const auto kept = [&]() LMS_LOCKED {
        return core_.granted_bytes - std::min(core_.granted_bytes, core_.engine.budget_bytes());
    };
    if (kept() <= kept_by_others_ || has_lost_turn()) {
        kept_by_others_ = std::min(kept_by_others_, kept());
        return false;
    }
    constexpr auto kMost =
        static_cast<std::uint64_t>(std::chrono::nanoseconds(bounds::kGivenByOthers).count());
    const std::uint64_t since = unlocked(lock, [&] { return share->now_ns(); });
    for (std::uint64_t now = since; now - since < kMost;) {
        refresh_grant(core_, *share, lock);
        if (core_.engine.budget_bytes() > before || has_lost_turn()) return true;
        unlocked(lock, [&] {
            share->pause(bounds::kGivenLook);
            now = share->now_ns();
        });
    }
    kept_by_others_ = kept();
    return false;
}

}  // namespace lms::executor
