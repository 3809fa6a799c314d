// What the program asks for beside its work: memory kept, brought in or put out, a smaller limit.
#include <algorithm>

#include "shim/engine/chunking.h"
#include "shim/executor/budget.h"
#include "shim/executor/placement.h"
#include "shim/program/fast_path.h"
#include "shim/session/session.h"
#include "shim/telemetry/telemetry.h"
#include "shim/trace/writer.h"

namespace lms::session {

using engine::ChunkId;

std::vector<ChunkRequest> Session::requests_at(engine::Address address, std::uint64_t bytes) {
    std::pmr::vector<ChunkRequest> needs;
    const Range range{.address = address, .bytes = bytes, .only_read = true};
    name({}, std::span(&range, 1), needs);
    return {needs.begin(), needs.end()};
}

Session::Asked Session::bring_in_asked(std::span<const ChunkRequest> needs, ChunkPins& hold,
                                       executor::SessionLock& lock) {
    executor::Core& core = *core_;
    std::uint64_t bytes = core.program_pins.bytes();
    for (const ChunkRequest& need : needs) {
        if (!gone(need, core.residency) && !core.program_pins.has(need.chunk))
            bytes += core.residency.chunk(need.chunk).bytes;
    }
    // The rest has to change places yet.
    if (bytes + 2 * core.engine.largest_cut() > core.engine.budget_bytes()) return Asked::NoRoom;
    if (!migrator_->try_bring_in(needs, hold, lock)) return Asked::Busy;
    return Asked::Done;
}

Session::Asked Session::pin(engine::Address address, std::uint64_t bytes) {
    const std::vector<ChunkRequest> needs = requests_at(address, bytes);
    if (needs.empty()) return Asked::NotManaged;
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    ChunkPins hold;
    const Asked status = bring_in_asked(needs, hold, lock);
    if (status != Asked::Done) return status;
    core.program_pins.begin(address, bytes, hold.pinned);
    let_go(core, hold);
    return Asked::Done;
}

bool Session::unpin(engine::Address address, std::uint64_t bytes) {
    executor::Core& core = *core_;
    const executor::SessionLock lock(core.mutex);
    if (!core.program_pins.end(address, bytes)) return false;
    core.changed.notify_all();
    return true;
}

Session::Asked Session::prefetch(engine::Address address, std::uint64_t bytes) {
    const std::vector<ChunkRequest> needs = requests_at(address, bytes);
    if (needs.empty()) return Asked::NotManaged;
    executor::SessionLock lock(core_->mutex);
    ChunkPins hold;
    core_->engine.touch(needs);
    const Asked status = bring_in_asked(needs, hold, lock);
    if (status == Asked::Done) let_go(*core_, hold);
    return status;
}

namespace {

Session::Asked asked_of(executor::Migrator::Evicted evicted) {
    switch (evicted) {
        case executor::Migrator::Evicted::All:
            return Session::Asked::Done;
        case executor::Migrator::Evicted::NoHostMemory:
            return Session::Asked::NoRoom;
        default:
            return Session::Asked::Busy;
    }
}

}  // namespace

Session::Asked Session::evict(engine::Address address, std::uint64_t bytes) {
    const std::vector<ChunkRequest> needs = requests_at(address, bytes);
    if (needs.empty()) return Asked::NotManaged;
    executor::SessionLock lock(core_->mutex);
    executor::begin_pressure(*core_, lock);
    return asked_of(migrator_->evict(needs, lock));
}

Session::Asked Session::pause() {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    if (core.residency.allocated_bytes() == 0) return Asked::Done;
    executor::begin_pressure(core, lock);
    std::vector<ChunkRequest> all;
    for (const engine::AllocationId id : core.residency.allocations()) {
        if (core.residency.allocation(id).dead) continue;
        for (const ChunkId chunk : core.residency.allocation(id).chunks) {
            const engine::State where = core.residency.chunk(chunk).state;
            if (where == engine::State::OnHost || where == engine::State::Empty) continue;
            all.push_back({chunk, core.residency.chunk(chunk).serial});
        }
    }
    core.paused = true;
    const executor::Migrator::Evicted evicted = migrator_->evict(all, lock);
    for (const ChunkRequest& each : all) {
        if (!gone(each, core.residency) && core.residency.chunk(each.chunk).state == engine::State::OnHost)
            core.set_aside.push_back({.chunk = each.chunk, .serial = each.serial, .written = false});
    }
    // Until it is given back nobody can have it: who needs room waits.
    const executor::Holder holder(core);
    core.device_blocks.trim(UINT64_MAX, lock);
    return asked_of(evicted);
}

void Session::resume_paused() {
    executor::Core& core = *core_;
    executor::SessionLock lock(core.mutex);
    core.paused = false;
    // What does not fit any more, or is held up, comes in when it is needed.
    for (const ChunkRequest& each : std::exchange(core.set_aside, {})) {
        if (gone(each, core.residency)) continue;
        if (core.residency.device_bytes() + core.residency.chunk(each.chunk).bytes >
            core.engine.budget_bytes())
            break;
        ChunkPins hold;
        if (bring_in_asked(std::span(&each, 1), hold, lock) != Asked::Done) break;
        let_go(core, hold);
    }
}

std::vector<WhereBuffer> Session::snapshot() {
    executor::Core& core = *core_;
    const executor::SessionLock lock(core.mutex);
    std::vector<WhereBuffer> all;
    for (const engine::AllocationId id : core.residency.allocations()) {
        const engine::Allocation& buffer = core.residency.allocation(id);
        if (buffer.dead) continue;
        WhereBuffer where{buffer.address, buffer.bytes, 0, 0};
        for (const ChunkId chunk : buffer.chunks) {
            const engine::State at = core.residency.chunk(chunk).state;
            if (at == engine::State::OnHost || at == engine::State::Empty) continue;
            where.resident_bytes += core.residency.chunk(chunk).bytes;
            if (core.program_pins.has(chunk)) where.pinned_bytes += core.residency.chunk(chunk).bytes;
        }
        const auto mapped = core.program_buffers.find(id);
        if (mapped == core.program_buffers.end()) {
            all.push_back(where);
            continue;
        }
        for (const executor::ProgramBuffer::Mapped& view : mapped->second.views) {
            where.address = view.address;
            all.push_back(where);
        }
    }
    return all;
}

void Session::rank_by(std::unique_ptr<engine::Ranking> ranking) {
    executor::SessionLock lock(core_->mutex);
    migrator_->run_quiesced(lock, [&]() LMS_LOCKED {
        core_->engine.rank_by(*ranking);
        ranking_.swap(ranking);
    });
}

void Session::follow_trace() {
    const bool traced = trace::writer() != nullptr;
    bool timed_anyway = false;
    {
        const executor::SessionLock lock(core_->mutex);
        if (traced == core_->telemetry.traced) return;
        timed_anyway = core_->large.timed;
    }
    if (!timed_anyway) traced ? port_->time_copies() : port_->time_no_copies();
    telemetry::note_gpu(core_->device, *port_);
    const executor::SessionLock lock(core_->mutex);
    core_->telemetry.traced = traced;
    // What was under way belongs to no other trace.
    core_->telemetry.samples = {};
    if (!traced) return program::fast_path_gate.reopen();
    // It tells of every launch.
    program::fast_path_gate.close();
    core_->telemetry.note_standing();
}

void Session::look_at_all_work() {
    if (core_->under_pressure.load()) return;
    executor::SessionLock lock(core_->mutex);
    executor::begin_pressure(*core_, lock);
}

void Session::limit_changed() {
    executor::SessionLock lock(core_->mutex);
    executor::refresh_budget(*core_, lock);
    migrator_->keep_to_budget(lock, true);
}

}  // namespace lms::session
