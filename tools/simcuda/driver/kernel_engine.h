// Runs kernels: several at once, each on at least one thread of its own.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

// A kernel that waits for another must not keep that one from starting: up to SIMCUDA_KERNELS kernels have a
// thread each. Beside these, one helper per further core joins in whatever runs.
class KernelEngine {
  public:
    explicit KernelEngine(unsigned number) : number_(number) {}
    void add(WorkPtr work);  // thread-safe

  private:
    struct Running;

    void lead(unsigned slot);
    void help(unsigned helper);
    void run(const WorkPtr& work, class Random& random);
    std::shared_ptr<Running> join();

    const unsigned number_;

    std::mutex mutex_;  // guards what follows
    std::condition_variable arrived_, running_changed_;
    std::vector<WorkPtr> ready_;
    std::vector<std::shared_ptr<Running>> running_;
    unsigned leaders_ = 0, idle_leaders_ = 0, helpers_ = 0;
};

}  // namespace simcuda::driver
