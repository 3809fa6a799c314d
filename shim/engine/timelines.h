// How far each stream has come, as far as anyone has looked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shim/engine/chunk.h"

namespace lms::engine {

// A timeline counts the fences of one stream: position n is complete when the n-th fence has passed, and
// streams are in order, so one number says how far it has come. Not thread-safe; the session's lock guards
// it.
class Timelines {
  public:
    TimelineId create();
    // Positions up to `position` have passed.
    void complete(TimelineId timeline, std::uint64_t position);
    // Position 0 is before everything: finished, whatever the timeline.
    bool finished(const Use& use) const {
        return use.position == 0 || completed_[use.timeline] >= use.position;
    }
    std::uint64_t completed(TimelineId timeline) const { return completed_[timeline]; }

  private:
    std::vector<std::uint64_t> completed_;
};

// Adds `use` to the latest uses per timeline, which are in their order, and drops finished ones now and then.
void record_use_among(std::vector<Use>& uses, Use use, const Timelines& timelines);
inline void record_use(std::vector<Use>& uses, Use use, const Timelines& timelines) {
    // Nearly always one stream uses a chunk, again.
    if (uses.size() == 1 && uses.front().timeline == use.timeline) {
        uses.front().position = std::max(uses.front().position, use.position);
    } else {
        record_use_among(uses, use, timelines);
    }
}

// Whether some are not finished.
inline bool unfinished(const std::vector<Use>& uses, const Timelines& timelines) {
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return !timelines.finished(use); });
}
// Drops finished uses; true when some are left.
bool any_unfinished(std::vector<Use>& uses, const Timelines& timelines);

}  // namespace lms::engine
