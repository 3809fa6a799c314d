// Work that does not get any further, and is not waited for again until it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "shim/engine/engine.h"
#include "shim/executor/core.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::executor {

// What a wait of the whole bound has seen stand still: unfinished work, work from before pressure, and
// threads in the driver. All calls need the session's lock.
class StalledWork {
  public:
    explicit StalledWork(Core& core) : core_(core) {}

    // Of these uses some stands still. Streams are in order: what comes after stalled work stands still too.
    bool includes(const std::vector<engine::Use>& uses) const LMS_LOCKED;
    // Some of the work that may reach any chunk does.
    bool includes_opaque() const LMS_LOCKED;
    // All threads that hold chunks do.
    bool includes_holders() const LMS_LOCKED;

  private:
    friend class BoundedWait;
    // Everything that a wait may be for.
    struct Seen {
        std::vector<engine::Use> oldest;  // unfinished, of each stream
        EarlierWork earlier;
        std::vector<std::uint64_t> submissions;
    };
    Seen look() const LMS_LOCKED;
    void note(Seen seen) LMS_LOCKED;
    bool stands_still(const engine::Submissions::One& one) const;
    bool some_earlier_stands_still() const LMS_LOCKED;

    Core& core_;
    std::vector<engine::Use> uses_;
    EarlierWork earlier_;
    std::vector<std::uint64_t> submissions_;
};

// One wait, in steps, for whatever is in the way: for so long at most that nothing comes of it.
class BoundedWait {
  public:
    explicit BoundedWait(StalledWork& stalled, std::chrono::seconds bound = bounds::kStalledWork)
        : stalled_(stalled), bound_(bound) {
        begin_anew();
    }

    // A step got further.
    void begin_anew();
    // A step waited.
    void waited() LMS_LOCKED;
    // Whether the bound is over; what was there when the first step waited, and is there still, is stalled
    // then.
    bool in_vain() LMS_LOCKED;

  private:
    using Clock = util::Clock;

    StalledWork& stalled_;
    std::chrono::seconds bound_;
    Clock::time_point deadline_;
    std::optional<StalledWork::Seen> seen_;
};

}  // namespace lms::executor
