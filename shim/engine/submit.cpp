#include "shim/engine/submit.h"

#include <algorithm>

#include "shim/trace/events.h"

namespace lms::engine {

Admission::Admission(const Reach& reach) {
    held_.reserve(sessions().size());
    for (Session* session : sessions()) {
        Work work(&scratch_);
        work.stream = reach.stream;
        work.opaque = reach.opaque;
        work.label = reach.label;
        work.begin_ns = reach.label.empty() ? 0 : trace::now_ns();
        session->name(reach.addresses, work.needs);
        for (const Range& range : reach.ranges) {
            if (session->spans(range.address)) {
                session->name_range(range.address, range.bytes, range.overwritten, work.needs,
                                    range.may_stay);
            }
        }
        held_.push_back({session, std::move(work), Hold(&scratch_)});
        Held& held = held_.back();
        status_ = session->acquire(held.work, held.hold);
        if (status_ != CUDA_SUCCESS) {
            held_.pop_back();
            return;
        }
    }
}

Admission::~Admission() {
    for (const Held& held : held_) held.session->submitted(held.work, held.hold);
}

void Admission::suspend() {
    for (const Held& held : held_) held.session->suspend(held.hold);
}

void Admission::resume() {
    for (Held& held : held_) {
        const CUresult status = held.session->resume(held.work, held.hold);
        if (status != CUDA_SUCCESS) status_ = status;
    }
}

std::vector<HostCopy> Admission::host_copies() const {
    std::vector<HostCopy> copies;
    for (const Held& held : held_) {
        if (!held.hold.in_place.empty()) held.session->host_copies(held.hold, copies);
    }
    std::sort(copies.begin(), copies.end(),
              [](const HostCopy& a, const HostCopy& b) { return a.address < b.address; });
    return copies;
}

void Admission::give_up() {
    for (Held& held : held_) held.session->give_up(held.hold);
}

std::uint64_t least_relief() {
    std::uint64_t bytes = 1;
    for (const Session* session : sessions()) bytes = std::max(bytes, session->largest_chunk());
    return bytes;
}

std::uint64_t relieve(std::uint64_t bytes) {
    std::uint64_t given = 0;
    for (Session* session : sessions()) given += session->relieve(bytes);
    return given;
}

void room_taken() {
    for (Session* session : sessions()) session->look_at_budget();
}

CUresult keep(std::span<const Range> ranges, std::vector<KeptIn>& kept) {
    for (Session* session : sessions()) {
        Work work;
        for (const Range& range : ranges) {
            if (session->spans(range.address))
                session->name_range(range.address, range.bytes, false, work.needs);
        }
        if (work.needs.empty()) continue;
        KeptIn one{session, {}};
        const CUresult status = session->keep(work.needs, one.kept);
        if (status != CUDA_SUCCESS) {
            let_go(kept);
            return status;
        }
        kept.push_back(std::move(one));
    }
    return CUDA_SUCCESS;
}

void let_go(std::vector<KeptIn>& kept) {
    for (const KeptIn& one : kept) one.session->unkeep(one.kept);
    kept.clear();
}

CUresult keep_for_good(std::span<const Range> ranges) {
    std::vector<KeptIn> kept;
    return keep(ranges, kept);
}

}  // namespace lms::engine
