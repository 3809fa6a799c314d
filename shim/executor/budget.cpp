#include "shim/executor/budget.h"

#include <algorithm>

#include "shim/executor/gpu_share.h"
#include "shim/executor/placement.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::executor {

namespace {

std::uint64_t minus(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : 0;
}

std::uint64_t capped(const Settings& settings, std::uint64_t total_bytes) {
    return std::min(total_bytes, settings.limit_bytes.value_or(total_bytes));
}

// Of what may be filled, not of the whole GPU.
std::uint64_t reserve_of(const Settings& settings, std::uint64_t total_bytes) {
    return settings.reserve_bytes.value_or(default_reserve(capped(settings, total_bytes)));
}

// What managed memory may take; 0: what there is.
std::uint64_t most_bytes(const Core& core, std::uint64_t limit) LMS_LOCKED {
    const std::uint64_t granted = core.granted_bytes;
    return limit == 0 ? granted : granted == 0 ? limit : std::min(limit, granted);
}

struct Look {
    device::MemoryInfo info;
    std::uint64_t held_by_others;  // and by the program's unmanaged allocations
};

// What has to stay on the GPU where `wanted` is all that should: what the host has no room for.
std::uint64_t least_budget(Core& core, std::uint64_t wanted) LMS_LOCKED {
    const engine::Engine& engine = core.engine;
    if (!core.host_claims) return engine.least_budget(util::host_memory().spare_bytes(bounds::kHostLook));
    const std::uint64_t allocated = core.residency.allocated_bytes();
    if (allocated > 0) {
        core.host_claims->claim(core.host_part, minus(allocated + 2 * engine.largest_cut(), wanted),
                                HostClaims::Short::Some);
    }
    return engine.least_budget(minus(core.host_part.claimed_bytes, core.host_blocks.held_bytes()));
}

CUresult look(Core& core, SessionLock& lock, Look& look) LMS_LOCKED {
    const std::uint64_t held_before = core.device_blocks.held_bytes();
    const CUresult status = unlocked(lock, [&] { return core.port.memory_info(look.info); });
    // Other threads make and give back blocks meanwhile. What is ours must not be taken for others': that
    // would shrink the budget until the next look.
    const std::uint64_t held = std::max(held_before, core.device_blocks.held_bytes());
    look.held_by_others = minus(look.info.total_bytes - look.info.free_bytes, held);
    if (status == CUDA_SUCCESS) core.telemetry.note_unmanaged(look.held_by_others);
    return status;
}

}  // namespace

std::uint64_t least_of_grant(const Core& core) {
    return core.granted_bytes == 0 ? 0 : core.engine.least_budget(core.engine.host_limit_bytes());
}

std::uint64_t default_reserve(std::uint64_t total_bytes) {
    return std::min<std::uint64_t>(total_bytes / 64, 512ull << 20);
}

namespace {

CUresult look_at_budget(Core& core, std::uint64_t& budget, SessionLock& lock) LMS_LOCKED {
    Look now{};
    const CUresult status = look(core, lock, now);
    if (status != CUDA_SUCCESS) return status;
    const std::uint64_t limit = limit_now.load();
    const std::uint64_t total =
        limit > 0 ? now.info.total_bytes : capped(core.settings, now.info.total_bytes);
    const std::uint64_t reserve = reserve_of(core.settings, now.info.total_bytes);
    budget = minus(total, reserve + now.held_by_others);
    if (const std::uint64_t most = most_bytes(core, limit); most > 0)
        budget = std::min(budget, std::max(most, least_budget(core, most)));
    return status;
}

}  // namespace

CUresult refresh_budget(Core& core, SessionLock& lock) {
    std::uint64_t budget = 0;
    const CUresult status = look_at_budget(core, budget, lock);
    if (status != CUDA_SUCCESS) return status;
    core.engine.set_budget(budget);
    settle_host(core);
    return status;
}

void look_for_room(Core& core, SessionLock& lock) {
    const auto now = util::Clock::now();
    if (now < core.next_look_for_room) return;
    core.next_look_for_room = now + bounds::kRoomLook;
    std::uint64_t budget = 0;
    if (look_at_budget(core, budget, lock) != CUDA_SUCCESS || budget <= core.engine.budget_bytes()) return;
    core.engine.set_budget(budget);
    settle_host(core);
}

void look_at_unmanaged(Core& core, SessionLock& lock) {
    if (!core.telemetry.traced) return;
    const auto now = util::Clock::now();
    if (now < core.next_look_at_unmanaged) return;
    core.unmanaged_look = std::clamp<util::Clock::duration>(
        2 * core.unmanaged_look, bounds::kFirstUnmanagedLook, bounds::kLastUnmanagedLook);
    core.next_look_at_unmanaged = now + core.unmanaged_look;
    Look seen{};
    look(core, lock, seen);
}

void note_levels(Core& core) {
    if (core.share) core.share->note_held(core.device_blocks.held_bytes());
    core.telemetry.note_levels();
}

CUresult refresh_grant(Core& core, GpuShare& share, SessionLock& lock, bool in_use) {
    GpuShare::Levels own{.allocated_bytes = core.residency.allocated_bytes(),
                         .held_bytes = core.device_blocks.held_bytes(),
                         .pinned_bytes = core.host_blocks.held_bytes(),
                         .free_bytes = 0,
                         .most_bytes = 0,
                         .least_bytes = least_of_grant(core),
                         .granted_bytes = core.granted_bytes,
                         .moved_bytes = core.telemetry.moved_in_bytes,
                         .link_bytes_per_s = core.telemetry.speeds.bytes_per_s(trace::Direction::In),
                         .in_use = in_use};
    device::MemoryInfo info{};
    std::optional<std::uint64_t> granted;  // nothing: another thread looks
    const CUresult status = unlocked(lock, [&] {
        const CUresult asked = core.port.memory_info(info);
        if (asked != CUDA_SUCCESS) return asked;
        const std::uint64_t reserve = reserve_of(core.settings, info.total_bytes);
        own.free_bytes = minus(info.free_bytes, reserve);
        own.most_bytes = minus(info.total_bytes, reserve);
        granted = share.look(own);
        return asked;
    });
    if (status != CUDA_SUCCESS) return status;
    if (granted) core.granted_bytes = *granted;
    core.telemetry.note_grant(core.granted_bytes);
    return refresh_budget(core, lock);
}

std::uint64_t budget_in_turn(const Core& core) {
    const std::uint64_t now = core.engine.budget_bytes();
    if (!core.share || !core.share->takes_turns()) return now;
    const std::uint64_t limit = limit_now.load(std::memory_order_relaxed);
    const std::uint64_t most = core.share->most_bytes();
    return std::max(now, limit == 0 ? most : std::min(limit, most));
}

std::uint64_t excess_bytes(const Core& core) {
    return most_bytes(core, limit_now.load(std::memory_order_relaxed)) == 0
               ? 0
               : minus(core.device_blocks.held_bytes(), core.engine.budget_bytes());
}

std::uint64_t host_bytes(const Core& core, std::chrono::milliseconds age) {
    return core.engine.host_bytes(util::host_memory().spare_bytes(age));
}

bool claim_host(Core& core, std::uint64_t bytes) {
    return !core.host_claims || core.host_claims->claim(core.host_part, bytes);
}

std::uint64_t returnable_host_bytes(const Core& core) {
    const std::uint64_t promised = core.engine.promised_host_bytes(core.residency.allocated_bytes());
    return minus(core.host_blocks.held_bytes(), std::max(promised, core.residency.host_bytes()));
}

void settle_host(Core& core) {
    if (!core.host_claims) return;
    const std::uint64_t promised = core.engine.promised_host_bytes(core.residency.allocated_bytes());
    const std::uint64_t pinned = core.host_blocks.held_bytes();
    core.host_claims->settle(core.host_part,
                             {std::max(promised, pinned), pinned, returnable_host_bytes(core)});
}

std::uint64_t give_back_host(Core& core, std::uint64_t lacking, SessionLock& lock) {
    const std::uint64_t bytes = std::min(lacking, returnable_host_bytes(core));
    if (bytes == 0) return 0;
    poll_completions(core, lock);  // a copy that a chunk is filled from cannot go
    core.engine.spare_copies(bytes);
    const std::uint64_t given = core.host_blocks.trim(bytes, lock, true);
    settle_host(core);
    return given;
}

namespace {

// A chunk's at a time: until it is given back nobody can have it, and who needs room waits.
void trim_gently(Core& core, BlockSource& source, std::uint64_t bytes, SessionLock& lock) LMS_LOCKED {
    for (std::uint64_t given = 1; bytes > 0 && given > 0; bytes -= std::min(given, bytes)) {
        const Holder holder(core);
        given = source.trim(std::min(bytes, core.engine.largest_cut()), lock, true);
        core.changed.notify_all();
    }
}

}  // namespace

void give_back_idle(Core& core, SessionLock& lock) {
    const std::uint64_t host =
        std::min(core.engine.pool(engine::Place::Host).take_idle_bytes(), returnable_host_bytes(core));
    const std::uint64_t device = core.engine.pool(engine::Place::Device).take_idle_bytes();
    trim_gently(core, core.host_blocks, host, lock);
    if (!must_drain(core)) trim_gently(core, core.device_blocks, device, lock);
    settle_host(core);
    note_levels(core);
}

bool has_capacity(Core& core, std::uint64_t bytes) {
    const std::uint64_t allocated = core.residency.allocated_bytes() + bytes;
    const std::uint64_t needed = core.engine.promised_host_bytes(allocated);
    if (core.host_claims) {
        if (needed <= core.engine.host_limit_bytes() && claim_host(core, needed)) return true;
        settle_host(core);
        return false;
    }
    // Refused only for what is so now.
    return needed == 0 || needed <= host_bytes(core, bounds::kHostLook) || needed <= host_bytes(core, {});
}

std::uint64_t visible_total(std::uint64_t total_bytes, const Settings& settings) {
    if (settings.meminfo == MemInfo::Physical) return capped(settings, total_bytes);
    return capped(settings, total_bytes) + util::host_limit_bytes(settings.host_limit_bytes);
}

CUresult visible_memory(Core& core, SessionLock& lock, device::MemoryInfo& info) {
    Look now{};
    const CUresult status = look(core, lock, now);
    if (status != CUDA_SUCCESS) return status;
    info.total_bytes = visible_total(now.info.total_bytes, core.settings);
    const std::uint64_t reserve = reserve_of(core.settings, now.info.total_bytes);
    info.free_bytes =
        minus(info.total_bytes, reserve + now.held_by_others + core.residency.allocated_bytes());
    return status;
}

}  // namespace lms::executor
