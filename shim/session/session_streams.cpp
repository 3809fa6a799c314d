// Streams that end, or that a capture is about to begin on: what they were given before is fenced.
#include <algorithm>

#include "shim/executor/placement.h"
#include "shim/program/contexts.h"
#include "shim/program/streams.h"
#include "shim/session/session.h"

namespace lms::session {

// Leaves a fence behind what the stream was given without a look; false if the driver refused. Not where it
// reaches nothing here: another GPU's kernel may wait for one that moves are to make room for.
bool Session::fence_earlier(CUstream stream) {
    executor::Core& core = *core_;
    const bool own = stream == CU_STREAM_PER_THREAD;
    const CUcontext context = own ? port_->current_context() : program::context_of_known(stream);
    if (!program::may_lead_to(context, core.device)) return true;
    const StreamKey key = core.fences.key_of(stream);
    std::uint64_t listing = 0;
    const auto in_it = [&](const EarlierWork::In& in) { return in.key == key && in.listing <= listing; };
    bool earlier = true;
    {
        const executor::SessionLock lock(core.mutex);
        listing = core.earlier.listings;
        // Under pressure its work has fences of its own, but for what was let through and is on its way yet.
        earlier = !core.under_pressure.load() || core.earlier.entering ||
                  std::ranges::any_of(core.earlier.streams, in_it);
        if (!earlier && !core.fences.is_open(key)) return true;
    }
    executor::FencePtr fence = core.fences.record(stream);
    if (!fence) return false;
    executor::SessionLock lock(core.mutex);
    const engine::Use use = core.fences.add(std::move(fence));
    if (earlier) core.engine.opaque_until(use);
    executor::earlier_work_gone(core, in_it);
    if (core.fences.many()) executor::poll_completions(core, lock);
    return true;
}

bool Session::capture_nears(CUstream stream, bool blocking) {
    const bool fenced = fence_earlier(stream);
    executor::SessionLock lock(core_->mutex);
    if (blocking && (!core_->under_pressure.load() || core_->earlier.any()))
        executor::fence_legacy_streams(*core_, lock);
    if (blocking) executor::close_legacy_streams(*core_, lock);
    return fenced;
}

void Session::stream_ends(CUstream stream, bool captured) {
    // Without a fence nobody could tell when its work ends: wait for it here.
    if (!captured && !fence_earlier(stream)) port_->wait_for_stream(stream);
}

void Session::stream_ended(CUstream stream) {
    const executor::SessionLock lock(core_->mutex);
    forget_stream(core_->fences.key_of(stream));
}

// Another stream may get the same key.
void Session::forget_stream(StreamKey key) {
    executor::Core& core = *core_;
    executor::earlier_work_gone(core, [&](const EarlierWork::In& in) { return in.key == key; });
    core.fences.forget(key);
    core.engine.pending_frees.stream_gone(key);
}

void Session::forget_streams(std::span<const CUstream> streams) {
    for (const CUstream stream : streams) forget_stream(core_->fences.key_of(stream));
}

}  // namespace lms::session
