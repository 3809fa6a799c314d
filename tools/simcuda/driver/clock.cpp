#include "tools/simcuda/driver/clock.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <vector>

#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/random.h"
#include "tools/simcuda/driver/shared/order.h"
#include "tools/simcuda/driver/work_log.h"

namespace simcuda::driver {
namespace {

// A launch takes 2 to 5 microseconds on today's machines, other calls less. What the program does between its
// calls takes nothing: its time would be the machine's.
constexpr std::uint64_t kCallNs = 2000;

std::atomic<std::uint64_t> latest_ns{0};  // of any thread

struct ThreadClock {
    std::uint64_t ns = latest_ns;
    std::vector<const void*> asked;  // since something was submitted, or time moved on for it
    std::set<const void*> awaited;   // asked about too early since something was submitted
    std::uint64_t step_ns = 0;
    bool noticed = false;  // by other processes, what the call does
};

ThreadClock& clock() {
    static thread_local ThreadClock clock;
    return clock;
}

void set(std::uint64_t ns) {
    clock().ns = ns;
    std::uint64_t latest = latest_ns;
    while (latest < ns && !latest_ns.compare_exchange_weak(latest, ns)) {
    }
}

void move_to(std::uint64_t ns) {
    set(shared::in_order() ? shared::reach(ns) : ns);
}

// In place of a thread of its own, whose time the machine would set.
struct Helper {
    std::uint64_t (*help)(void*);
    void* self;
};

struct Helpers {
    std::mutex mutex;  // guards `all`; held while they help
    std::vector<Helper> all;
};

Helpers& helpers() {
    static Helpers& helpers = *new Helpers;
    return helpers;
}

// In how many nanoseconds the first of them is to be called again.
std::uint64_t call_helpers() {
    const std::unique_lock lock(helpers().mutex, std::try_to_lock);
    std::uint64_t next = kNoEnd;
    if (!lock) return next;  // they help another thread
    for (const Helper& each : helpers().all) next = std::min(next, std::max(kCallNs, each.help(each.self)));
    return next;
}

void think_ns(std::uint64_t ns) {
    if (!simulated_time()) return spend_ns(ns);
    const std::uint64_t end = clock().ns + ns;
    while (clock().ns < end) {
        const std::uint64_t next = call_helpers();
        if (clock().ns < end) spend_ns(std::min(next, end - clock().ns));
    }
}

}  // namespace

bool simulated_time() {
    return knobs().simulated_time;
}

std::uint64_t latest_time_ns() {
    return latest_ns;
}

std::uint64_t now_ns() {
    if (simulated_time()) return clock().ns;
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
}

void spend_ns(std::uint64_t ns) {
    if (ns == 0) return;
    if (simulated_time()) return move_to(clock().ns + ns);
    sleep_ns(ns);
}

void begin_call(bool noticed) {
    if (!simulated_time()) return;
    const std::uint64_t ns = clock().ns + kCallNs;
    set(shared::in_order() ? shared::call_begins(ns) : ns);
    clock().noticed = noticed;
    come_in_order();
}

void end_call() {
    if (shared::in_order()) shared::call_ends();
}

void come_in_order() {
    if (shared::in_order() && clock().noticed) shared::await_others(clock().ns);
}

void begin_clock(std::uint64_t ns) {
    move_to(std::max(clock().ns, ns));
}

void wait_until_ns(std::uint64_t ns) {
    if (!simulated_time() || clock().ns >= ns) return;
    log_wait(clock().ns, ns);
    move_to(ns);
}

void asked_too_early(const void* what, std::uint64_t next_ns) {
    ThreadClock& mine = clock();
    const bool again = std::find(mine.asked.begin(), mine.asked.end(), what) != mine.asked.end();
    if (again && next_ns != kNoEnd) {
        mine.asked.clear();
        mine.step_ns = std::max(kCallNs, 2 * mine.step_ns);
        wait_until_ns(std::min(next_ns, mine.ns + mine.step_ns));
    }
    mine.asked.push_back(what);
    mine.awaited.insert(what);
}

std::uint64_t in_order_ns() {
    if (!simulated_time()) return 0;
    if (shared::in_order()) {
        set(shared::call_begins(clock().ns));
        shared::await_others(clock().ns);
        shared::call_ends();
    }
    return clock().ns;
}

void answered(const void* what) {
    ThreadClock& mine = clock();
    if (mine.awaited.erase(what) == 0) return;
    mine.asked.clear();
    mine.step_ns = 0;
}

void submitted() {
    ThreadClock& mine = clock();
    mine.asked.clear();
    mine.awaited.clear();
    mine.step_ns = 0;
}

}  // namespace simcuda::driver

// For who is to see what processes on the same GPUs share by other means, such as a file, in the order of
// their time: waits until the others have come so far, and tells the thread's time. 0: time is not simulated.
extern "C" __attribute__((visibility("default"))) std::uint64_t simcuda_in_order_ns() {
    return simcuda::driver::in_order_ns();
}

// For programs that are tenants of a simulated GPU: the calling thread's time, which the program's clocks do
// not tell, and what takes it: a program that thinks or sleeps, beside which helpers work. In nanoseconds.
extern "C" __attribute__((visibility("default"))) std::uint64_t simcuda_now_ns() {
    return simcuda::driver::now_ns();
}
extern "C" __attribute__((visibility("default"))) void simcuda_spend_ns(std::uint64_t ns) {
    simcuda::driver::think_ns(ns);
}

// For libraries beside the program: what a wait takes, beside which no helper works.
extern "C" __attribute__((visibility("default"))) void simcuda_wait_ns(std::uint64_t ns) {
    simcuda::driver::spend_ns(ns);
}

// The same libraries' threads, in simulated time: `help` is called by a thread of the program that spends
// time, and says in how many nanoseconds it is to be called again. Null: no more; who calls it then has come
// back.
extern "C" __attribute__((visibility("default"))) void simcuda_help(std::uint64_t (*help)(void*),
                                                                    void* self) {
    auto& helpers = simcuda::driver::helpers();
    const std::lock_guard lock(helpers.mutex);
    std::erase_if(helpers.all, [&](const auto& each) { return each.self == self; });
    if (help) helpers.all.push_back({help, self});
}
