// When the GPU last had nothing to run for want of what was to come in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shim/engine/ranking.h"
#include "shim/engine/timelines.h"

namespace lms::engine {

// Times are counted in works. Guarded by the session's lock.
class GpuWaits {
  public:
    // A work that ends with `work` was submitted, and waits for the copy in that ends with `fill`; finished:
    // for none.
    void submitted(const Use& work, const Use& fill, const Timelines& timelines) {
        if (!timelines.finished(fill)) waiting_.push_back({work, fill});
    }
    // Work that waits for a copy in is about to be submitted; `works` were before it. `oldest`: of each of
    // the program's streams the oldest work that is not known to be over. The GPU has nothing to run if all
    // of these wait too.
    void look(std::span<const Use> oldest, const Timelines& timelines, std::uint64_t works) {
        std::erase_if(waiting_, [&](const auto& each) { return timelines.finished(each.second); });
        const auto waits = [&](const Use& work) {
            return std::ranges::any_of(waiting_, [&](const auto& each) {
                return each.first.timeline == work.timeline && each.first.position == work.position;
            });
        };
        if (std::ranges::all_of(oldest, waits)) last_ = works;
    }

    // How many of `works` were submitted since; Links::kNever: it always had something to run.
    std::uint64_t works_since(std::uint64_t works) const { return last_ ? works - *last_ : Links::kNever; }

  private:
    std::vector<std::pair<Use, Use>> waiting_;  // works, and the copies in that they wait for
    std::optional<std::uint64_t> last_;         // works then
};

}  // namespace lms::engine
