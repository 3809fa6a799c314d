// Signal handlers and guards.
#include "tools/simcuda/exec/faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <mutex>
#include <vector>

namespace simcuda::exec {
namespace {

constexpr int kStopSignal = SIGURG;
constexpr std::size_t kSignalStackBytes = 64 << 10;  // AVX-512 and AMX state take about 11 KiB of it
constexpr std::uint32_t kIeeeMode = 0x1f80;          // nearest, no exceptions, denormals kept
constexpr std::uint64_t kStopRetryNs = 10'000'000;

// Initial-exec: read in signal handlers, where the lazy allocation of thread-local storage could not be.
__attribute__((tls_model("initial-exec"))) thread_local Guard* t_guard = nullptr;

struct sigaction g_previous_segv;
struct sigaction g_previous_bus;
struct sigaction g_previous_stop;

// Signal stacks between their uses; never destroyed, for workers may outlive static destructors.
class SignalStacks {
  public:
    // Null when memory is short.
    void* take() {
        {
            std::lock_guard lock(mutex_);
            if (!unused_.empty()) {
                void* stack = unused_.back();
                unused_.pop_back();
                return stack;
            }
        }
        void* stack =
            mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return stack == MAP_FAILED ? nullptr : stack;
    }
    void give_back(void* stack) {
        std::lock_guard lock(mutex_);
        unused_.push_back(stack);
    }

  private:
    std::mutex mutex_;
    std::vector<void*> unused_;
};

SignalStacks& signal_stacks() {
    static auto* const stacks = new SignalStacks;
    return *stacks;
}

void unblock(sigset_t& previous) {
    sigset_t ours;
    sigemptyset(&ours);
    for (int signal : {SIGSEGV, SIGBUS, kStopSignal}) sigaddset(&ours, signal);
    pthread_sigmask(SIG_UNBLOCK, &ours, &previous);
}

void call_previous(const struct sigaction& previous, int signal, siginfo_t* info, void* context) {
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler == SIG_DFL) {
        if (signal == kStopSignal) return;
        // The instruction faults again and the default action ends the process, as without us.
        ::signal(signal, SIG_DFL);
    } else if (previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    }
}

void on_fault(int signal, siginfo_t* info, void* context) {
    Guard* guard = t_guard;
    // A signal that was sent, not raised by an access, is not ours.
    if (!guard || info->si_code <= 0) {
        call_previous(signal == SIGSEGV ? g_previous_segv : g_previous_bus, signal, info, context);
        return;
    }
    // A non-canonical address is reported as a fault without an address.
    const bool known = info->si_code != SI_KERNEL;
    guard->fault_address = known ? to_device(info->si_addr) : 0;
    guard->outcome = Outcome::IllegalAddress;
    t_guard = guard->outer;
    siglongjmp(guard->target, 1);
}

void on_stop(int signal, siginfo_t* info, void* context) {
    Guard* guard = t_guard;
    if (!guard || (info->si_code != SI_TIMER && info->si_code != SI_TKILL)) {
        call_previous(g_previous_stop, signal, info, context);
        return;
    }
    if (info->si_code == SI_TIMER) guard->stop_requested = true;
    if (!guard->stop_requested || !guard->interruptible) return;
    guard->outcome = Outcome::Timeout;
    t_guard = guard->outer;
    siglongjmp(guard->target, 1);
}

void install(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction& previous) {
    struct sigaction current {};
    sigaction(signal, nullptr, &current);
    if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == handler) return;
    previous = current;
    struct sigaction ours {};
    ours.sa_sigaction = handler;
    // Handlers are left by jumps that do not restore the signal mask: nothing may be blocked in them.
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigaction(signal, &ours, nullptr);
}

}  // namespace

void install_handlers() {
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    install(SIGSEGV, on_fault, g_previous_segv);
    install(SIGBUS, on_fault, g_previous_bus);
    install(kStopSignal, on_stop, g_previous_stop);
}

Outcome catch_faults(Guard& guard, void (*work)(void*), void* argument) {
    guard.outer = t_guard;
    guard.outcome = Outcome::Finished;
    if (sigsetjmp(guard.target, 0) == 0) {
        t_guard = &guard;
        work(argument);
        t_guard = guard.outer;
    }
    guard.interruptible = false;
    return guard.outcome;
}

void leave(Outcome outcome) {
    Guard* guard = t_guard;
    guard->outcome = outcome;
    t_guard = guard->outer;
    siglongjmp(guard->target, 1);
}

void set_interruptible(Guard& guard, bool interruptible) {
    guard.interruptible = interruptible;
    if (interruptible && guard.stop_requested) leave(Outcome::Timeout);
}

void request_stop(Guard& guard) {
    guard.stop_requested = true;
    syscall(SYS_tgkill, getpid(), guard.thread_id, kStopSignal);
}

StopTimer::StopTimer(std::uint64_t delay_ns) {
    struct sigevent event {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kStopSignal;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    armed_ = true;
    const auto spec = [](std::uint64_t ns) {
        return timespec{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    };
    // Again and again, for the first may come when the thread must not be stopped.
    const itimerspec times{spec(kStopRetryNs), spec(delay_ns ? delay_ns : 1)};
    timer_settime(timer_, 0, &times, nullptr);
}

StopTimer::~StopTimer() {
    if (armed_) timer_delete(timer_);
}

KernelThread::KernelThread() : previous_mode_(_mm_getcsr()) {
    _mm_setcsr(kIeeeMode);
    unblock(previous_mask_);
    stack_t current{};
    sigaltstack(nullptr, &current);
    if (!(current.ss_flags & SS_DISABLE) && current.ss_size >= kSignalStackBytes) return;
    stack_ = signal_stacks().take();
    if (!stack_) return;
    stack_t ours{};
    ours.ss_sp = stack_;
    ours.ss_size = kSignalStackBytes;
    sigaltstack(&ours, &previous_stack_);
}

KernelThread::~KernelThread() {
    if (stack_) {
        sigaltstack(&previous_stack_, nullptr);
        signal_stacks().give_back(stack_);
    }
    pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
    _mm_setcsr(previous_mode_);
}

bool guarded(void (*work)(void* argument), void* argument, DeviceAddress* fault) {
    install_handlers();
    sigset_t mask;
    unblock(mask);
    Guard guard;
    const Outcome outcome = catch_faults(guard, work, argument);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    if (outcome == Outcome::Finished) return true;
    if (fault) *fault = guard.fault_address;
    return false;
}

}  // namespace simcuda::exec
