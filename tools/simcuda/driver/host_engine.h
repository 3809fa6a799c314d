// Runs host functions, one after another.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

#include "tools/simcuda/driver/random.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class HostEngine {
  public:
    explicit HostEngine(unsigned number) : random_(number) {}
    void add(WorkPtr work);  // thread-safe

  private:
    void loop();

    Random random_;  // the thread's

    std::mutex mutex_;  // guards what follows
    std::condition_variable arrived_;
    std::deque<WorkPtr> queue_;
    bool started_ = false;
};

}  // namespace simcuda::driver
