#ifndef __SANITIZE_THREAD__  // which has pthread functions of its own
#include "tests/engine/interleaver.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

// libc's own, which those below stand before.
#define LIBC(name)                                                                              \
    ([] {                                                                                       \
        static const auto found = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name)); \
        return found;                                                                           \
    }())

namespace lms::fake {
namespace {

constexpr std::size_t kMostDecisions = 100000;  // in one run; more get nowhere
constexpr int kNobody = -1;

// How one decision was taken: among `options`, of which the first goes on without a preemption if `goes_on`.
struct Decision {
    std::size_t options;
    std::size_t chosen;
    bool goes_on;
};

class Run {
  public:
    Run(Bodies bodies, const std::vector<Decision>& prefix) : decisions(prefix), threads_(bodies.size()) {
        std::vector<std::thread> running;
        for (std::size_t i = 0; i < bodies.size(); ++i) {
            running.emplace_back([this, i, body = std::move(bodies[i])] {
                wait(threads_[i]);
                self = static_cast<int>(i);
                run = this;
                body();
                threads_[i].state = State::Over;
                self = kNobody;
                hand_on(kNobody);
            });
        }
        hand_on(kNobody);
        for (std::thread& thread : running) thread.join();
        decisions.resize(std::min(decisions.size(), next_));
    }

    // Before a lock is taken, and wherever else others may go first.
    void point() {
        hand_on(self);
        wait(me());
    }
    void sleep() {
        me().state = State::Asleep;
        point();
    }
    template <typename Free>
    void lock(const void* what, Free&& is_free) {
        point();
        await(what, is_free);
    }
    template <typename Free>
    void await(const void* what, Free&& is_free) {
        while (!is_free(locks_[what])) {
            me().state = State::Blocked;
            me().on = what;
            point();
        }
    }
    void take(const void* what, bool shared) {
        if (shared) {
            ++locks_[what].readers;
        } else {
            locks_[what].writer = self;
        }
    }
    void let_go(const void* what) {
        Lock& lock = locks_[what];
        if (lock.writer == self) {
            lock.writer = kNobody;
        } else {
            --lock.readers;
        }
        wake(what, State::Blocked);
    }
    // Until `what` is woken, or others have nothing else to do.
    void sleep_on(const void* what, bool timed) {
        me().state = timed ? State::WaitingAWhile : State::Waiting;
        me().on = what;
        point();
    }
    void wake_all(const void* what) {
        wake(what, State::Waiting);
        wake(what, State::WaitingAWhile);
    }

    struct Lock {
        int writer = kNobody;
        int readers = 0;
    };

    static thread_local int self;
    static thread_local Run* run;
    std::vector<Decision> decisions;

  private:
    enum class State { Ready, Blocked, Asleep, Waiting, WaitingAWhile, Over };
    struct Thread {
        State state = State::Ready;
        const void* on = nullptr;
        // (libstdc++'s yields while it waits, which would come back here.)
        sem_t go;

        Thread() { sem_init(&go, 0, 0); }
        ~Thread() { sem_destroy(&go); }
    };

    Thread& me() { return threads_[static_cast<std::size_t>(self)]; }
    void wake(const void* what, State from) {
        for (Thread& thread : threads_) {
            if (thread.state == from && (what == nullptr || thread.on == what)) thread.state = State::Ready;
        }
    }
    bool all(State state) const {
        return std::all_of(threads_.begin(), threads_.end(),
                           [&](const Thread& t) { return t.state == state; });
    }
    std::vector<int> ready(int first) const {
        std::vector<int> ready;
        if (first != kNobody && threads_[static_cast<std::size_t>(first)].state == State::Ready)
            ready.push_back(first);
        for (std::size_t i = 0; i < threads_.size(); ++i) {
            if (threads_[i].state == State::Ready && static_cast<int>(i) != first)
                ready.push_back(static_cast<int>(i));
        }
        return ready;
    }

    // Chooses who goes next and lets it; `from` could be that too.
    void hand_on(int from) {
        std::vector<int> options = ready(from);
        if (options.empty()) {
            // Time passes.
            wake(nullptr, State::Asleep);
            options = ready(kNobody);
            if (options.empty()) wake(nullptr, State::WaitingAWhile);
            options = ready(kNobody);
        } else {
            // Who sleeps is there again once somebody else has gone on.
            wake(nullptr, State::Asleep);
        }
        if (options.empty()) {
            if (!all(State::Over)) fail("threads wait for one another");
            return;
        }
        std::size_t chosen = 0;
        if (options.size() > 1) {
            const bool goes_on = options[0] == from;
            if (next_ == decisions.size()) decisions.push_back({options.size(), 0, goes_on});
            chosen = std::min(decisions[next_].chosen, options.size() - 1);
            decisions[next_] = {options.size(), chosen, goes_on};
            if (++next_ > kMostDecisions) fail("threads get nowhere");
        }
        sem_post(&threads_[static_cast<std::size_t>(options[chosen])].go);
    }
    static void wait(Thread& thread) {
        while (sem_wait(&thread.go) != 0) continue;  // a signal came
    }
    // There is no way out of such a run.
    [[noreturn]] static void fail(const char* what) {
        std::fprintf(stderr, "interleaver: %s\n", what);
        std::abort();
    }

    std::vector<Thread> threads_;
    std::map<const void*, Lock> locks_;
    std::size_t next_ = 0;
};

thread_local int Run::self = kNobody;
thread_local Run* Run::run = nullptr;

std::atomic<bool> exploring{false};  // nothing takes time then

bool controlled() {
    return Run::self != kNobody;
}

// The next sequence of decisions, or none: the last one that can be taken otherwise is.
bool advance(std::vector<Decision>& decisions, std::size_t preemptions) {
    std::size_t spent = 0;
    for (const Decision& one : decisions) spent += one.goes_on && one.chosen != 0 ? 1 : 0;
    while (!decisions.empty()) {
        Decision& last = decisions.back();
        if (last.goes_on && last.chosen != 0) --spent;
        const bool affordable = !last.goes_on || spent < preemptions;
        if (last.chosen + 1 < last.options && affordable) {
            ++last.chosen;
            return true;
        }
        decisions.pop_back();
    }
    return false;
}

}  // namespace

Explored explore(std::size_t preemptions, const std::function<Bodies()>& make,
                 const std::function<bool()>& check) {
    Explored explored;
    std::vector<Decision> decisions;
    exploring = true;
    do {
        Run run(make(), decisions);
        decisions = std::move(run.decisions);
        ++explored.runs;
        explored.longest = std::max(explored.longest, decisions.size());
        explored.all_well = check();
    } while (explored.all_well && advance(decisions, preemptions));
    exploring = false;
    return explored;
}

}  // namespace lms::fake

using lms::fake::controlled;
using lms::fake::exploring;
using lms::fake::Run;

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
    if (!controlled()) return LIBC(pthread_mutex_lock)(mutex);
    Run::run->lock(mutex, [](const Run::Lock& lock) { return lock.writer == -1; });
    Run::run->take(mutex, false);
    return LIBC(pthread_mutex_lock)(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
    if (controlled()) Run::run->let_go(mutex);
    return LIBC(pthread_mutex_unlock)(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
    if (!controlled()) return LIBC(pthread_rwlock_rdlock)(lock);
    Run::run->lock(lock, [](const Run::Lock& it) { return it.writer == -1; });
    Run::run->take(lock, true);
    return LIBC(pthread_rwlock_rdlock)(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
    if (!controlled()) return LIBC(pthread_rwlock_wrlock)(lock);
    Run::run->lock(lock, [](const Run::Lock& it) { return it.writer == -1 && it.readers == 0; });
    Run::run->take(lock, false);
    return LIBC(pthread_rwlock_wrlock)(lock);
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
    if (controlled()) Run::run->let_go(lock);
    return LIBC(pthread_rwlock_unlock)(lock);
}

// What shim/util/clock.cpp asks of the kernel.
long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    std::array<long, 6> a{};
    for (long& argument : a) argument = va_arg(list, long);
    va_end(list);
    const auto* const word = reinterpret_cast<const std::atomic<std::uint32_t>*>(a[0]);
    const bool waits = number == SYS_futex && a[1] == FUTEX_WAIT_PRIVATE;
    const bool wakes = number == SYS_futex && a[1] == FUTEX_WAKE_PRIVATE;
    const bool sleeps = number == SYS_clock_nanosleep;
    if (controlled() && wakes) Run::run->wake_all(word);
    if (controlled() && waits) {
        if (*word == static_cast<std::uint32_t>(a[2])) Run::run->sleep_on(word, a[3] != 0);
        return 0;
    }
    if (exploring && sleeps) {
        if (controlled()) Run::run->sleep();
        return 0;
    }
    return LIBC(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int sched_yield() noexcept {
    if (controlled()) Run::run->sleep();
    return 0;
}
}
#endif
