#include "shim/engine/submit.h"

#include "shim/trace/events.h"

namespace lms::engine {

Admission::Admission(const Reach& reach) {
    for (Session* session : sessions()) {
        Work work;
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
        held_.push_back({session, std::move(work), {}});
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
    for (const Held& held : held_) {
        const CUresult status = held.session->resume(held.work, held.hold);
        if (status != CUDA_SUCCESS) status_ = status;
    }
}

bool relieve() {
    // The driver does not say how much it wanted.
    constexpr std::uint64_t kRelief = 64ull << 20;
    bool relieved = false;
    for (Session* session : sessions()) relieved |= session->relieve(kRelief);
    return relieved;
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
