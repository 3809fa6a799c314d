#include "shim/session/submit.h"

#include <algorithm>

#include "shim/app/contexts.h"
#include "shim/app/streams.h"
#include "shim/device/scope.h"
#include "shim/session/tool_requests.h"

namespace lms::engine {

CUcontext context_of(CUstream stream) {
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) return context_of_known(stream);
    return device::current_context();
}

ResidencyGuard::ResidencyGuard(const WorkingSet& reach) {
    take_up_requests();
    held_.reserve(sessions().size());
    const CUcontext context = sessions().size() > 1 ? context_of(reach.stream) : nullptr;
    for (Session* session : sessions()) {
        // Kernels of GPUs may wait for one another: those that one cannot reach do not hold up its moves.
        const bool elsewhere = context && !reach.anywhere && !may_reach(context, session->device());
        Held& held = held_.emplace_back(session, Work(reach, elsewhere, &scratch_));
        status_ = session->acquire(held.work);
        if (status_ != CUDA_SUCCESS || held.work.is_nothing()) held_.pop_back();
        if (status_ != CUDA_SUCCESS) return;
    }
}

ResidencyGuard::~ResidencyGuard() {
    for (Held& held : held_) held.session->submitted(held.work);
}

void ResidencyGuard::suspend() {
    for (Held& held : held_) held.session->suspend(held.work);
}

void ResidencyGuard::resume() {
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

std::uint64_t least_reclaim() {
    std::uint64_t bytes = 1;
    for (const Session* session : sessions()) bytes = std::max(bytes, session->largest_chunk());
    return bytes;
}

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

void refresh_budgets() {
    for (Session* session : sessions()) session->look_at_budget();
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
    if (capturing(CU_STREAM_PER_THREAD)) return;
    bool fenced = true;
    for (Session* session : sessions()) fenced &= session->capture_nears(CU_STREAM_PER_THREAD, false);
    if (!fenced) per_thread_streams_unfenced_at.store(captures_since_none());
}

void fence_unseen_work() {
    bool all = true;
    for (Session* session : sessions()) all &= session->fence_all_streams();
    if (!all) fence_own_stream();
}

}  // namespace lms::engine
