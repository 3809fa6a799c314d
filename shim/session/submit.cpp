#include "shim/session/submit.h"

#include <algorithm>
#include <optional>

#include "shim/device/scope.h"
#include "shim/program/contexts.h"
#include "shim/program/streams.h"
#include "shim/session/tool_requests.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::session {

CUcontext context_of(CUstream stream) {
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        return program::context_of_known(stream);
    return device::current_context();
}

ResidencyGuard::ResidencyGuard(const WorkingSet& reach) : ResidencyGuard(reach.stream) {
    const device::Together together;
    take_up_requests();
    held_.reserve(sessions().size());
    const CUcontext context = sessions().size() > 1 ? context_of(reach.stream) : nullptr;
    for (Session* session : sessions()) {
        // Kernels of GPUs may wait for one another: those that one cannot reach do not hold up its moves.
        const bool elsewhere = context && !reach.anywhere && !program::may_reach(context, session->device());
        Held& held = held_.emplace_back(session, Work(reach, elsewhere, &scratch_));
        status_ = session->acquire(held.work);
        if (status_ != CUDA_SUCCESS || held.work.is_nothing()) held_.pop_back();
        if (status_ != CUDA_SUCCESS) return;
    }
}

ResidencyGuard::~ResidencyGuard() {
    const device::Together together;
    for (Held& held : held_) {
        if (held.work.submission != 0) held.session->submitted(held.work);
    }
}

void ResidencyGuard::suspend() {
    for (Held& held : held_) held.session->suspend(held.work);
}

void ResidencyGuard::resume() {
    const device::Together together;
    for (Held& held : held_) {
        const CUresult status = held.session->resume(held.work);
        if (status != CUDA_SUCCESS) status_ = status;
    }
}

void ResidencyGuard::refused() {
    for (Held& held : held_) held.work.refused = true;
}

std::vector<HostCopy> ResidencyGuard::host_copies() const {
    std::vector<HostCopy> copies;
    for (const Held& held : held_) held.session->host_copies(held.work, copies);
    std::sort(copies.begin(), copies.end(),
              [](const HostCopy& a, const HostCopy& b) { return a.address < b.address; });
    return copies;
}

void ResidencyGuard::give_up() {
    for (Held& held : held_) held.session->give_up(held.work);
}

AsOne as_one(const WorkingSet& reach) {
    AsOne all = AsOne::Fits;
    for (Session* session : sessions()) {
        const Session::Named named = session->named(reach);
        const bool is_refused = !named.in_place && named.bytes + named.beside_bytes > named.budget_bytes;
        if (!named.lacks || (named.bytes <= named.budget_bytes / 2 && !is_refused)) continue;
        all = std::max(all, named.in_place ? AsOne::InPlace : is_refused ? AsOne::Refused : AsOne::Waits);
    }
    return all;
}

Room room_for(const WorkingSet& reach) {
    Room room = Room::Enough;
    for (Session* session : sessions()) {
        const Session::Named named = session->named(reach);
        if (!named.in_place && named.bytes + named.beside_bytes > named.budget_bytes) return Room::None;
        if (named.in_place && named.bytes + named.aside_bytes > named.budget_bytes / 4 * 3)
            room = Room::Little;
    }
    return room;
}

std::uint64_t unfinished_in(CUstream stream) {
    std::uint64_t works = 0;
    for (Session* session : sessions()) works = std::max(works, session->unfinished_in(stream));
    return works;
}

CUresult pin_resident(std::span<const Range> ranges, std::vector<PinnedIn>& kept) {
    std::vector<Range> whole(ranges.begin(), ranges.end());
    for (Range& range : whole) range.overwritten = range.may_stay = false;
    for (Session* session : sessions()) {
        std::pmr::vector<ChunkRequest> needs;
        session->name({}, whole, needs);
        if (needs.empty()) continue;
        PinnedIn one{session, {}};
        const CUresult status = session->pin_resident(needs, one.kept);
        if (status != CUDA_SUCCESS) {
            let_go(kept);
            return status;
        }
        kept.push_back(std::move(one));
    }
    return CUDA_SUCCESS;
}

void let_go(std::vector<PinnedIn>& kept) {
    for (const PinnedIn& one : kept) one.session->unpin_resident(one.kept);
    kept.clear();
}

void leave_pinned(std::vector<PinnedIn>& kept) {
    for (const PinnedIn& one : kept) one.session->leave_pinned(one.kept);
    kept.clear();
}

void fence_own_stream() {
    if (program::capturing(CU_STREAM_PER_THREAD)) return;
    bool fenced = true;
    for (Session* session : sessions()) fenced &= session->capture_nears(CU_STREAM_PER_THREAD, false);
    if (!fenced) program::per_thread_streams_unfenced_at.store(program::captures_since_none());
}

namespace {

// Bytes to begin with where it is not known how much is wanted: one chunk's.
std::uint64_t least_reclaim() {
    std::uint64_t bytes = 1;
    for (const Session* session : sessions()) bytes = std::max(bytes, session->largest_chunk());
    return bytes;
}

// Makes room for memory that the driver was refused: on the current GPU, and if that has no more, on the
// others (calls name GPUs, too). Returns the bytes that were given up.
std::uint64_t reclaim(std::uint64_t bytes) {
    CUdevice device = 0;
    const bool has_context = device::driver().cuCtxGetDevice(&device) == CUDA_SUCCESS;
    Session* const current = has_context ? session_of(device) : nullptr;
    std::uint64_t given = current ? current->reclaim(bytes) : 0;
    for (Session* session : sessions()) {
        if (session != current && given < bytes) given += session->reclaim(bytes - given);
    }
    return given;
}

// The driver has given out what was made room for.
void refresh_budgets() {
    for (Session* session : sessions()) session->look_at_budget();
}

// Before pressure: behind what such a call gave to any stream, where that can be; else behind what it gave to
// the thread's own, of which no other thread can tell how far it is.
void fence_unseen_work() {
    bool all = true;
    for (Session* session : sessions()) all &= session->fence_all_streams();
    if (!all) fence_own_stream();
}

}  // namespace

CUresult call_again(CUresult status, Call call, GuardsOfCall guards) {
    if (status != CUDA_ERROR_OUT_OF_MEMORY) {
        for (ResidencyGuard* const guard : guards) guard->refused();
        return status;
    }
    // The driver does not say how much it wants: twice as much each time, until there is no more to be had.
    std::uint64_t wanted = least_reclaim();
    // At last what the work itself names makes room, and is used where it goes.
    bool own = false, last = false;
    while (status == CUDA_ERROR_OUT_OF_MEMORY && !last) {
        for (ResidencyGuard* const guard : guards) guard->suspend();
        if (own) {
            for (ResidencyGuard* const guard : guards) guard->give_up();
        }
        const std::uint64_t given = reclaim(wanted);
        for (ResidencyGuard* const guard : guards) guard->resume();
        for (const ResidencyGuard* const guard : guards) {
            if (guard->status() != CUDA_SUCCESS) return guard->status();
        }
        if (given > 0) {
            status = call();
            if (status == CUDA_SUCCESS) refresh_budgets();
        }
        if (given >= wanted) {
            wanted *= 2;
        } else {
            last = own || guards.empty();
            own = true;
        }
    }
    return status;
}

CUresult pin_again(CUresult status, Call call) {
    if (status != CUDA_ERROR_OUT_OF_MEMORY) return status;
    std::uint64_t given = 0;
    for (Session* session : sessions()) given += session->give_back_host(UINT64_MAX);
    if (given > 0) status = call();
    // The GPU's page tables lead to it, too, and take next to nothing.
    if (status == CUDA_ERROR_OUT_OF_MEMORY && reclaim(1) > 0) status = call();
    return status;
}

namespace {

// Of which `take` makes the call that is submitted.
template <typename Take>
CUresult submit_guarded(Look look, Take take) {
    const WorkingSet reach = look();
    ResidencyGuard guard(reach);
    if (guard.status() != CUDA_SUCCESS) return guard.status();
    ResidencyGuard* const only = &guard;
    return call_with_oom_retry([&] { return take(guard); }, {&only, 1});
}

}  // namespace

CUresult submit_after_look(CUstream stream, Look look, Call call) {
    // Captured work does not run now; its graph is looked at when it is launched. Its code is loaded now.
    if (program::capturing(stream)) return call_with_oom_retry(call);
    return submit_guarded(look, [&](const ResidencyGuard&) { return call(); });
}

CUresult submit(CUstream stream, Look look, Call call) {
    CUresult status = CUDA_SUCCESS;
    return try_fast_path(stream, call, status) ? status : submit_after_look(stream, look, call);
}

CUresult submit_in_place(CUstream stream, Look look, util::FunctionRef<CUresult(HostCopies)> call) {
    const auto as_it_is = [&] { return call({}); };
    CUresult status = CUDA_SUCCESS;
    if (try_fast_path(stream, as_it_is, status)) return status;
    if (program::capturing(stream)) return call_with_oom_retry(as_it_is);
    return submit_guarded(look, [&](const ResidencyGuard& guard) { return call(guard.host_copies()); });
}

CUresult submit_unseen(Call call) {
    CUresult status = CUDA_SUCCESS;
    program::streams_unlisted.store(true);
    const auto call_and_fence = [&] {
        const CUresult result = call();
        fence_unseen_work();
        return result;
    };
    if (try_fast_path(CU_STREAM_LEGACY, call_and_fence, status)) return status;
    WorkingSet reach;
    reach.opaque = reach.unseen = reach.anywhere = reach.in_any_stream = true;
    // Which streams it was given could not be asked beside a capture that began meanwhile.
    std::optional<program::CapturesHeldOff> held_off;
    while (!held_off.emplace()) util::pause(bounds::kCapture);
    ResidencyGuard guard(reach);
    ResidencyGuard* const only = &guard;
    status = call_with_oom_retry(call, {&only, 1});
    reach.own_stream_captured = program::capturing(CU_STREAM_PER_THREAD);
    return status;
}

}  // namespace lms::session
