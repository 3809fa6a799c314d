// Buffers: allocated, given their first memory, and freed.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "shim/engine/chunking.h"
#include "shim/executor/block_allocation.h"
#include "shim/executor/budget.h"
#include "shim/executor/guards.h"
#include "shim/executor/own_moves.h"
#include "shim/executor/placement.h"
#include "shim/program/memory_changes.h"
#include "shim/session/session.h"
#include "shim/telemetry/memory_told.h"
#include "shim/telemetry/telemetry.h"
#include "shim/trace/callstack.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/log.h"
#include "shim/util/units.h"

namespace lms::session {

using engine::ChunkId;
using util::Clock;

namespace {

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

}  // namespace

CUresult Session::allocate(std::uint64_t bytes, engine::Address& address, CUcontext owner, bool collects) {
    executor::Core& core = *core_;
    std::vector<std::string> caller;
    if (trace::writer()) caller = trace::call_site();
    // After a kernel's fault the driver refuses; memory at hand would not show it.
    const CUresult health = port_->health();
    executor::SessionLock lock(core.mutex);
    if (health != CUDA_SUCCESS) {
        core.telemetry.announce_failure(health);
        return health;
    }
    const auto id = enter(bytes, collects, lock);
    if (!id) return CUDA_ERROR_OUT_OF_MEMORY;
    core.owners[*id] = owner;
    const CUresult status = place(*id, lock);
    if (status != CUDA_SUCCESS) {
        release(core, *id, lock);
        if (status != CUDA_ERROR_OUT_OF_MEMORY) return status;
        // A context may have failed meanwhile, which is no lack of memory.
        const CUresult since = unlocked(lock, [&] { return port_->health(); });
        if (since != CUDA_SUCCESS) {
            core.telemetry.announce_failure(since);
            return since;
        }
        core.telemetry.announce_no_host_memory(bytes);
        return status;
    }
    core.telemetry.note_allocation(*id, caller);
    note_levels(core);
    address = core.residency.allocation(*id).address;
    return CUDA_SUCCESS;
}

namespace {

void settle_frees(executor::Core& core, executor::SessionLock& lock) LMS_LOCKED {
    if (core.engine.pending_frees.empty()) return;
    executor::poll_completions(core, lock);
    executor::free_completed(core, lock);
}

// While this lives, other processes give back host memory that they can do without for `bytes` more here.
class OthersGive {
  public:
    OthersGive(executor::Core& core, std::uint64_t bytes, Clock::time_point until)
        : core_(core), bytes_(bytes), until_(until) {}
    ~OthersGive() LMS_LOCKED {
        if (core_.host_claims) core_.host_claims->lack(0);
    }
    OthersGive(const OthersGive&) = delete;
    OthersGive& operator=(const OthersGive&) = delete;

    // After a refusal; false: there is nothing to wait for.
    bool wait(executor::SessionLock& lock) const LMS_LOCKED {
        executor::HostClaims* const claims = core_.host_claims;
        const std::uint64_t needed =
            core_.engine.promised_host_bytes(core_.residency.allocated_bytes() + bytes_);
        if (!claims || !claims->may_come() || needed > core_.engine.host_limit_bytes() ||
            Clock::now() >= until_)
            return false;
        claims->lack(needed - std::min(needed, core_.host_part.claimed_bytes));
        // Those that ask at once ask again one after the other.
        unlocked(lock, [] { util::pause(bounds::kHostGiven * (1 + getpid() % 7)); });
        return true;
    }

  private:
    executor::Core& core_;
    const std::uint64_t bytes_;
    const Clock::time_point until_;
};

// Whether `bytes` more may be allocated, if need be once streams have reached the frees of other buffers;
// that is waited for, within a bound that begins anew with each.
bool await_capacity(executor::Core& core, std::uint64_t bytes, executor::SessionLock& lock) LMS_LOCKED {
    auto deadline = Clock::now() + bounds::kGivenBack;
    const OthersGive others(core, bytes, deadline);
    while (!executor::has_capacity(core, bytes)) {
        if (core.engine.pending_frees.empty() && others.wait(lock)) continue;
        if (core.engine.pending_frees.empty() || Clock::now() >= deadline) return false;
        const executor::FencePtr fence = core.fences.fence_of(core.engine.pending_frees.oldest().free);
        unlocked(lock, [&] { return fence && wait_for(*fence, deadline - Clock::now()); });
        const std::uint64_t before = core.residency.allocated_bytes();
        settle_frees(core, lock);
        if (core.residency.allocated_bytes() < before) deadline = Clock::now() + bounds::kGivenBack;
    }
    return true;
}

// Whether an allocation of `bytes`, of which its caller asked for `asked`, is to fail for once
// (LMS_SOFT_LIMIT).
bool refuses_once(executor::Core& core, std::uint64_t bytes, std::uint64_t asked) LMS_LOCKED {
    const std::uint64_t used = core.residency.allocated_bytes();
    const bool awaited = core.soft_limit.awaits_retry();
    const bool refused = core.soft_limit.refuses(used, bytes, std::this_thread::get_id());
    if (refused) telemetry::note_refused_once(asked);
    // Of this GPU's alone: another's may be waited for still.
    if (awaited && !core.soft_limit.awaits_retry()) telemetry::note_refused_once(0);
    if (!refused) return false;
    trace::add(trace::counters().refusals);
    log::info("an allocation of {} beyond LMS_SOFT_LIMIT fails once, with {} in use",
              util::format_bytes(asked), util::format_bytes(used));
    return true;
}

}  // namespace

// A buffer for which there is capacity, and no memory yet.
std::optional<engine::AllocationId> Session::enter(std::uint64_t bytes, bool collects,
                                                   executor::SessionLock& lock) {
    executor::Core& core = *core_;
    const std::uint64_t rounded = round_up(bytes, core.granularity);
    const bool never = rounded < bytes || rounded > core.engine.capacity_bytes();
    if (!never && !executor::must_drain(core)) settle_frees(core, lock);  // else where there is no capacity
    if (!never && collects && refuses_once(core, rounded, bytes)) return std::nullopt;
    if (never || !await_capacity(core, rounded, lock)) {
        core.telemetry.announce_no_capacity(bytes);
        return std::nullopt;
    }
    if (rounded != bytes) padded_ = true;
    const auto taken = core.arena.take(rounded);
    if (!taken) return std::nullopt;
    const auto sizes = engine::cut(rounded, core.granularity,
                                   engine::largest_chunk(executor::budget_in_turn(core), core.granularity));
    core.large.largest_bytes = std::max(core.large.largest_bytes, rounded);
    const engine::AllocationId id = core.engine.add(*taken, bytes, sizes);
    ++program::memory_changes;
    core.owners.resize(std::max<std::size_t>(core.owners.size(), id + std::size_t{1}));
    core.owners[id] = nullptr;
    return id;
}

// Gives a new buffer its first memory: on the device as long as there is room without evicting, else on the
// host.
CUresult Session::place(engine::AllocationId id, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    const engine::Residency& residency = core.residency;
    const executor::Holder holder(core);
    const std::vector<ChunkId> chunks = residency.allocation(id).chunks;
    place_together(chunks, lock);
    for (const ChunkId chunk : chunks) {
        if (residency.chunk(chunk).state != engine::State::Empty)
            continue;  // a try before this one got so far
        const auto deadline = Clock::now() + bounds::kGivenBack;
        CUresult status = place_chunk(chunk, lock);
        // Moves take more than they need in the end. What has come back is tried, however long that took:
        // this thread may not have run meanwhile.
        while (status != CUDA_SUCCESS && Clock::now() < deadline && migrator_->give_back_soon(lock))
            status = place_chunk(chunk, lock);
        if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
}

// What of new chunks finds room on the device without evicting. The rest stays without memory.
void Session::place_together(std::span<const ChunkId> chunks, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    const engine::Residency& residency = core.residency;
    const auto is_empty = [&](ChunkId id)
                              LMS_LOCKED { return residency.chunk(id).state == engine::State::Empty; };
    std::vector<NewMemory> found;
    std::uint64_t taken = 0;  // and not yet counted as on the device
    for (const ChunkId id : chunks) {
        if (!is_empty(id)) continue;
        const std::uint64_t limit = core.engine.eviction_start();
        const auto block =
            device_block(core, residency.chunk(id).bytes, limit - std::min(limit, taken), lock);
        if (!block) break;
        found.push_back({id, *block});
        taken += block->bytes;
    }
    // Who brought one in meanwhile has placed it.
    std::erase_if(found, [&](const NewMemory& one) LMS_LOCKED {
        if (is_empty(one.chunk)) return false;
        core.engine.put(one.block);
        return true;
    });
    if (!found.empty()) map_new(found, lock);
}

// A pointer to memory that was freed may name the chunk as soon as it has its address: whoever brings it in
// for that has placed it.
CUresult Session::place_chunk(ChunkId id, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    const engine::Residency& residency = core.residency;
    const auto where = [&]() LMS_LOCKED { return residency.chunk(id).state; };
    const std::uint64_t bytes = residency.chunk(id).bytes;
    for (bool drains = false;;) {
        core.changed.wait(lock, [&]() LMS_LOCKED { return where() != engine::State::Remapping; });
        if (where() != engine::State::Empty) return CUDA_SUCCESS;
        const auto device = device_block(core, bytes, core.engine.eviction_start(), lock, drains);
        if (device && where() == engine::State::Empty)
            return map_new(std::array{NewMemory{id, *device}}, lock);
        if (device) {
            core.engine.put(*device);
            continue;
        }
        const std::uint64_t held = core.device_blocks.held_bytes();
        executor::begin_pressure(core, lock);
        // What a trial of moves was made on, for one.
        if (core.device_blocks.held_bytes() < held) continue;
        if (core.trial == executor::Core::Trial::Distrusted) return CUDA_ERROR_OUT_OF_MEMORY;
        core.telemetry.announce_pressure();
        // Where host memory cannot be mapped, nothing can reach the chunk before a launch that names it
        // brings it in.
        if (!port_->maps_host_memory())
            return pin_ahead(core, bytes, lock) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        const auto host = host_block(core, bytes, lock);
        if (host && where() == engine::State::Empty) return map_new(std::array{NewMemory{id, *host}}, lock);
        if (host) core.engine.put(*host);
        if (host || where() != engine::State::Empty) continue;
        if (drains || !executor::must_drain(core)) return CUDA_ERROR_OUT_OF_MEMORY;
        drains = true;
    }
}

// Maps the first memory behind chunks: all or none.
CUresult Session::map_new(std::span<const NewMemory> found, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    std::vector<executor::Remap> remaps;
    for (const NewMemory& one : found) {
        core.engine.begin_placing(one.chunk);
        for (executor::Remap& each : remaps_of(core, one.chunk, {}, one.block))
            remaps.push_back(std::move(each));
    }
    const bool mapped = unlocked(lock, [&] { return remap(*port_, remaps) == CUDA_SUCCESS; });
    for (const NewMemory& one : found) core.engine.placed(one.chunk, one.block, mapped);
    core.changed.notify_all();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Session::allocate_on(CUstream stream, std::uint64_t bytes, engine::Address& address) {
    std::vector<std::string> caller;
    if (trace::writer()) caller = trace::call_site();
    {
        executor::Core& core = *core_;
        const std::uint64_t rounded = round_up(bytes, core.granularity);
        const StreamKey key = core.fences.key_of(stream);
        if (rounded != bytes) padded_ = true;
        const CUresult health = port_->health();
        executor::SessionLock lock(core.mutex);
        if (health != CUDA_SUCCESS) {
            core.telemetry.announce_failure(health);
            return health;
        }
        auto id = core.engine.pending_frees.take(key, rounded);
        if (!id && rounded >= bytes && !executor::has_capacity(core, rounded)) {
            settle_frees(core, lock);
            // The stream may be long in coming to its frees: one that is larger than need be will do.
            if (!executor::has_capacity(core, rounded))
                id = core.engine.pending_frees.take(key, rounded, false);
            if (id) padded_ = true;
        }
        if (id) {
            core.telemetry.note_free(*id);
            core.engine.revive(*id, bytes);
            ++program::memory_changes;
            core.owners[*id] = nullptr;
            core.telemetry.note_allocation(*id, caller);
            address = core.residency.allocation(*id).address;
            return CUDA_SUCCESS;
        }
    }
    return allocate(bytes, address);
}

namespace {

// The buffer that starts there and has not been freed.
std::optional<engine::AllocationId> live_at(const executor::Core& core, engine::Address address) LMS_LOCKED {
    core.mutex.check_held();
    const auto id = core.residency.allocation_at(address);
    if (!id || core.residency.allocation(*id).address != address || core.residency.allocation(*id).dead)
        return std::nullopt;
    return id;
}

}  // namespace

bool Session::can_free(engine::Address address) {
    const executor::SessionLock lock(core_->mutex);
    return live_at(*core_, address).has_value();
}

CUresult Session::free(engine::Address address) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    const auto id = live_at(core, address);
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    if (core.engine.must_wait_to_remove(*id)) executor::refuse_to_wait_for_oneself(migrator_.get());
    core.engine.kill(*id);  // a second free, while this one waits, finds nothing
    release(core, *id, lock);
    return CUDA_SUCCESS;
}

std::optional<CUresult> Session::wait_beside_captures(CUcontext context) {
    executor::Core& core = *core_;
    {
        executor::SessionLock lock(core.mutex);
        if (!executor::fence_beside_captures(core, context, lock)) return std::nullopt;
        for (const engine::Use& use : core.fences.latest_of_program()) {
            while (const executor::FencePtr fence = core.fences.fence_of(use)) {
                unlocked(lock, [&] { wait_for(*fence, bounds::kStalledWork); });
                executor::poll_completions(core, lock);
            }
        }
    }
    return port_->health();
}

std::optional<CUresult> Session::wait_beside_moves(CUcontext context) {
    executor::Core& core = *core_;
    if (!works_through(context) || !core.under_pressure.load()) return std::nullopt;
    {
        executor::SessionLock lock(core.mutex);
        executor::poll_completions(core, lock);
        if (!core.engine.copies_under_way()) return std::nullopt;
    }
    std::vector<executor::FencePtr> fences;
    if (!executor::fence_streams(core, context, fences)) return std::nullopt;
    for (const executor::FencePtr& fence : fences) {
        while (!wait_for(*fence, bounds::kStalledWork)) {
        }
    }
    return port_->health();
}

CUresult Session::free_on(CUstream stream, engine::Address address, const std::function<void()>& going) {
    executor::Core& core = *core_;
    CUresult recorded = CUDA_SUCCESS;
    executor::FencePtr fence = core.fences.record(stream, &recorded);
    if (!fence) return recorded;
    going();
    executor::SessionLock lock(core.mutex);
    const auto id = live_at(core, address);
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    core.engine.kill(*id);
    core.program_pins.end_of(*id);
    core.telemetry.note_stream_free(*id, stream);
    const StreamKey key = fence->stream();
    core.engine.pending_frees.add(
        {*id, core.fences.add(std::move(fence)), key, core.residency.allocation(*id).bytes});
    executor::poll_completions(core, lock);
    return CUDA_SUCCESS;
}

CUresult Session::visible_memory(device::MemoryInfo& info) {
    executor::SessionLock lock(core_->mutex);
    settle_frees(*core_, lock);
    return executor::visible_memory(*core_, lock, info);
}

}  // namespace lms::session
