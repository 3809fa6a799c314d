// When work ends in simulated time. Work is done for real, in whatever order that takes; when it has been,
// its time is worked out here: behind what it waited for, on the parts of the GPU that it needs.
//
// Work is timed in the order in which it was submitted, so that it does not matter what was done first. What
// may wait for the program itself does not hold up what was submitted after it.
//
// Where several processes are on the same GPUs (shared/order.h), work is timed in the order in which it
// begins. What is held up by another process has not been timed when these return; keep_order() sees to it
// later.
//
// All of this is guarded by work_mutex, and nothing of it is called unless simulated_time().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

// A part of a GPU that serves one at a time: a direction of its link, its memory, its multiprocessors.
class Resource {
  public:
    // Takes it for `ns`, from `from` on, wherever others have not; pieces may lie between theirs. Returns the
    // end.
    std::uint64_t book(std::uint64_t from, std::uint64_t ns);

    // From now on it is other processes' too. All take it in order of time, so nothing is free before
    // `until`.
    void share(std::atomic<std::uint64_t>& until) { shared_until_ = &until; }

  private:
    std::map<std::uint64_t, std::uint64_t> taken_;  // begin -> end
    std::atomic<std::uint64_t>* shared_until_ = nullptr;
};

// The work is submitted now and comes behind `after`; a step of other work (`within`) when that was
// submitted, and behind what that came behind.
void await_timing(const WorkPtr& work, const std::vector<WorkPtr>& after, const Timing* within);

// Works out the time of what has been done. True when there is nothing left to wait for but what may wait for
// the program; of several processes: but what begins after the calling thread's time.
bool settle_timing();

// When what is held up by another process, or by this one's threads, begins; kNoEnd: nothing is.
std::uint64_t held_up_until();

// The calling thread waits for the work while this is there, which others need to know. The work outlives it.
class AwaitedWork {
  public:
    explicit AwaitedWork(const std::vector<WorkPtr>& works);
    ~AwaitedWork();
    AwaitedWork(const AwaitedWork&) = delete;
    AwaitedWork& operator=(const AwaitedWork&) = delete;

  private:
    const std::vector<WorkPtr>& works_;
};

// What has been waited for long enough is taken to wait for the program.
void stop_awaiting_timing();

// When the first work after `ns` ends, of what is timed; kNoEnd (clock.h) if there is none.
std::uint64_t next_end_after(std::uint64_t ns);

}  // namespace simcuda::driver
