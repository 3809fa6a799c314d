// What is known to have happened before what.
//
// Every operation has a place: a lane (the stream, and the thread that submitted it) and a number in it. A
// clock says for each lane up to which number everything is over. A race-free program is one whose operations
// on a buffer are ordered; where the clocks do not show that, the machine adds a wait before it submits. So a
// program is given the least order that makes its result one, and the shim may rely on no more.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tests/random/driver.h"
#include "tests/random/ops.h"

namespace rnd {

constexpr unsigned kSlots = kPerThread + kThreads;  // streams, with each thread's own
constexpr unsigned kLanes = kSlots * kThreads;

inline unsigned lane(unsigned slot, unsigned thread) {
    return slot * kThreads + thread;
}

struct Clock {
    std::array<std::uint32_t, kLanes> at{};

    void join(const Clock& other) {
        for (unsigned i = 0; i < kLanes; ++i) at[i] = std::max(at[i], other.at[i]);
    }
    bool covers(const Clock& other) const {
        for (unsigned i = 0; i < kLanes; ++i) {
            if (at[i] < other.at[i]) return false;
        }
        return true;
    }
};

enum class Mode : std::uint8_t { Read, Write, Add };

// The latest uses of one buffer. Additions commute with each other only.
struct Uses {
    Clock writes, adds, reads;

    Clock before(Mode mode) const {
        Clock need = writes;
        if (mode != Mode::Add) need.join(adds);
        if (mode != Mode::Read) need.join(reads);
        return need;
    }
    void note(Mode mode, unsigned in, std::uint32_t number) {
        if (mode == Mode::Write) *this = {};
        (mode == Mode::Write ? writes : mode == Mode::Add ? adds : reads).at[in] = number;
    }
};

// What a stream had been given when it was lost sight of (destroyed, capturing, another thread's for a
// while).
struct Grave {
    CUevent event;
    unsigned slot;
    Clock clock;
};

// What one thread knows; threads that take turns share one.
struct View {
    Clock host;                           // what the host has waited for
    std::array<Clock, kSlots> streams{};  // what comes before the next operation of each
    std::array<Clock, kSlots> done{};     // the same as of its last operation that was no wait
    std::vector<Grave> graves;

    void join(const View& other, std::size_t graves_before) {
        host.join(other.host);
        for (unsigned slot = 0; slot < kSlots; ++slot) {
            streams[slot].join(other.streams[slot]);
            done[slot].join(other.done[slot]);
        }
        graves.insert(graves.end(), other.graves.begin() + static_cast<std::ptrdiff_t>(graves_before),
                      other.graves.end());
    }
};

}  // namespace rnd
