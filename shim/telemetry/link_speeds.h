// How fast copies are seen to go each way, for the trace and who looks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "shim/trace/events.h"

namespace lms::telemetry {

// Not thread-safe.
class LinkSpeeds {
  public:
    // A copy that way took so long on the device. Whether more is known of the link now, or something else:
    // after the first copy, and then where a few together, or more, differ from what was known.
    bool copied(trace::Direction direction, std::uint64_t bytes, std::uint64_t ns) {
        if (bytes == 0 || ns == 0) return false;
        Way& way = ways_[static_cast<std::size_t>(direction)];
        way.bytes += bytes;
        way.ns += ns;
        ++way.ever;
        if (++way.copies != kFew && way.copies < kCopies && way.bytes_per_s > 0) return false;
        const double now = static_cast<double>(way.bytes) * 1e9 / static_cast<double>(way.ns);
        if (way.copies == kCopies) way.bytes = way.ns = way.copies = 0;
        if (std::abs(now - way.bytes_per_s) <= kChange * way.bytes_per_s) return false;
        way.bytes_per_s = now;
        return true;
    }
    // A few have told of each way; or many of one, and it may be that none ever goes the other.
    bool known() const {
        const auto [fewer, more] = std::minmax(ways_[0].ever, ways_[1].ever);
        return fewer >= kFew || more >= 4 * kCopies;
    }
    // 0: no copy was seen that way.
    std::uint64_t bytes_per_s(trace::Direction direction) const {
        return static_cast<std::uint64_t>(ways_[static_cast<std::size_t>(direction)].bytes_per_s);
    }

  private:
    static constexpr std::uint64_t kFew = 8, kCopies = 64;
    static constexpr double kChange = 0.25;

    struct Way {
        std::uint64_t bytes = 0, ns = 0, copies = 0;  // since the last so many
        std::uint64_t ever = 0;                       // copies
        double bytes_per_s = 0;
    };
    std::array<Way, 2> ways_;
};

}  // namespace lms::telemetry
