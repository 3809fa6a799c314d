// When copies, and pieces of the program's work, began and ended, as the device saw it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "shim/device/port.h"
#include "shim/util/mutex.h"

namespace lms::device {

// Of one context, which is current in every call that is given a stream, and in collect(). A pair of events
// goes around each; what a device's events tell is the time between two, so one that is known begins all. Any
// thread; no lock is held across a driver call.
class DeviceTimes {
  public:
    struct Pair {
        CUevent begin = nullptr;
        CUevent end = nullptr;
        std::uint64_t asked_ns = 0;
    };

    // An event whose time is known, in a `stream` that is empty: waits for it. Until then nothing is timed.
    void start(CUstream stream);
    // The context is destroyed, or about to be, and its events with it.
    void forget();

    // Around a copy: end() is given what begin() gave.
    Pair begin(CUstream stream);
    void end(Pair pair, CUstream stream, Direction direction, Address destination);
    // Around a piece of work, which has a number from then on; 0: it is not timed, for so many are under way
    // that have been.
    std::uint64_t begin_work(CUstream stream);
    void end_work(std::uint64_t piece, CUstream stream);
    void drop_work(std::uint64_t piece);

    // Looks which are over.
    void collect();
    std::optional<DeviceTime> take(Address destination) { return take(In, destination); }
    std::optional<DeviceTime> take_work(std::uint64_t piece) { return take(OfWork, piece); }

  private:
    static constexpr std::size_t kMostWork = 64;
    enum Lane { In, Out, OfWork };
    using Done = std::unordered_map<std::uint64_t, DeviceTime>;
    struct Timed {
        Pair pair;
        std::uint64_t key;  // a copy's destination; a piece's number
    };

    struct Told {
        bool known = false;
        float begin_ms = 0;
        float end_ms = 0;
        std::uint64_t now_ns = 0;
    };

    static bool ask(const Pair& pair, CUevent known, Told& told);
    void enqueue(Pair pair, CUstream stream, Lane lane, std::uint64_t key);
    void note(const Timed& timed, Lane lane, const Told& told) LMS_REQUIRES(lock_);
    void done_with(CUevent event) LMS_REQUIRES(lock_);
    Done& done_in(Lane lane) LMS_REQUIRES(lock_) { return done_[lane == OfWork ? 1 : 0]; }
    std::optional<DeviceTime> take(Lane lane, std::uint64_t key);

    util::Mutex lock_{util::LockOrder::Leaf};
    // In the order of their streams; work of several, in that in which it was submitted.
    std::array<std::deque<Timed>, 3> pending_ LMS_GUARDED_BY(lock_);
    std::unordered_map<std::uint64_t, Pair> begun_ LMS_GUARDED_BY(lock_);  // pieces of work
    std::uint64_t pieces_ LMS_GUARDED_BY(lock_) = 0;                       // ever
    std::vector<CUevent> free_ LMS_GUARDED_BY(lock_);
    std::array<Done, 2> done_ LMS_GUARDED_BY(lock_);  // copies; work
    CUevent known_ LMS_GUARDED_BY(lock_) = nullptr;
    std::uint64_t known_ns_ LMS_GUARDED_BY(lock_) = 0;
    std::uint64_t starts_ LMS_GUARDED_BY(lock_) = 0;  // and ends of contexts: earlier events no longer exist
    bool collecting_ LMS_GUARDED_BY(lock_) = false;
};

}  // namespace lms::device
