// Catches faults, and stops kernels that do not end, on threads that are not ours.
//
// One handler serves SIGSEGV and SIGBUS, one SIGURG (ignored by default, so a stray one harms nobody). On a
// thread that is inside `catch_faults` they leave it by siglongjmp; elsewhere they do what was installed
// before.
#pragma once

#include <signal.h>
#include <time.h>

#include <atomic>
#include <csetjmp>
#include <cstdint>

#include "tools/simcuda/address.h"
#include "tools/simcuda/exec/grid.h"

namespace simcuda::exec {

// One activation of catch_faults. What runs inside must own nothing that needs a destructor while it may
// fault.
struct Guard {
    sigjmp_buf target;
    Guard* outer = nullptr;
    int thread_id = 0;
    // Stopping is allowed: the thread is in translated code or in the executor's own, and holds no lock.
    std::atomic<bool> interruptible{false};
    std::atomic<bool> stop_requested{false};
    Outcome outcome = Outcome::Finished;
    DeviceAddress fault_address = 0;
};

// Runs work(argument). Returns the outcome it was left with by `leave`, a fault, or a request to stop.
Outcome catch_faults(Guard& guard, void (*work)(void*), void* argument);

// Leaves the innermost catch_faults of this thread.
[[noreturn]] void leave(Outcome outcome);

// Allows or forbids stopping. A request that came while it was forbidden acts when it is allowed.
void set_interruptible(Guard& guard, bool interruptible);

// Asks the thread inside `guard` to leave with Outcome::Timeout. The guard must not end during the call.
void request_stop(Guard& guard);

// From now + `delay_ns` on, stops the calling thread's guard until disarmed.
class StopTimer {
  public:
    explicit StopTimer(std::uint64_t delay_ns);
    ~StopTimer();
    StopTimer(const StopTimer&) = delete;
    StopTimer& operator=(const StopTimer&) = delete;

  private:
    timer_t timer_{};
    bool armed_ = false;
};

// Installs the handlers if they are not in place. Called before each grid: a program may replace handlers.
void install_handlers();

// Makes a thread fit to run kernels while it lives, and puts back what was: a stack for signal handlers
// (kernels run on small ones), the signals above not blocked, floating point as IEEE has it (a program built
// with -ffast-math gives its threads another).
class KernelThread {
  public:
    KernelThread();
    ~KernelThread();
    KernelThread(const KernelThread&) = delete;
    KernelThread& operator=(const KernelThread&) = delete;

  private:
    void* stack_ = nullptr;
    stack_t previous_stack_{};
    sigset_t previous_mask_{};
    std::uint32_t previous_mode_ = 0;
};

}  // namespace simcuda::exec
