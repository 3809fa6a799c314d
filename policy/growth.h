// How much more memory the program is foretold to have in use, and until when.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policy/repetition.h"

namespace lms::policy {

// Pure; the caller serialises. look() may throw std::bad_alloc. What it saw is kept for a share of the events
// that it looks at, so that an event costs the same however many those are.
class Growth {
  public:
    using Position = Repetition::Position;

    void look(const Repetition& repetition) {
        const Position now = repetition.place();
        const bool passed = !peaks_.empty() && peaks_.back().at <= now;
        if (epoch_ == repetition.epoch() && now < look_again_ && !passed) return;
        const Position events = std::min(repetition.lag(), kEvents);
        epoch_ = repetition.epoch();
        look_again_ = now + events / kLooks + 1;
        peaks_.clear();
        std::uint64_t most = 0;
        for (Position at = now + 1; at <= now + events; ++at) {
            const std::uint64_t bytes = repetition.bytes_in_use(at);
            if (bytes > most) peaks_.push_back({at, most = bytes});
        }
    }

    // Bytes more than at `now` that are in use before the event `at`, at most.
    std::uint64_t before(Position at, std::uint64_t now_bytes) const {
        const auto after = std::lower_bound(peaks_.begin(), peaks_.end(), at,
                                            [](const Peak& peak, Position end) { return peak.at < end; });
        const std::uint64_t most = after == peaks_.begin() ? 0 : std::prev(after)->bytes;
        return most - std::min(most, now_bytes);
    }

  private:
    struct Peak {
        Position at;
        std::uint64_t bytes;
    };
    static constexpr Position kEvents = 4096, kLooks = 32;

    std::vector<Peak> peaks_;  // each higher than those before it
    std::uint64_t epoch_ = ~std::uint64_t{0};
    Position look_again_ = 0;
};

}  // namespace lms::policy
