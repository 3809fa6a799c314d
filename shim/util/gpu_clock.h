// The clock by which processes on one GPU go.
#pragma once

#include <cstdint>

#include "shim/util/clock.h"

namespace lms::util {

struct GpuClock {
    std::uint64_t (*now_ns)() = util::now_ns;
    // Of a simulated GPU with a clock of its own: the processes come in the order of its time when they ask
    // for it, and this is how they wait. Null: the machine's.
    void (*spend_ns)(std::uint64_t) = nullptr;
    // And in place of a thread: `help` is called while the program spends time, and says in how many
    // nanoseconds it is to be called again. Null: no more.
    using Help = std::uint64_t(void* self);
    void (*set_helper)(Help* help, void* self) = nullptr;
};

}  // namespace lms::util
