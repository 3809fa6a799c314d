// Order and engines. Work waits for what it depends on, then goes to the engine of its kind.
//
// LOCKING: one mutex (work_mutex) guards the order of all work of all devices, since events tie devices
// together; it is held for moments only. Each engine has a mutex of its own for its queue, taken inside or
// outside work_mutex's critical sections only to push one element.
#pragma once

#include <mutex>
#include <vector>

#include "tools/simcuda/driver/cost.h"
#include "tools/simcuda/driver/host_engine.h"
#include "tools/simcuda/driver/kernel_engine.h"
#include "tools/simcuda/driver/memory_engine.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

std::mutex& work_mutex();

// The engines of one device. Their threads start with their first work and live as long as the process.
class Scheduler {
  public:
    explicit Scheduler(unsigned device);

    // Gives work whose turn has come to its engine. Markers have none and never come here.
    void dispatch(const WorkPtr& work);

    GpuResources& resources() { return resources_; }

    // Whether one more kernel may begin early: of those that run at once half may, for they may wait for the
    // others. work_mutex must be held.
    bool begin_early();
    void end_early() { --early_; }

  private:
    MemoryEngine host_to_device_, device_to_host_, on_device_;
    KernelEngine kernels_;
    HostEngine host_;
    GpuResources resources_;  // simulated time: what works take
    unsigned early_ = 0;
};

// Where processes are in one order: starts a thread that times work when its time has come.
void keep_order();

// A kernel that a launch may begin behind when it has let that go; and what has ended when it and all before
// it have.
struct Primary {
    WorkPtr kernel, ended;
};

// Links `work` behind what is not done of `after` and starts it if nothing is left. work_mutex must be held.
// `within` is given for a step of other work.
void enqueue(const WorkPtr& work, const std::vector<WorkPtr>& after, const Timing* within = nullptr);

// The same for a launch that may begin before `primaries` have ended; `both` ends when it and they have.
void enqueue_early(const WorkPtr& launch, const std::vector<WorkPtr>& after,
                   const std::vector<Primary>& primaries, const WorkPtr& both);

// The kernel lets go what may begin before it has ended. work_mutex must not be held.
void let_go(const WorkPtr& kernel);

// An engine has found that the work is these steps: they are started in their order, and the work comes back
// to its engine when all have ended. work_mutex must not be held.
void spawn(const WorkPtr& work, std::vector<SpawnStep> steps);

// An engine has ended the work: wakes who waits for it and starts what follows. work_mutex must not be held.
void complete(const WorkPtr& work);

// Blocks until the work has ended. work_mutex must not be held.
void await(const WorkPtr& work);

// Blocks until `ready` holds; it is looked at whenever some work ends. The lock is of work_mutex.
template <class Predicate>
void await(std::unique_lock<std::mutex>& lock, Predicate ready);

// Blocks until all the work has ended (null: has), and in simulated time moves the thread's there.
void await_all(std::unique_lock<std::mutex>& lock, const std::vector<WorkPtr>& works);

// Whether all of it has ended (null: has). In simulated time: by the calling thread's; what has been
// submitted is done first, which blocks.
bool have_ended(std::unique_lock<std::mutex>& lock, const std::vector<WorkPtr>& works);

namespace detail {
void await_completion(std::unique_lock<std::mutex>& lock);
}

template <class Predicate>
void await(std::unique_lock<std::mutex>& lock, Predicate ready) {
    while (!ready()) detail::await_completion(lock);
}

}  // namespace simcuda::driver
