// Work between its being announced and its being submitted.
#include <algorithm>
#include <utility>

#include "shim/executor/block_allocation.h"
#include "shim/executor/budget.h"
#include "shim/executor/eviction.h"
#include "shim/executor/guards.h"
#include "shim/executor/placement.h"
#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/program/per_thread_streams.h"
#include "shim/session/session.h"
#include "shim/telemetry/telemetry.h"
#include "shim/trace/stats.h"
#include "shim/trace/writer.h"
#include "shim/util/bounds.h"

namespace lms::session {

using engine::ChunkId;

namespace {

bool is_told(const executor::Core& core, const ChunkRequest& need) LMS_LOCKED {
    return !need.aside && !gone(need, core.residency);
}

std::uint8_t access_of(const ChunkRequest& need) {
    if (!need.written) return engine::kAccessRead;
    if (!need.unread) return engine::kAccessUnknown;
    return need.overwritten ? engine::kAccessWritten | engine::kAccessWhole : engine::kAccessWritten;
}

// For the trace. A copy from host memory to host memory, where evicted memory is used in place, loads no
// link.
bool is_timed(executor::Core& core, const WorkingSet& reach, const ChunkPins& hold) LMS_LOCKED {
    if (!reach.label.empty()) return core.telemetry.samples.due();
    return hold.in_place.empty() && telemetry::LaunchSamples::due(reach.copied);
}

// Whether `stream` is the legacy one, and a capture elsewhere forbids its use.
bool forbids(device::Port& port, CUstream stream) {
    return stream == CU_STREAM_LEGACY && program::capturing_anywhere() &&
           device::about_capture(port.query_legacy(port.current_context()));
}

// Whether it is to leave a fence behind.
bool leaves_fence(const ChunkPins& hold) {
    return !hold.pinned.empty() || !hold.in_place.empty() || hold.opaque || hold.unseen || hold.fenced;
}

}  // namespace

// For plugins alone: what is built in asks for nothing of it.
[[gnu::noinline]] void Session::tell_more(const Work& work, StreamKey stream, std::span<const ChunkId> told) {
    scratch_.accesses.clear();
    for (const ChunkRequest& need : work.needs) {
        if (is_told(*core_, need)) scratch_.accesses.push_back(access_of(need));
    }
    const engine::WorkFacts facts{stream, reinterpret_cast<std::uintptr_t>(work.reach.code),
                                  scratch_.accesses};
    core_->engine.work(told, &facts);
}

void Session::tell_policy(const Work& work, StreamKey stream) {
    executor::Core& core = *core_;
    if (scratch_.told.size() < work.needs.size()) scratch_.told.resize(work.needs.size());
    ChunkId* const begin = scratch_.told.data();
    ChunkId* end = begin;
    for (const ChunkRequest& need : work.needs) {
        if (is_told(core, need)) *end++ = need.chunk;
    }
    if (core.residency.wants_facts()) [[unlikely]]
        return tell_more(work, stream, {begin, end});
    core.engine.work({begin, end}, nullptr);
}

Session::Named Session::named(const WorkingSet& reach) {
    const executor::Core& core = *core_;
    const executor::SessionLock lock(core_->mutex);
    std::pmr::vector<ChunkRequest> needs;
    find(reach.addresses, reach.only_read, reach.ranges, needs);
    Named named;
    named.budget_bytes = executor::budget_in_turn(core);
    named.in_place = port_->maps_host_memory() && !core.in_place_lost;
    if (!named.in_place) named.beside_bytes = core.residency.kept_bytes();
    for (const ChunkRequest& need : needs) {
        if (gone(need, core.residency)) continue;
        const engine::Chunk& chunk = core.residency.chunk(need.chunk);
        (need.aside ? named.aside_bytes : named.bytes) += chunk.bytes;
        named.lacks |= !need.aside && chunk.state == engine::State::OnHost;
        if (!named.in_place && chunk.keeps > 0) named.beside_bytes -= chunk.bytes;
    }
    return named;
}

CUresult Session::acquire(Work& work) {
    executor::Core& core = *core_;
    if (work.reach.in_any_stream) return begin_unseen(work);
    const StreamKey stream = core.fences.key_of(work.reach.stream);
    executor::FencePtr filled;
    CUresult status = CUDA_SUCCESS;
    bool timed = false;
    if (trace::writer()) work.begin_ns = trace::now_ns();
    work.hold.kernel = work.reach.label;
    {
        executor::SessionLock lock(core.mutex);
        find(work.reach.addresses, work.reach.only_read, work.reach.ranges, work.needs);
        if (work.is_nothing()) return CUDA_SUCCESS;
        work.timed = executor::choose_place(core, work.reach.code, work.needs);
        if (work.timed.kind != 0 && !core.large.timed) {
            core.large.timed = true;
            unlocked(lock, [&] { port_->time_copies(); });
        }
        const bool opaque = work.reach.opaque || core.settings.safety == Safety::Strict;
        work.hold.opaque = opaque && !work.elsewhere && core.settings.safety != Safety::Args;
        work.hold.unseen = work.reach.unseen && !work.elsewhere;
        if (!port_->maps_host_memory()) {
            for (const ChunkRequest& need : work.needs) give_host_memory(need, lock);
        }
        tell_policy(work, stream);
        if (!work.needs.empty()) core.paused = false;
        if (executor::excess_bytes(core) > 0) migrator_->keep_to_budget(lock, false);
        status = migrator_->bring_in(work.needs, work.hold, lock);
        while (status == CUDA_ERROR_OUT_OF_MEMORY && core.program_pins.give_up())
            status = migrator_->bring_in(work.needs, work.hold, lock);
        if (status != CUDA_SUCCESS) return status;
        // Before the lock may be let go of: what is held has a holder whom others see.
        work.submission = core.engine.begin_submission(work.hold.opaque, work.hold.unseen);
        look_at_depth(work, stream, lock);
        // A fence that is recorded while others are on their way to the driver does not stand for them.
        work.listing = core.earlier.entering ? 0 : core.earlier.listings;
        work.hold.fenced = core.earlier.any();
        if (work.timed.kind != 0) executor::note_in_place(core.residency, work.needs, work.timed);
        timed = work.timed.kind != 0 ||
                (core.telemetry.traced && work.begin_ns > 0 && is_timed(core, work.reach, work.hold));
        filled = announce(work, lock);
        work.leaves_event |= work.hold.fenced;
        if (leaves_fence(work.hold) && work.leaves_event) work.spare = core.fences.spare(stream);
    }
    status = wait_for_fill(work, filled);
    if (status != CUDA_SUCCESS) {
        submitted(work);
    } else if (timed && !work.deep && !forbids(*port_, work.reach.stream)) {
        work.timing = port_->begin_timing(work.reach.stream);
    }
    return status;
}

// The program may fill a stream's queue behind a gate that it opens later: into a deep one the shim puts next
// to nothing.
void Session::look_at_depth(Work& work, StreamKey stream, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    if (!core.fences.is_deep(stream)) return;
    // Nobody may have looked for long.
    executor::poll_completions(core, lock);
    work.deep = core.fences.is_deep(stream);
    work.leaves_event = !work.deep || core.fences.is_due(stream) || core.settings.check;
}

// Memory that nobody has written yet, and that need not come in, gets its place on the host; where the host
// has none left, it comes in.
void Session::give_host_memory(const ChunkRequest& need, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    const auto untouched = [&]() LMS_LOCKED {
        return need.may_stay && !gone(need, core.residency) &&
               core.residency.chunk(need.chunk).state == engine::State::Empty;
    };
    if (!untouched()) return;
    const auto block = host_block(core, core.residency.chunk(need.chunk).bytes, lock);
    if (!block) return;
    executor::poison(core.settings, *block);
    if (!untouched()) {
        core.engine.put(*block);
    } else if (core.engine.back_by_host(need.chunk, *block)) {
        note_levels(core);
    }
}

void Session::host_copies(const Work& work, std::vector<HostCopy>& copies) {
    if (work.hold.in_place.empty()) return;
    const executor::SessionLock lock(core_->mutex);
    for (const ChunkId id : work.hold.in_place) {
        const engine::Chunk& chunk = core_->residency.chunk(id);
        const Block& host = core_->backing[id].host;
        if (!host.pinned) continue;
        for (const executor::MappedAt& at : addresses_of(*core_, id))
            copies.push_back({at.address, chunk.bytes, host.alias});
    }
}

// The work is about to be submitted: from here on nothing moves that it may reach. What its stream is to wait
// for: it has just come in, or comes still.
executor::FencePtr Session::announce(Work& work, executor::SessionLock& lock) {
    executor::Core& core = *core_;
    core.changed.wait(lock, [&]() LMS_LOCKED { return core.engine.may_announce(work.hold.opaque); });
    core.engine.announce(work.needs, work.hold);
    if (core.residency.timelines.finished(work.hold.fill)) return nullptr;
    core.engine.note_wait(core.fences.oldest_of_program());
    return core.fences.fence_of(work.hold.fill);
}

CUresult Session::wait_for_fill(const Work& work, const executor::FencePtr& fence) {
    if (!fence) return CUDA_SUCCESS;
    const CUstream stream = work.reach.stream;
    // A stream that a capture forbids runs nothing, but to ask it to wait would end that capture.
    const bool waits = !work.deep && !forbids(*port_, stream);
    const CUresult status = waits ? port_->wait_in_stream(stream, fence->event()) : port_->health();
    if ((waits && status == CUDA_SUCCESS) || device::refuses_all(status)) return status;
    // The host waits instead: a copy in waits for nobody. If it is the stream that does not exist, the driver
    // says so of the work.
    while (!wait_for(*fence, bounds::kStalledWork)) {
    }
    return CUDA_SUCCESS;
}

// A call that nobody knows: what it may give work to is told afterwards, stream by stream.
CUresult Session::begin_unseen(Work& work) {
    executor::Core& core = *core_;
    work.hold.opaque = core.settings.safety != Safety::Args;
    work.hold.unseen = true;
    work.deep = true;  // no stream can be made to wait
    work.forbidden = executor::forbidden_legacy(core);
    executor::FencePtr filled;
    {
        executor::SessionLock lock(core.mutex);
        work.submission = core.engine.begin_submission(work.hold.opaque, work.hold.unseen);
        filled = announce(work, lock);
    }
    const CUresult status = wait_for_fill(work, filled);
    if (status != CUDA_SUCCESS) end_unseen(work);
    return status;
}

void Session::end_unseen(const Work& work) {
    executor::Core& core = *core_;
    const bool all = work.hold.opaque && fence_all_streams();
    // Of the thread's own stream no other thread can tell how far it is, but by the legacy stream.
    executor::FencePtr own;
    if (!all && !work.reach.own_stream_captured &&
        program::may_reach(port_->current_context(), core.device)) {
        own = core.fences.record(CU_STREAM_PER_THREAD);
        if (!own) program::per_thread_streams_used.store(true);
    }
    executor::SessionLock lock(core.mutex);
    if (own && work.hold.opaque) core.engine.opaque_until(core.fences.add(std::move(own)));
    // Also where the driver refused it: nobody knows what its answers mean.
    if (work.hold.opaque && !all && core.under_pressure.load())
        executor::unseen_work_came(core, work.forbidden, lock);
    core.engine.end_submission(work.submission);
    core.changed.notify_all();
}

bool Session::fence_all_streams() {
    executor::Core& core = *core_;
    std::vector<executor::FencePtr> fences;
    const bool all = executor::fence_contexts(core, fences);
    executor::SessionLock lock(core.mutex);
    executor::count_as_opaque(core, fences);
    if (core.fences.many()) executor::poll_completions(core, lock);
    return all;
}

void Session::suspend(Work& work) {
    // It would tell of what happens meanwhile.
    if (work.timing != 0) port_->drop_timing(std::exchange(work.timing, 0));
    const executor::SessionLock lock(core_->mutex);
    core_->engine.end_submission(work.submission);
    core_->changed.notify_all();
}

void Session::give_up(Work& work) {
    if (!port_->maps_host_memory()) return;
    const executor::SessionLock lock(core_->mutex);
    drop(*core_, work.hold);
}

CUresult Session::resume(Work& work) {
    ChunkPins& hold = work.hold;
    executor::FencePtr filled;
    {
        executor::SessionLock lock(core_->mutex);
        if (hold.pinned.empty() && hold.in_place.empty()) migrator_->hold_anywhere(work.needs, hold, lock);
        work.submission = core_->engine.begin_submission(hold.opaque, hold.unseen);
        filled = announce(work, lock);
    }
    return wait_for_fill(work, filled);
}

void Session::submitted(Work& work) {
    if (work.reach.in_any_stream) return end_unseen(work);
    executor::Core& core = *core_;
    const ChunkPins& hold = work.hold;
    const bool wanted = leaves_fence(hold) || core.reached.load() > 0;
    // A fence where a capture forbids it would end that capture.
    const bool forbidden = wanted && forbids(*port_, work.reach.stream);
    const bool used = wanted && !forbidden;
    executor::FencePtr fence;
    if (work.timing != 0) port_->end_timing(work.timing, work.reach.stream);
    if (used) {
        if (!work.leaves_event) fence = core.fences.leave_open(work.reach.stream);
        if (!fence) fence = core.fences.record(work.reach.stream, std::move(work.spare));
        // Without a fence nobody could tell when the work ends: wait for it here.
        if (!fence) port_->wait_for_stream(work.reach.stream);
    }
    if (used && core.settings.check) executor::name_fault(*port_, fence, work.reach.label);
    const bool open = forbidden && !work.refused;
    const CUcontext context = open ? port_->current_context() : nullptr;
    trace::refresh_counters();
    executor::SessionLock lock(core.mutex);
    if (open) executor::leave_legacy_open(core, context);
    std::optional<engine::Use> end;
    if (fence) end = core.fences.add(fence, work.begin_ns);
    core.engine.submitted(hold, end);
    if (fence) executor::stands_for_earlier_work(core, fence->stream(), work.listing, *end);
    core.engine.end_submission(work.submission);
    if (work.begin_ns > 0) {
        const WorkingSet& reach = work.reach;
        core.telemetry.note_launch(reach.label, reach.copied, reach.stream, work.needs, hold, work.begin_ns);
        if (work.timing != 0 && work.timed.kind == 0)
            core.telemetry.samples.put(work.timing, {reach.label, reach.copied});
    }
    if (work.timing != 0 && work.timed.kind != 0) core.large.submitted(work.timing, work.timed);
    if (!core.large.under_way.empty()) core.large.take_times(*port_);
    let_go(core, hold);
    // Keeps the list of fences short where nothing moves and nobody else looks. A copy that the host waited
    // for may be the last that it does.
    const bool timed_copy = work.timing != 0 && work.reach.copied.way != trace::CopyWay::Unknown;
    if (timed_copy || core.fences.many()) executor::poll_completions(core, lock);
    if (!hold.pinned.empty()) migrator_->move_ahead(lock);
    if (work.begin_ns > 0) executor::look_at_unmanaged(core, lock);
}

bool Session::move_ahead() {
    if (!core_->under_pressure.load()) return false;
    executor::SessionLock lock(core_->mutex);
    if (core_->paused) return false;
    return migrator_->move_ahead(lock);
}

std::vector<engine::Use> Session::given(CUstream stream) {
    if (!core_->under_pressure.load()) return {};
    const StreamKey key = core_->fences.key_of(stream);
    const executor::SessionLock lock(core_->mutex);
    return core_->fences.latest_in(key);
}

std::vector<engine::Use> Session::given() {
    if (!core_->under_pressure.load()) return {};
    const executor::SessionLock lock(core_->mutex);
    return core_->fences.latest_of_program();
}

void Session::waited() {
    executor::SessionLock lock(core_->mutex);
    if (core_->telemetry.traced) executor::poll_completions(*core_, lock);
}

std::uint64_t Session::unfinished_in(CUstream stream) {
    executor::Core& core = *core_;
    const StreamKey key = core.fences.key_of(stream);
    executor::SessionLock lock(core.mutex);
    executor::poll_completions(core, lock);
    return core.fences.unfinished_in(key);
}

bool Session::unfinished(std::vector<engine::Use>& given) {
    executor::SessionLock lock(core_->mutex);
    executor::poll_completions(*core_, lock);
    return engine::any_unfinished(given, core_->residency.timelines);
}

}  // namespace lms::session
