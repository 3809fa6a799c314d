// Fences of all streams, the program's and ours, and how far each stream has come.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/device/port.h"
#include "shim/engine/engine.h"
#include "shim/executor/session_lock.h"
#include "shim/util/clock.h"

namespace lms::executor {

using engine::StreamKey;

// One recorded event; or, in a deep launch queue, none: such a fence has passed when its stream is idle.
// Shared, because a thread may wait for it while another sees that it has passed. Who has it alone then may
// record it again (Fences::record).
class Fence {
  public:
    // `entered_before`: how many fences had been entered when this one was about to be recorded.
    Fence(device::Port& port, CUevent event, StreamKey stream, std::uint64_t entered_before)
        : port_(port), event_(event), stream_(stream), entered_before_(entered_before) {}
    // Without an event. A null `asked` is the legacy stream of `context`.
    Fence(device::Port& port, CUstream asked, CUcontext context, StreamKey stream)
        : port_(port), event_(nullptr), asked_(asked), context_(context), stream_(stream) {}
    ~Fence() {
        if (event_) port_.recycle(event_);
    }
    Fence(const Fence&) = delete;
    Fence& operator=(const Fence&) = delete;

    bool passed() const LMS_UNLOCKED;
    // Its stream and the work in it are gone.
    void lapse() { lapsed_ = true; }
    // Null: it has none.
    CUevent event() const { return event_; }
    CUcontext legacy_of() const { return event_ || asked_ ? nullptr : context_; }
    StreamKey stream() const { return stream_; }  // in which it was recorded
    std::uint64_t entered_before() const { return entered_before_.load(std::memory_order_relaxed); }
    void record_again_after(std::uint64_t entered) {
        entered_before_.store(entered, std::memory_order_relaxed);
    }

  private:
    CUresult ask() const LMS_UNLOCKED;

    device::Port& port_;
    CUevent event_;
    CUstream asked_ = nullptr;
    CUcontext context_ = nullptr;
    std::atomic<bool> lapsed_{false};
    StreamKey stream_;
    std::atomic<std::uint64_t> entered_before_{0};  // whoever had it last may have looked just now
};
using FencePtr = std::shared_ptr<Fence>;

class Fences {
  public:
    Fences(device::Port& port, engine::Timelines& timelines) : port_(port), timelines_(timelines) {}

    // The key of `stream`; 0 means the legacy stream (callers have resolved the per-thread forms), and a
    // default stream that of the calling thread's current context.
    StreamKey key_of(CUstream stream) const;

    // That of a context's legacy default stream.
    static StreamKey legacy_key(CUcontext context);
    // That of fences behind all of a context's streams, which pass in their order.
    static StreamKey context_key(CUcontext context);

    // Records a fence in `stream` now, without the session's lock: a spare one, if there is. Null, and the
    // driver's error, when it refused.
    FencePtr record(CUstream stream, CUresult* error = nullptr) LMS_UNLOCKED;
    FencePtr record(CUstream stream, FencePtr spare) LMS_UNLOCKED;
    FencePtr record_legacy(CUcontext context,
                           CUresult* error = nullptr) LMS_UNLOCKED;  // in its legacy default stream
    // Behind what that was given so far, holding up none of what other streams are given. (Each of these two
    // waits for those of the other kind before it: they are of one line.)
    FencePtr record_behind_legacy(CUcontext context) LMS_UNLOCKED;
    // Behind all of the context's streams (Port::record_context).
    FencePtr record_context(CUcontext context) LMS_UNLOCKED;
    // Without an event: the next one of `stream` stands for the work before this too, and where none follows,
    // the idle stream does. Null: others cannot ask that stream. (Per-thread streams, and those that nobody
    // knows.)
    FencePtr leave_open(CUstream stream) const;

    // The calls below need the session's lock.

    // Enters a recorded fence as the newest of its stream; the returned use is finished when it has passed,
    // and all that were entered for that stream before it. Threads that share a stream record their fences
    // without the lock, so the order of entering need not be the stream's: only a fence that was entered
    // before another's recording began is known to come first.
    // `launched_ns`: when the work before it was launched, where a trace is to tell when that is over; else
    // 0.
    engine::Use add(FencePtr fence, std::uint64_t launched_ns = 0) LMS_LOCKED;
    // A fence of that stream's that has passed, for record(): with it neither the port's events nor memory
    // have to be looked for. Null: there is none.
    FencePtr spare(StreamKey stream) LMS_LOCKED;
    // Of the work that was seen to be over since the last call, of each stream the latest.
    std::vector<std::uint64_t> take_over() LMS_LOCKED { return std::exchange(over_, {}); }
    // The stream is gone; another may get the same key, and nothing orders its work after this one's.
    void forget(StreamKey stream) LMS_LOCKED;
    // Whether so much unfinished work is in the stream that its queue may fill up: how many entries that has
    // nobody tells, and each event and wait of the shim's takes one from the program.
    bool is_deep(StreamKey stream) const LMS_LOCKED;
    // Works in it that are not known to be over.
    std::uint64_t unfinished_in(StreamKey stream) const LMS_LOCKED;
    // Whether the next work there is to leave an event all the same: one for each eighth of what is
    // unfinished.
    bool is_due(StreamKey stream) const LMS_LOCKED;
    // Whether some work there has no event behind it.
    bool is_open(StreamKey stream) const LMS_LOCKED;
    // The contexts whose legacy streams are so.
    std::vector<CUcontext> open_legacy() const LMS_LOCKED;
    // The fence whose passing means that `use` is finished; null when it is. Where threads recorded in the
    // stream at once no single one does, and this is the first of those that may: who waits looks again.
    FencePtr fence_of(const engine::Use& use) const LMS_LOCKED;
    // Whether the fence of `use` was entered before the last of those of `others`: whose stream is likely to
    // be there sooner. Finished ones come first.
    bool entered_before(const engine::Use& use, std::span<const engine::Use> others) const LMS_LOCKED;
    // How many came behind that of `use` in its stream.
    std::uint64_t behind(const engine::Use& use) const LMS_LOCKED {
        return lines_[use.timeline].last - use.position;
    }
    // What is finished when all that were entered so far have passed.
    std::vector<engine::Use> latest() const LMS_LOCKED;
    // Of these, the program's: moves wait for nothing, and nobody who waits for the program waits for them.
    std::vector<engine::Use> latest_of_program() const LMS_LOCKED;
    // Of these, that of `stream`; none if it has none.
    std::vector<engine::Use> latest_in(StreamKey stream) const LMS_LOCKED;
    // The oldest that is not known to have passed, of each stream that has one.
    std::vector<engine::Use> oldest() const LMS_LOCKED;
    std::vector<engine::Use> oldest_of_program() const LMS_LOCKED;
    // Looks which fences have passed. Drops `lock`, the session's, while it asks the driver.
    void poll(SessionLock& lock) LMS_LOCKED;
    // Whether so many have been entered since the last look that another is due.
    bool many() const LMS_LOCKED { return pending_ > next_look_; }

  private:
    std::vector<engine::Use> of_program(std::vector<engine::Use> uses) const LMS_LOCKED;
    struct Pending {
        std::uint64_t position;
        std::uint64_t number;  // of all that were ever entered
        FencePtr fence;
        std::uint64_t launched_ns;
        std::uint64_t works;  // ever entered in its line, up to here
        bool passed = false;  // but not all before it

        bool is_open() const { return !fence->event(); }
    };
    struct Line {
        explicit Line(std::pmr::memory_resource* memory) : pending(memory) {}

        std::uint64_t last = 0;
        std::pmr::deque<Pending> pending;  // positions without gaps; the first has not passed
        std::uint64_t works = 0;           // ever entered
        std::uint64_t works_over = 0;      // of them, those that are known to be
        std::uint64_t works_fenced = 0;    // up to the last with an event
        bool takes_spares = false;         // somebody has asked for one since it is that stream's
        std::vector<FencePtr> spares;      // all of one stream, the one whose timeline it is now

        Pending* at(std::uint64_t position) {
            const bool popped = pending.empty() || position < pending.front().position;
            return popped ? nullptr : &pending[position - pending.front().position];
        }
        // The one whose passing tells of the one at `index`: of an open one the first with an event that was
        // recorded after it, if there is one yet.
        std::size_t telling_of(std::size_t index) const;
        bool is_open() const;
        std::uint64_t unfinished() const { return works - works_over; }
    };
    const Line* line_of(StreamKey stream) const LMS_LOCKED;

    static constexpr std::size_t kManyFences = 256;
    // Unfinished works in a stream that any queue has room for several times over.
    static constexpr std::uint64_t kDeep = 16;
    // Of all streams together: those of work under way may be thousands.
    static constexpr std::size_t kMostSpares = 4096;

    template <typename Record>
    FencePtr recorded(StreamKey stream, CUresult* error, Record&& record) LMS_UNLOCKED;
    engine::TimelineId timeline_for_another() LMS_LOCKED;
    // Of each thread that has ended nobody says that its stream is gone.
    void forget_gone() LMS_LOCKED;
    std::uint64_t number_of(const engine::Use& use) const LMS_LOCKED;
    static std::uint64_t note_passed(Line& line, std::uint64_t position, std::uint64_t known);
    void pass(engine::TimelineId timeline, std::uint64_t position) LMS_LOCKED;
    void keep(Line& line, FencePtr passed) LMS_LOCKED;
    void drop_spares(Line& line) LMS_LOCKED;

    device::Port& port_;
    engine::Timelines& timelines_;
    std::unordered_map<StreamKey, engine::TimelineId> ids_ LMS_GUARDED;
    std::pmr::unsynchronized_pool_resource memory_ LMS_GUARDED;  // of what is pending
    std::vector<Line> lines_ LMS_GUARDED;                        // by TimelineId
    std::vector<engine::TimelineId> orphans_ LMS_GUARDED;        // of streams that are gone
    std::vector<std::uint64_t> over_ LMS_GUARDED;                // take_over()
    std::uint64_t known_gone_ LMS_GUARDED = 0;                   // of per-thread streams
    std::atomic<std::uint64_t> entered_{0};
    std::size_t pending_ LMS_GUARDED = 0;  // not yet known to have passed
    std::size_t next_look_ LMS_GUARDED = kManyFences;
    std::size_t spares_ LMS_GUARDED = 0;
};

// Waits until `fence` has passed, so long at most; true when it has. Polls, because a driver wait has no
// bound.
bool wait_for(const Fence& fence, util::Clock::duration most) LMS_UNLOCKED;

}  // namespace lms::executor
