#include "shim/migration/victim_facts.h"

#include "shim/migration/eviction.h"
#include "shim/trace/live_page.h"

namespace lms::engine {

core::Candidate VictimFacts::candidate(core::ChunkId chunk) {
    core::Residency& residency = state_.residency;
    const core::Chunk& one = residency.chunk(chunk);
    // When work ends that is under way nobody knows.
    const bool idle = one.state != core::State::Filling && !residency.in_flight(chunk);
    return {one.bytes, needs_no_copy(state_, chunk), idle ? 0 : core::Candidate::kUnknown};
}

core::Links VictimFacts::links() {
    const core::Timelines& timelines = state_.residency.timelines;
    core::Links links;
    for (const core::ChunkId chunk : state_.filling) {
        if (!timelines.finished(state_.backing[chunk].fill))
            links.queued_in_bytes += state_.residency.chunk(chunk).bytes;
    }
    for (const PendingEviction& each : state_.pending_evictions) {
        if (each.copies && !(each.enqueued && timelines.finished(each.copied)))
            links.queued_out_bytes += each.device.bytes;
    }
    links.in_bytes_per_s = state_.speeds.bytes_per_s(trace::Direction::In);
    links.out_bytes_per_s = state_.speeds.bytes_per_s(trace::Direction::Out);
    return links;
}

void VictimFacts::overruled() {
    trace::add(trace::counters().victims_overruled);
}

}  // namespace lms::engine
