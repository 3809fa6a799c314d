#include "shim/executor/stalled_work.h"

#include <algorithm>
#include <utility>

namespace lms::executor {

bool StalledWork::includes(const std::vector<engine::Use>& uses) const {
    const auto unfinished = [&](const engine::Use& use)
                                LMS_LOCKED { return !core_.residency.timelines.finished(use); };
    return std::ranges::any_of(uses, [&](const engine::Use& use) LMS_LOCKED {
        return unfinished(use) && std::ranges::any_of(uses_, [&](const engine::Use& standing) LMS_LOCKED {
                   return standing.timeline == use.timeline && unfinished(standing);
               });
    });
}

bool StalledWork::stands_still(const engine::Submissions::One& one) const {
    return std::ranges::find(submissions_, one.number) != submissions_.end();
}

bool StalledWork::some_earlier_stands_still() const {
    const EarlierWork& now = core_.earlier;
    if (now.begun != earlier_.begun) return false;
    return (now.entering && earlier_.entering) ||
           std::ranges::any_of(now.streams, [&](const EarlierWork::In& in) {
               return std::ranges::find(earlier_.streams, in.key, &EarlierWork::In::key) !=
                      earlier_.streams.end();
           });
}

bool StalledWork::includes_opaque() const {
    return includes(core_.engine.opaque_uses()) || some_earlier_stands_still() ||
           std::ranges::any_of(
               core_.engine.submissions().under_way(),
               [&](const engine::Submissions::One& one) { return one.opaque && stands_still(one); });
}

bool StalledWork::includes_holders() const {
    return core_.holders == 0 && core_.engine.submissions().any() &&
           std::ranges::all_of(core_.engine.submissions().under_way(),
                               [&](const engine::Submissions::One& one) { return stands_still(one); });
}

StalledWork::Seen StalledWork::look() const {
    core_.mutex.check_held();
    Seen seen{core_.fences.oldest(), core_.earlier, {}};
    for (const engine::Submissions::One& one : core_.engine.submissions().under_way())
        seen.submissions.push_back(one.number);
    return seen;
}

void StalledWork::note(Seen seen) {
    if (engine::any_unfinished(seen.oldest, core_.residency.timelines)) uses_ = std::move(seen.oldest);
    if (core_.earlier.any()) earlier_ = std::move(seen.earlier);
    submissions_ = std::move(seen.submissions);
    std::erase_if(submissions_, [&](std::uint64_t number) LMS_LOCKED {
        return std::ranges::find(core_.engine.submissions().under_way(), number,
                                 &engine::Submissions::One::number) ==
               core_.engine.submissions().under_way().end();
    });
}

void BoundedWait::begin_anew() {
    deadline_ = Clock::now() + bound_;
    seen_.reset();
}

void BoundedWait::waited() {
    if (!seen_) seen_ = stalled_.look();
}

bool BoundedWait::in_vain() {
    if (Clock::now() < deadline_) return false;
    if (seen_) stalled_.note(*std::exchange(seen_, std::nullopt));
    return true;
}

}  // namespace lms::executor
