// Which work is timed on the device while a trace is written: few of the launches, and of the program's
// copies those that take their time, for each costs two events.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>

#include "shim/trace/events.h"

namespace lms::telemetry {

// Not thread-safe. By chance, for programs repeat themselves: of those that do so every so many launches,
// one at every so many would tell of the same kernel for ever.
class LaunchSamples {
  public:
    static constexpr std::uint32_t kOneIn = 16;  // on the average
    static constexpr std::uint64_t kLeastCopy = 64 << 10;

    // What a piece of work is: a launch, or without a kernel a copy.
    struct Told {
        std::string kernel;
        trace::Copied copied;
    };

    static bool due(const trace::Copied& copied) {
        return copied.way != trace::CopyWay::Unknown && copied.bytes >= kLeastCopy;
    }
    // Whether the launch at hand is one.
    bool due() {
        if (--until_ > 0) return false;
        until_ = std::uniform_int_distribution<std::uint32_t>(1, 2 * kOneIn - 1)(random_);
        return true;
    }
    // It was submitted, as that piece of work (device::Port).
    void put(std::uint64_t piece, Told work) {
        if (under_way_.size() == kMost) under_way_.pop_front();  // of those the time is never told
        under_way_.emplace_back(piece, std::move(work));
    }
    // Gives them to `told`, first come first, until that returns false.
    template <typename Told>
    void take(Told&& told) {
        while (!under_way_.empty() && told(under_way_.front().first, under_way_.front().second))
            under_way_.pop_front();
    }

  private:
    static constexpr std::size_t kMost = 256;

    std::uint32_t until_ = 1;
    std::minstd_rand random_;
    std::deque<std::pair<std::uint64_t, Told>> under_way_;
};

}  // namespace lms::telemetry
