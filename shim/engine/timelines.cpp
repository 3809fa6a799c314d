#include "shim/engine/timelines.h"

#include <algorithm>

namespace lms::engine {

namespace {

constexpr std::size_t kFewUses = 8;  // of which finished ones are dropped each time

}  // namespace

TimelineId Timelines::create() {
    completed_.push_back(0);
    return static_cast<TimelineId>(completed_.size() - 1);
}

void Timelines::complete(TimelineId timeline, std::uint64_t position) {
    completed_[timeline] = std::max(completed_[timeline], position);
}

void record_use_among(std::vector<Use>& uses, Use use, const Timelines& timelines) {
    // Where many streams use it that is looked for once for as many more as are left then.
    if (uses.size() < kFewUses || uses.size() == uses.capacity()) {
        any_unfinished(uses, timelines);
        uses.reserve(std::max(kFewUses, 2 * uses.size()));
    }
    const auto at = std::ranges::lower_bound(uses, use.timeline, {}, &Use::timeline);
    if (at != uses.end() && at->timeline == use.timeline) {
        at->position = std::max(at->position, use.position);
    } else {
        uses.insert(at, use);
    }
}

bool any_unfinished(std::vector<Use>& uses, const Timelines& timelines) {
    std::erase_if(uses, [&](const Use& use) { return timelines.finished(use); });
    return !uses.empty();
}

}  // namespace lms::engine
