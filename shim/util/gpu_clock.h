// The clock by which processes on one GPU go.
#pragma once

#include <cstdint>

#include "shim/util/clock.h"

namespace lms::util {

struct GpuClock {
    static std::uint64_t machine_ns() noexcept {
        return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
    }

    std::uint64_t (*now_ns)() = machine_ns;
    // Of a simulated GPU with a clock of its own: the processes come in the order of its time when they ask
    // for it, and this is how they wait. Null: the machine's.
    void (*spend_ns)(std::uint64_t) = nullptr;
};

}  // namespace lms::util
