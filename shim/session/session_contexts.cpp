// A session and the contexts of its GPU and of others.
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "shim/executor/block_allocation.h"
#include "shim/executor/budget.h"
#include "shim/executor/placement.h"
#include "shim/executor/self_check.h"
#include "shim/session/session.h"
#include "shim/util/bounds.h"
#include "shim/util/log.h"

namespace lms::session {

namespace {

// Host memory for a chunk that no context takes with it; none, with a line that says so: the host has no
// more.
std::optional<Block> unpinned_block(std::uint64_t bytes) {
    void* const memory = std::malloc(bytes);
    if (!memory) {
        log::error(
            "no host memory: {} bytes of managed memory may be lost with the context that was destroyed",
            bytes);
        return std::nullopt;
    }
    return Block{.place = engine::Place::Host,
                 .pinned = true,
                 .unpinned = true,
                 .alias = reinterpret_cast<engine::Address>(memory),
                 .bytes = bytes};
}

// Waits, while the chunk is to move, for copies that use it where it is.
template <typename IsToMove>
void await_copies(executor::Core& core, engine::ChunkId chunk, IsToMove&& is_to_move,
                  executor::SessionLock& lock) LMS_LOCKED {
    while (is_to_move() && !core.residency.may_come_in(chunk)) {
        core.changed.wait_for(lock, bounds::kQuickGlance);
        executor::poll_completions(core, lock);
    }
}

// Moves what buffers have in host memory that was pinned in another context, or that is not pinned, into
// memory pinned in the one that is worked through now. Nothing else moves meanwhile. What it was in is given
// back at once, so that no more is pinned than one chunk beside what is evicted; where not even that can be,
// the chunk goes by memory that is not pinned, and stays there if need be.
void pin_again(executor::Core& core, executor::SessionLock& lock) LMS_LOCKED {
    core.engine.drop_copies();
    core.host_blocks.trim(UINT64_MAX, lock);
    const engine::BlockPool& pool = core.engine.pool(engine::Place::Host);
    for (const engine::AllocationId id : core.residency.allocations()) {
        const std::vector<engine::ChunkId> chunks = core.residency.allocation(id).chunks;
        for (const engine::ChunkId chunk : chunks) {
            const ChunkRequest need{chunk, core.residency.chunk(chunk).serial};
            const auto is_to_move = [&]() LMS_LOCKED {
                const Block& host = core.backing[chunk].host;
                return is_there(need, core.residency) &&
                       core.residency.chunk(chunk).state == engine::State::OnHost &&
                       (host.unpinned || host.era != pool.era());
            };
            while (is_to_move()) {
                const std::uint64_t bytes = core.residency.chunk(chunk).bytes;
                std::optional<Block> fresh = executor::host_block(core, bytes, lock);
                await_copies(core, chunk, is_to_move, lock);
                const Block host = is_to_move() ? core.backing[chunk].host : Block{};
                if (!fresh && host.bytes != 0 && !host.unpinned) fresh = unpinned_block(bytes);
                if (!fresh) break;
                // Freed meanwhile, it needs none.
                if (host.bytes != 0) {
                    if (!pool.has_ended(host))
                        std::memcpy(reinterpret_cast<void*>(fresh->alias),
                                    reinterpret_cast<const void*>(host.alias), bytes);
                    fresh = core.engine.replace_host(chunk, *fresh);
                }
                core.engine.put(*fresh);
                core.host_blocks.free_unpinned();
                core.host_blocks.trim(0, lock);
            }
        }
    }
    core.host_blocks.trim(UINT64_MAX, lock);
    executor::settle_host(core);
}

// The context that host memory is pinned in ends, and another is worked through already.
void pin_elsewhere(executor::Core& core, executor::SessionLock& lock) LMS_LOCKED {
    core.host_blocks.begin_era();
    while (core.host_blocks.pins_before_era()) core.changed.wait_for(lock, bounds::kQuickGlance);
    pin_again(core, lock);
    core.host_blocks.end_earlier_eras();
}

// What is on the host of memory that no context takes with it, in memory that none does either.
void keep_unpinned(executor::Core& core, executor::SessionLock& lock) LMS_LOCKED {
    core.engine.drop_copies();
    std::vector<ChunkRequest> all;
    for (const auto& [id, buffer] : core.program_buffers) {
        for (const engine::ChunkId chunk : core.residency.allocation(id).chunks)
            all.push_back({chunk, core.residency.chunk(chunk).serial});
    }
    for (const ChunkRequest& need : all) {
        const auto is_to_move = [&]() LMS_LOCKED {
            return is_there(need, core.residency) &&
                   core.residency.chunk(need.chunk).state == engine::State::OnHost &&
                   !core.backing[need.chunk].host.unpinned;
        };
        await_copies(core, need.chunk, is_to_move, lock);
        if (!is_to_move()) continue;
        const Block host = core.backing[need.chunk].host;
        const std::uint64_t bytes = core.residency.chunk(need.chunk).bytes;
        const auto apart = unpinned_block(bytes);
        if (!apart) continue;
        std::memcpy(reinterpret_cast<void*>(apart->alias), reinterpret_cast<const void*>(host.alias), bytes);
        core.engine.replace_host(need.chunk, *apart);
        core.engine.put(host);
    }
}

// Those that moves go in: others' when it works through another context.
std::array<CUstream, 2> streams_of_moves(const device::Port& port) {
    return {port.stream(device::Direction::In), port.stream(device::Direction::Out)};
}

}  // namespace

CUresult Session::admit(CUdevice device) {
    executor::Core& core = *core_;
    const bool is_new = port_->add_peer(device);
    CUresult status = CUDA_SUCCESS;
    executor::SessionLock lock(core.mutex);
    migrator_->run_quiesced(lock, [&]() LMS_LOCKED {
        for (const engine::AllocationId id : core.residency.allocations()) {
            if (core.program_buffers.contains(id)) continue;  // it says itself who may reach it
            const std::vector<engine::ChunkId> chunks = core.residency.allocation(id).chunks;
            for (const engine::ChunkId chunk : chunks) {
                const ChunkRequest need{chunk, core.residency.chunk(chunk).serial};
                const auto where = [&]() LMS_LOCKED { return core.residency.chunk(chunk).state; };
                // New memory, being mapped; before or after the peer was added is not known.
                while (is_there(need, core.residency) && where() == engine::State::Remapping)
                    core.changed.wait_for(lock, bounds::kQuickGlance);
                if (!is_there(need, core.residency) || where() == engine::State::Empty) continue;
                const bool on_host = where() == engine::State::OnHost;
                if (on_host && !port_->maps_host_memory()) continue;
                core.engine.hold_still(chunk);  // its buffer's free waits
                const engine::Chunk& mapped = core.residency.chunk(chunk);
                const engine::Address address = mapped.address;
                const std::uint64_t bytes = mapped.bytes;
                const device::Place place = on_host ? device::Place::Host : device::Place::Device;
                const CUresult one = unlocked(lock, [&] { return port_->admit(address, bytes, place); });
                core.engine.end_still(chunk);
                if (one != CUDA_SUCCESS) status = one;
            }
        }
        core.changed.notify_all();
    });
    // Else whatever moves later would be refused, too.
    if (status != CUDA_SUCCESS && is_new) port_->remove_peer(device);
    return status;
}

CUresult Session::wake(CUcontext context) {
    if (context_) return CUDA_SUCCESS;
    const CUresult status = port_->work_through(context);
    if (status != CUDA_SUCCESS) return status;
    context_ = context;
    executor::SessionLock lock(core_->mutex);
    if (!port_->maps_host_memory()) pin_again(*core_, lock);
    const CUresult refreshed = executor::refresh_budget(*core_, lock);
    if (refreshed == CUDA_SUCCESS) executor::set_trial_block_apart(*core_, lock);
    return refreshed;
}

void Session::see_work_over() {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    core.changed.wait_for(lock, bounds::kOtherThread, [&]() LMS_LOCKED { return !core.earlier.asking; });
    executor::look_at_earlier_work(core, lock);
    executor::poll_completions(core, lock);
}

void Session::context_ending(CUcontext context, CUcontext next) {
    if (!works_through(context)) return;
    executor::SessionLock lock(core_->mutex);
    // A trial moves memory of its own in the context.
    using Trial = executor::Core::Trial;
    const auto trial_is_over = [&]() LMS_LOCKED { return core_->trial != Trial::Running; };
    core_->changed.wait(lock, trial_is_over);
    if (!next && core_->program_buffers.empty()) return;
    migrator_->run_quiesced(lock, [&]() LMS_LOCKED {
        if (!next) {
            if (!port_->maps_host_memory()) keep_unpinned(*core_, lock);
            return;
        }
        const auto before = streams_of_moves(*port_);
        // Another may have begun while the turn was waited for; none does while the context is changed.
        core_->changed.wait(lock, trial_is_over);
        const Trial trial = std::exchange(core_->trial, Trial::Running);
        const CUresult status = unlocked(lock, [&] { return port_->work_through(next); });
        core_->trial = trial;
        core_->changed.notify_all();
        if (status != CUDA_SUCCESS) {
            log::error("GPU {}: its last context is destroyed (error {}): managed memory cannot move",
                       device(), static_cast<int>(status));
            return;
        }
        context_ = next;
        forget_streams(before);
        if (!port_->maps_host_memory()) pin_elsewhere(*core_, lock);
    });
}

void Session::context_stays(CUcontext context) {
    if (!works_through(context) || port_->maps_host_memory()) return;
    executor::SessionLock lock(core_->mutex);
    if (!core_->program_buffers.empty())
        migrator_->run_quiesced(lock, [&]() LMS_LOCKED { pin_again(*core_, lock); });
}

std::vector<Buffer> Session::buffers_of(CUcontext context) {
    const executor::SessionLock lock(core_->mutex);
    std::vector<Buffer> buffers;
    for (const engine::AllocationId id : core_->residency.allocations()) {
        const engine::Allocation& buffer = core_->residency.allocation(id);
        const CUcontext owner = core_->owners[id];
        if (core_->program_buffers.contains(id)) continue;  // of no context
        if (owner == context || works_through(context))
            buffers.push_back({buffer.address, buffer.bytes, owner});
    }
    return buffers;
}

void Session::context_gone(CUcontext context, std::span<const CUstream> streams) {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    const bool last = works_through(context);
    if (last) {
        context_ = nullptr;
        forget_streams(streams_of_moves(*port_));
    }
    port_->leave(context);
    executor::earlier_work_gone(core, [&](const EarlierWork::In& in) { return in.context == context; });
    forget_stream(executor::Fences::legacy_key(context));
    forget_stream(executor::Fences::context_key(context));
    forget_streams(streams);
    executor::poll_completions(core, lock);
    // All of them at once, before the lock is dropped: others give back what they find freed.
    std::vector<engine::AllocationId> going;
    for (const engine::AllocationId id : core.residency.allocations()) {
        if (core.program_buffers.contains(id) || (!last && core.owners[id] != context)) continue;
        const bool freed = core.residency.allocation(id).dead;
        if (freed && !core.engine.pending_frees.remove(id)) continue;  // somebody is giving it back
        if (!freed) core.engine.kill(id);
        going.push_back(id);
    }
    for (const engine::AllocationId id : going) release(core, id, lock);
    if (last) rest(lock);
}

// Without a context: what it took is given back, and it begins anew.
void Session::rest(executor::SessionLock& lock) {
    executor::Core& core = *core_;
    // Memory that no context takes with it is where it is, and is to be looked at still.
    if (core.program_buffers.empty()) executor::end_pressure(core);
    core.engine.all_work_is_over();
    core.earlier = {.begun = core.earlier.begun, .listings = core.earlier.listings};
    executor::poll_completions(core, lock);
    core.engine.drop_copies();
    executor::give_back_trial_block(core);
    core.device_blocks.trim(UINT64_MAX, lock);
    if (port_->maps_host_memory()) {
        core.host_blocks.trim(UINT64_MAX, lock);
    } else {
        core.host_blocks.begin_era();
        core.host_blocks.end_earlier_eras();
    }
    unlocked(lock, [&] { port_->settle(); });
    executor::settle_host(core);
}

}  // namespace lms::session
