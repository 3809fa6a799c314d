// How fast copies are seen to go each way, for the trace.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "shim/trace/events.h"

namespace lms::engine {

// Not thread-safe.
class LinkSpeeds {
  public:
    // A copy that way took so long on the device. Whether more is known of the link now, or something else:
    // after the first copy, and then where so many together differ from what was known.
    bool copied(trace::Direction direction, std::uint64_t bytes, std::uint64_t ns) {
        if (bytes == 0 || ns == 0) return false;
        Way& way = ways_[static_cast<std::size_t>(direction)];
        way.bytes += bytes;
        way.ns += ns;
        if (++way.copies < kCopies && way.bytes_per_s > 0) return false;
        const double now = static_cast<double>(way.bytes) * 1e9 / static_cast<double>(way.ns);
        if (way.copies == kCopies) way.bytes = way.ns = way.copies = 0;
        if (std::abs(now - way.bytes_per_s) <= kChange * way.bytes_per_s) return false;
        way.bytes_per_s = now;
        return true;
    }
    // 0: no copy was seen that way.
    std::uint64_t bytes_per_s(trace::Direction direction) const {
        return static_cast<std::uint64_t>(ways_[static_cast<std::size_t>(direction)].bytes_per_s);
    }

  private:
    static constexpr std::uint64_t kCopies = 64;
    static constexpr double kChange = 0.25;

    struct Way {
        std::uint64_t bytes = 0, ns = 0, copies = 0;  // since the last so many
        double bytes_per_s = 0;
    };
    std::array<Way, 2> ways_;
};

}  // namespace lms::engine
