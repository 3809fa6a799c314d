#include "shim/session/submit.h"

#include <algorithm>

#include "shim/app/contexts.h"
#include "shim/trace/events.h"

namespace lms::engine {

namespace {

CUcontext context_of(CUstream stream) {
    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) return context_of_known(stream);
    CUcontext context = nullptr;
    return device::driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

}  // namespace

ResidencyGuard::ResidencyGuard(const WorkingSet& reach) {
    held_.reserve(sessions().size());
    const CUcontext context = sessions().size() > 1 ? context_of(reach.stream) : nullptr;
    for (Session* session : sessions()) {
        Work work(&scratch_);
        work.stream = reach.stream;
        work.opaque = reach.opaque;
        // Kernels of GPUs may wait for one another: those that one cannot reach do not hold up its moves.
        work.elsewhere = context && !may_reach(context, session->device());
        work.label = reach.label;
        work.begin_ns = reach.label.empty() ? 0 : trace::now_ns();
        session->name(reach.addresses, reach.ranges, work.needs);
        if (work.elsewhere && work.needs.empty()) continue;
        held_.push_back({session, std::move(work), ChunkPins(&scratch_)});
        Held& held = held_.back();
        status_ = session->acquire(held.work, held.hold);
        if (status_ != CUDA_SUCCESS) {
            held_.pop_back();
            return;
        }
    }
}

ResidencyGuard::~ResidencyGuard() {
    for (const Held& held : held_) held.session->submitted(held.work, held.hold);
}

void ResidencyGuard::suspend() {
    for (const Held& held : held_) held.session->suspend(held.hold);
}

void ResidencyGuard::resume() {
    for (Held& held : held_) {
        const CUresult status = held.session->resume(held.work, held.hold);
        if (status != CUDA_SUCCESS) status_ = status;
    }
}

std::vector<HostCopy> ResidencyGuard::host_copies() const {
    std::vector<HostCopy> copies;
    for (const Held& held : held_) {
        if (!held.hold.in_place.empty()) held.session->host_copies(held.hold, copies);
    }
    std::sort(copies.begin(), copies.end(),
              [](const HostCopy& a, const HostCopy& b) { return a.address < b.address; });
    return copies;
}

void ResidencyGuard::give_up() {
    for (Held& held : held_) held.session->give_up(held.hold);
}

std::uint64_t least_reclaim() {
    std::uint64_t bytes = 1;
    for (const Session* session : sessions()) bytes = std::max(bytes, session->largest_chunk());
    return bytes;
}

std::uint64_t reclaim(std::uint64_t bytes) {
    std::uint64_t given = 0;
    for (Session* session : sessions()) given += session->reclaim(bytes);
    return given;
}

void refresh_budgets() {
    for (Session* session : sessions()) session->look_at_budget();
}

CUresult pin_resident(std::span<const Range> ranges, std::vector<PinnedIn>& kept) {
    std::vector<Range> whole(ranges.begin(), ranges.end());
    for (Range& range : whole) range.overwritten = range.may_stay = false;
    for (Session* session : sessions()) {
        Work work;
        session->name({}, whole, work.needs);
        if (work.needs.empty()) continue;
        PinnedIn one{session, {}};
        const CUresult status = session->pin_resident(work.needs, one.kept);
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

CUresult pin_for_good(std::span<const Range> ranges) {
    std::vector<PinnedIn> kept;
    const CUresult status = pin_resident(ranges, kept);
    for (const PinnedIn& one : kept) one.session->leave_pinned(one.kept);
    return status;
}

}  // namespace lms::engine
