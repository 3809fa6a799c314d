// Fences of all streams, the app's and ours, and how far each stream has come.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/core/timelines.h"
#include "shim/device/port.h"
#include "shim/migration/session_lock.h"

namespace lms::engine {

// What tells one stream from another: its handle, for a legacy default stream its context, for a per-thread
// one a key of its own.
using StreamKey = std::uint64_t;

// One recorded event. Shared, because a thread may wait for it while another sees that it has passed. Who has
// it alone then may record it again (Fences::record).
class Fence {
  public:
    // `entered_before`: how many fences had been entered when this one was about to be recorded.
    Fence(device::Port& port, CUevent event, StreamKey stream, std::uint64_t entered_before)
        : port_(port), event_(event), stream_(stream), entered_before_(entered_before) {}
    ~Fence() { port_.recycle(event_); }
    Fence(const Fence&) = delete;
    Fence& operator=(const Fence&) = delete;

    bool passed() const;
    CUevent event() const { return event_; }
    StreamKey stream() const { return stream_; }  // in which it was recorded
    std::uint64_t entered_before() const { return entered_before_.load(std::memory_order_relaxed); }
    void record_again_after(std::uint64_t entered) {
        entered_before_.store(entered, std::memory_order_relaxed);
    }

  private:
    device::Port& port_;
    CUevent event_;
    StreamKey stream_;
    std::atomic<std::uint64_t> entered_before_;  // whoever had it last may have looked just now
};
using FencePtr = std::shared_ptr<Fence>;

class Fences {
  public:
    Fences(device::Port& port, core::Timelines& timelines) : port_(port), timelines_(timelines) {}

    // The key of `stream`; 0 means the legacy stream (callers have resolved the per-thread forms), and a
    // default stream that of the calling thread's current context.
    StreamKey key_of(CUstream stream) const;

    // That of a context's legacy default stream.
    static StreamKey legacy_key(CUcontext context);

    // Records a fence in `stream` now, without the session's lock: a spare one, if there is. Null, and the
    // driver's error, when it refused.
    FencePtr record(CUstream stream, CUresult* error = nullptr);
    FencePtr record(CUstream stream, FencePtr spare);
    FencePtr record_legacy(CUcontext context, CUresult* error = nullptr);  // in its legacy default stream
    // Behind what that was given so far, holding up none of what other streams are given. (Each of these two
    // waits for those of the other kind before it: they are of one line.)
    FencePtr record_behind_legacy(CUcontext context);

    // The calls below need the session's lock.

    // Enters a recorded fence as the newest of its stream; the returned use is finished when it has passed,
    // and all that were entered for that stream before it. Threads that share a stream record their fences
    // without the lock, so the order of entering need not be the stream's: only a fence that was entered
    // before another's recording began is known to come first.
    // `launched_ns`: when the work before it was launched, where a trace is to tell when that is over; else
    // 0.
    core::Use add(FencePtr fence, std::uint64_t launched_ns = 0);
    // A fence of that stream's that has passed, for record(): with it neither the port's events nor memory
    // have to be looked for. Null: there is none.
    FencePtr spare(StreamKey stream);
    // Of the work that was seen to be over since the last call, of each stream the latest.
    std::vector<std::uint64_t> take_over() { return std::exchange(over_, {}); }
    // The stream is gone; another may get the same key, and nothing orders its work after this one's.
    void forget(StreamKey stream);
    // The fence whose passing means that `use` is finished; null when it is. Where threads recorded in the
    // stream at once no single one does, and this is the first of those that may: who waits looks again.
    FencePtr fence_of(const core::Use& use) const;
    // Whether the fence of `use` was entered before the last of those of `others`: whose stream is likely to
    // be there sooner. Finished ones come first.
    bool entered_before(const core::Use& use, std::span<const core::Use> others) const;
    // What is finished when all that were entered so far have passed.
    std::vector<core::Use> latest() const;
    // Of these, the program's: moves wait for nothing, and nobody who waits for the program waits for them.
    std::vector<core::Use> latest_of_program() const;
    // Of these, that of `stream`; none if it has none.
    std::vector<core::Use> latest_in(CUstream stream) const;
    // The oldest that is not known to have passed, of each stream that has one.
    std::vector<core::Use> oldest() const;
    // Looks which fences have passed. Drops `lock`, the session's, while it asks the driver.
    void poll(SessionLock& lock);
    // Whether so many have been entered since the last look that another is due.
    bool many() const { return pending_ > next_look_; }

  private:
    struct Pending {
        std::uint64_t position;
        std::uint64_t number;  // of all that were ever entered
        FencePtr fence;
        std::uint64_t launched_ns;
        bool passed = false;  // but not all before it
    };
    struct Line {
        explicit Line(std::pmr::memory_resource* memory) : pending(memory) {}

        std::uint64_t last = 0;
        std::pmr::deque<Pending> pending;  // positions without gaps; the first has not passed
        bool takes_spares = false;         // somebody has asked for one since it is that stream's
        std::vector<FencePtr> spares;      // all of one stream, the one whose timeline it is now

        Pending* at(std::uint64_t position) {
            const bool popped = pending.empty() || position < pending.front().position;
            return popped ? nullptr : &pending[position - pending.front().position];
        }
    };

    static constexpr std::size_t kManyFences = 256;
    // Of all streams together: those of work under way may be thousands.
    static constexpr std::size_t kMostSpares = 4096;

    template <typename Record>
    FencePtr recorded(StreamKey stream, CUresult* error, Record&& record);
    core::TimelineId timeline_for_another();
    // Of each thread that has ended nobody says that its stream is gone.
    void forget_gone();
    std::uint64_t number_of(const core::Use& use) const;
    static std::uint64_t note_passed(Line& line, std::uint64_t position, std::uint64_t known);
    void pass(core::TimelineId timeline, std::uint64_t position);
    void keep(Line& line, FencePtr passed);
    void drop_spares(Line& line);

    device::Port& port_;
    core::Timelines& timelines_;
    std::unordered_map<StreamKey, core::TimelineId> ids_;
    std::pmr::unsynchronized_pool_resource memory_;  // of what is pending
    std::vector<Line> lines_;                        // by TimelineId
    std::vector<core::TimelineId> orphans_;          // of streams that are gone
    std::vector<std::uint64_t> over_;                // take_over()
    std::uint64_t known_gone_ = 0;                   // of per-thread streams
    std::atomic<std::uint64_t> entered_{0};
    std::size_t pending_ = 0;  // not yet known to have passed
    std::size_t next_look_ = kManyFences;
    std::size_t spares_ = 0;
};

// Waits until `fence` has passed, at most until `deadline`; true when it has. Polls, because a driver wait
// has no bound.
bool wait_until(const Fence& fence, std::chrono::steady_clock::time_point deadline);

}  // namespace lms::engine
