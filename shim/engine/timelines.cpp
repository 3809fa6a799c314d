#include "shim/engine/timelines.h"

#include <algorithm>

namespace lms::engine {

TimelineId Timelines::create() {
    completed_.push_back(0);
    return static_cast<TimelineId>(completed_.size() - 1);
}

void Timelines::complete(TimelineId timeline, std::uint64_t position) {
    completed_[timeline] = std::max(completed_[timeline], position);
}

void record_use_among(std::vector<Use>& uses, Use use, const Timelines& timelines) {
    std::erase_if(uses, [&](const Use& old) {
        if (old.timeline == use.timeline) use.position = std::max(use.position, old.position);
        return old.timeline == use.timeline || timelines.finished(old);
    });
    uses.push_back(use);
}

bool any_unfinished(std::vector<Use>& uses, const Timelines& timelines) {
    std::erase_if(uses, [&](const Use& use) { return timelines.finished(use); });
    return !uses.empty();
}

}  // namespace lms::engine
