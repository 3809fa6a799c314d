#include "tools/simcuda/driver/shared/order.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <mutex>

#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/per_thread.h"
#include "tools/simcuda/driver/random.h"

namespace simcuda::driver::shared {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(2);  // between looks at who holds up
constexpr auto kGathering = std::chrono::seconds(10);

// What the bound is made of.
struct Bound {
    std::mutex mutex;  // guards what follows
    std::uint64_t clock = 0;
    std::uint64_t work = kNoEnd;
    const void* caller = nullptr;  // whose time `clock` is
    unsigned inside = 0;           // calls
};

Bound& own_bound() {
    static Bound& bound = *new Bound;
    return bound;
}

const void* this_thread() {
    static thread_local char token;
    return &token;
}

void raise(Number& number, std::uint64_t value) {
    std::uint64_t seen = number;
    while (seen < value && !number.compare_exchange_weak(seen, value)) {
    }
}

// Of all processes, that wait for another bound.
void wake() {
    ++page()->changes;
    ::syscall(SYS_futex, &page()->changes, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

void wait_for_change(std::uint32_t seen, bool for_long) {
    const timespec limit{0, std::chrono::nanoseconds(kLook).count()};
    ::syscall(SYS_futex, &page()->changes, FUTEX_WAIT, seen, for_long ? nullptr : &limit, nullptr, 0);
}

// The mutex is held.
void publish(const Bound& bound) {
    Slot& slot = *own_slot();
    const std::uint64_t now = std::min(bound.clock, bound.work);
    slot.outside = bound.inside == 0 && bound.clock <= bound.work;
    slot.work = bound.work;
    slot.bound = now;
    if (now < page()->wanted) return;
    page()->wanted = kNoEnd;
    wake();
}

std::uint64_t set_clock(Bound& bound, std::uint64_t ns) {
    Slot& slot = *own_slot();
    if (slot.passed.exchange(kNoEnd) != kNoEnd) ns = std::max<std::uint64_t>(ns, page()->now);
    bound.clock = ns;
    bound.caller = this_thread();
    publish(bound);
    return ns;
}

// That others wait for.
std::uint64_t bound_of(const Slot& slot) {
    const std::uint64_t bound = slot.bound;
    if (bound != slot.passed) return bound;
    const std::uint64_t work = slot.work;
    return work == slot.passed_work ? kNoEnd : work;
}

bool holds_up(const Slot& slot, std::uint64_t ns) {
    if (&slot == own_slot()) return false;
    const std::int32_t process = slot.process;
    const std::uint64_t bound = bound_of(slot);
    if (process == 0 || bound > ns) return false;
    return bound < ns || process < own_slot()->process;
}

bool others_are_at(std::uint64_t ns) {
    return std::none_of(std::begin(page()->slots), std::end(page()->slots),
                        [&](const Slot& slot) { return holds_up(slot, ns); });
}

// Who waits for `ns` is woken when a bound comes there.
void want(std::uint64_t ns) {
    std::uint64_t seen = page()->wanted;
    while (ns < seen && !page()->wanted.compare_exchange_weak(seen, ns)) {
    }
}

// What one thread has seen of those that hold it up.
struct Seen {
    std::uint64_t bound = kNoEnd, work = kNoEnd, switches = 0;
    Clock::time_point since, asleep_since;
};

void look_at(Slot& slot, Seen& seen) {
    const std::uint64_t bound = slot.bound, work = slot.work;
    const Activity activity = slot.outside ? activity_of(slot.process) : Activity{};
    const auto now = Clock::now();
    if (seen.bound != bound || seen.work != work) seen = {bound, work, activity.switches, now, now};
    if (!activity.asleep || activity.switches != seen.switches) seen.asleep_since = now;
    seen.switches = activity.switches;
    const bool patient = now - seen.since < kPatience;
    if (patient && now - seen.asleep_since < kAsleep) return;
    if (!patient) slot.passed_work = work;
    slot.passed = bound;
}

void look_at_all(std::uint64_t ns) {
    static auto& all_seen = *new PerThread<std::array<Seen, kMostProcesses>>;
    auto& seen = all_seen.get();
    bool any = false;
    for (std::size_t i = 0; i < kMostProcesses; ++i) {
        Slot& slot = page()->slots[i];
        if (!holds_up(slot, ns)) continue;
        look_at(slot, seen[i]);
        any = true;
    }
    if (!any) return;
    const PageLock lock;
    free_slots_of_ended(*page());
}

}  // namespace

bool in_order() {
    return page() != nullptr && simulated_time();
}

std::uint64_t begin_order() {
    const auto gathered = [] {
        const PageLock lock;
        free_slots_of_ended(*page());
        const auto there = std::count_if(std::begin(page()->slots), std::end(page()->slots),
                                         [](const Slot& slot) { return slot.process != 0; });
        if (static_cast<std::uint64_t>(there) >= knobs().processes) page()->begun = 1;
        return page()->begun != 0;
    };
    const auto until = Clock::now() + kGathering;
    while (!gathered()) {
        if (Clock::now() >= until) {
            message("SIMCUDA_PROCESSES=%llu: fewer have come in 10 s; this process begins",
                    static_cast<unsigned long long>(knobs().processes));
            break;
        }
        sleep_ns(1'000'000);
    }
    // What the process has is the others' from this time on, not before.
    std::atexit([] {
        if (in_order()) await_others(now_ns());
    });
    return page()->now;
}

std::uint64_t call_begins(std::uint64_t ns) {
    Bound& bound = own_bound();
    const std::lock_guard lock(bound.mutex);
    ++bound.inside;
    return set_clock(bound, ns);
}

void call_ends() {
    Bound& bound = own_bound();
    const std::lock_guard lock(bound.mutex);
    if (bound.inside == 0) return;  // it began before the process was on the page
    --bound.inside;
    own_slot()->outside = bound.inside == 0 && bound.clock <= bound.work;
}

std::uint64_t reach(std::uint64_t ns) {
    Bound& bound = own_bound();
    const std::lock_guard lock(bound.mutex);
    return set_clock(bound, ns);
}

const void* wait_for_work() {
    Bound& bound = own_bound();
    const std::lock_guard lock(bound.mutex);
    if (bound.caller == this_thread()) {
        bound.clock = kNoEnd;
        publish(bound);
    }
    return this_thread();
}

void woken(const void* waiter, std::uint64_t ns) {
    Bound& bound = own_bound();
    const std::lock_guard lock(bound.mutex);
    if (bound.caller != waiter) return;
    bound.clock = ns;
    publish(bound);
}

void set_next_work(std::uint64_t begins_ns) {
    Bound& bound = own_bound();
    const std::lock_guard lock(bound.mutex);
    if (bound.work == begins_ns) return;
    bound.work = begins_ns;
    publish(bound);
}

std::uint64_t next_work() {
    Bound& bound = own_bound();
    const std::lock_guard lock(bound.mutex);
    return bound.work;
}

bool is_next(std::uint64_t ns) {
    {
        Bound& bound = own_bound();
        const std::lock_guard lock(bound.mutex);
        if (bound.clock < ns && own_slot()->passed == kNoEnd) return false;
    }
    if (!others_are_at(ns)) return false;
    raise(page()->now, ns);
    return true;
}

void await_others(std::uint64_t ns) {
    for (;;) {
        const std::uint32_t seen = changes();
        want(ns);
        if (others_are_at(ns)) break;
        wait_for_change(seen, false);
        look_at_all(ns);
    }
    raise(page()->now, ns);
}

std::uint32_t changes() {
    return page()->changes;
}

void await_change(std::uint32_t seen, std::uint64_t ns) {
    if (ns != kNoEnd) {
        want(ns);
        if (is_next(ns)) return;
    }
    wait_for_change(seen, ns == kNoEnd);
    if (ns != kNoEnd) look_at_all(ns);
}

void look_again() {
    wake();
}

std::uint64_t take_part(Number& until, std::uint64_t from, std::uint64_t ns) {
    const std::uint64_t end = std::max<std::uint64_t>(until, from) + ns;
    until = end;
    return end;
}

std::uint64_t begin_kernel(const SharedDevice& device, std::uint64_t from) {
    const bool others = device.kernels_of != static_cast<std::uint64_t>(own_slot()->process);
    return others ? std::max<std::uint64_t>(from, device.kernels_until) : from;
}

void end_kernel(SharedDevice& device, std::uint64_t end) {
    const auto process = static_cast<std::uint64_t>(own_slot()->process);
    device.kernels_until =
        device.kernels_of == process ? std::max<std::uint64_t>(end, device.kernels_until) : end;
    device.kernels_of = process;
}

}  // namespace simcuda::driver::shared
