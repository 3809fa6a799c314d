// A copy engine: copies, fills, waits and writes of single values, and the driver's own steps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tools/simcuda/driver/random.h"
#include "tools/simcuda/driver/shared/turns.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

// One thread that works on all its ready operations at once, a piece of one, then a piece of another, at a
// modelled speed if one is set.
class MemoryEngine {
  public:
    // `link` is what it copies over, if it has a speed.
    MemoryEngine(unsigned number, double gbps, const shared::Link& link = {});
    void add(WorkPtr work);  // thread-safe

  private:
    struct Task;
    enum class Progress { Done, More, Blocked, Spawned };

    void loop();
    Progress step(Task& task);
    Progress step_transfer(Task& task);
    Progress step_value(Task& task);
    Progress step_spawn(Task& task);
    void throttle(std::uint64_t bytes);

    const unsigned number_;
    const double gbps_;
    const shared::Link link_;
    Random random_;                 // the thread's
    std::uint64_t busy_until_ = 0;  // the thread's; ns

    std::mutex mutex_;  // guards what follows
    std::condition_variable arrived_;
    std::vector<WorkPtr> incoming_;
    bool started_ = false;
};

}  // namespace simcuda::driver
