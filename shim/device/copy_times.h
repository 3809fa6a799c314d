// When copies began and ended, as the device saw it.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "shim/device/port.h"
#include "shim/util/mutex.h"

namespace lms::device {

// Of one context, which is current in every call that is given a stream, and in collect(). A pair of events
// goes around each copy; what a device's events tell is the time between two, so one that is known begins
// all. Any thread; no lock is held across a driver call.
class CopyTimes {
  public:
    struct Pair {
        CUevent begin = nullptr;
        CUevent end = nullptr;
        std::uint64_t asked_ns = 0;
    };

    // An event whose time is known, in a `stream` that is empty: waits for it. Until then nothing is timed.
    void start(CUstream stream);
    // The context is gone, or about to go, and its events with it.
    void forget();

    // Around a copy: end() is given what begin() gave.
    Pair begin(CUstream stream);
    void end(Pair pair, CUstream stream, Direction direction, Address destination);

    // Looks which copies are over.
    void collect();
    std::optional<CopyTime> take(Address destination);

  private:
    struct Copy {
        Pair pair;
        Address destination;
        std::uint64_t asked_ns;
    };

    struct Told {
        bool known = false;
        float begin_ms = 0;
        float end_ms = 0;
        std::uint64_t now_ns = 0;
    };

    static bool ask(const Pair& pair, CUevent known, Told& told);
    void note(const Copy& copy, const Told& told) LMS_REQUIRES(lock_);
    void done_with(CUevent event) LMS_REQUIRES(lock_);

    util::Mutex lock_{util::LockOrder::Leaf};
    std::deque<Copy> pending_[2] LMS_GUARDED_BY(lock_);  // by direction, in the order of the stream
    std::vector<CUevent> free_ LMS_GUARDED_BY(lock_);
    std::unordered_map<Address, CopyTime> done_ LMS_GUARDED_BY(lock_);
    CUevent known_ LMS_GUARDED_BY(lock_) = nullptr;
    std::uint64_t known_ns_ LMS_GUARDED_BY(lock_) = 0;
    std::uint64_t starts_ LMS_GUARDED_BY(lock_) = 0;  // and endings of contexts: events of before are gone
    bool collecting_ LMS_GUARDED_BY(lock_) = false;
};

}  // namespace lms::device
