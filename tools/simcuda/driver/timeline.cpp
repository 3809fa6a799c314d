#include "tools/simcuda/driver/timeline.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <set>
#include <utility>

#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/shared/order.h"

namespace simcuda::driver {
namespace {

// Intervals and ends kept: what lies further back than these has no say in what is submitted now.
constexpr std::size_t kKept = 4096;

std::list<WorkPtr>& untimed() {  // in order of submission
    static auto& works = *new std::list<WorkPtr>;
    return works;
}

std::set<std::uint64_t>& ends() {
    static auto& ends = *new std::set<std::uint64_t>;
    return ends;
}

bool may_wait_for_program(const Op& op) {
    const auto* value = std::get_if<ValueOp>(&op);
    return (value != nullptr && value->wait) || std::holds_alternative<SpawnOp>(op);
}

bool all_timed(const std::vector<WorkPtr>& works) {
    return std::all_of(works.begin(), works.end(), [](const WorkPtr& work) { return work->timing.known; });
}

// What it comes behind is timed.
std::uint64_t begin_of(const Work& work) {
    std::uint64_t begin = work.timing.from_ns;
    for (const WorkPtr& earlier : work.timing.after) begin = std::max(begin, earlier->done_ns);
    return begin;
}

void work_out(Work& work) {
    Timing& timing = work.timing;
    std::uint64_t from = begin_of(work);
    timing.after.clear();
    if (timing.kernel_of != nullptr) from = shared::begin_kernel(*timing.kernel_of, from);
    std::uint64_t end = from + timing.least_ns;
    for (const auto& [resource, ns] : timing.takes) end = std::max(end, resource->book(from, ns));
    if (timing.kernel_of != nullptr) shared::end_kernel(*timing.kernel_of, end);
    work.done_ns = end;
    timing.known = true;
    log_kernel(timing.did, timing.from_ns, end);
    ends().insert(end);
    if (ends().size() > kKept) ends().erase(ends().begin());
}

// The first work that is neither done nor may be passed over; null if there is none. `passed` is set where
// work that was passed over may have become ready.
Work* settle_once(bool& again) {
    bool passed = false;
    for (auto it = untimed().begin(); it != untimed().end();) {
        Work& work = **it;
        const bool ready = all_timed(work.timing.after);
        if (ready && work.done) {
            work_out(work);
            it = untimed().erase(it);
            again = again || passed;
            continue;
        }
        if (ready && !work.timing.may_wait) return &work;
        passed = true;
        ++it;
    }
    return nullptr;
}

// The thread that waits for work, if it is the one that others wait for: its works, and when it began to.
struct Awaited {
    const std::vector<WorkPtr>* works = nullptr;
    const void* waiter = nullptr;
    std::uint64_t from_ns = 0;
};
Awaited awaited;                    // guarded by work_mutex
std::uint64_t held_up_ns = kNoEnd;  // guarded by work_mutex

void wake_who_awaits() {
    if (awaited.works == nullptr) return;
    std::uint64_t end = awaited.from_ns;
    for (const WorkPtr& work : *awaited.works) {
        if (work == nullptr) continue;
        if (!work->timing.known) return;
        end = std::max(end, work->done_ns);
    }
    shared::woken(awaited.waiter, end);
    awaited = {};
}

// What begins first of what is to be timed next; the end if there is nothing.
std::list<WorkPtr>::iterator first_to_begin() {
    auto first = untimed().end();
    for (auto it = untimed().begin(); it != untimed().end(); ++it) {
        const Timing& timing = (*it)->timing;
        if ((timing.may_wait && !(*it)->done) || !all_timed(timing.after)) continue;
        if (first == untimed().end() || begin_of(**it) < begin_of(**first)) first = it;
    }
    return first;
}

// The first work that is not done, of several processes'.
Work* settle_in_order() {
    for (;;) {
        const auto first = first_to_begin();
        const bool none = first == untimed().end();
        const std::uint64_t begin = none ? kNoEnd : begin_of(**first);
        shared::set_next_work(begin);
        if (none || !(*first)->done) {
            held_up_ns = kNoEnd;
            return none ? nullptr : first->get();
        }
        const Timing& timing = (*first)->timing;
        const bool noticed = timing.kernel_of != nullptr || !timing.takes.empty();
        if (noticed && !shared::is_next(begin)) {
            if (std::exchange(held_up_ns, begin) != begin) shared::look_again();
            return nullptr;
        }
        work_out(**first);
        untimed().erase(first);
        wake_who_awaits();
    }
}

Work* settle() {
    if (shared::in_order()) return settle_in_order();
    Work* first = nullptr;
    for (bool again = true; again;) {
        again = false;
        first = settle_once(again);
    }
    return first;
}

}  // namespace

std::uint64_t Resource::book(std::uint64_t from, std::uint64_t ns) {
    if (shared_until_ != nullptr) return shared::take_part(*shared_until_, from, ns);
    while (ns != 0) {
        const auto next = taken_.upper_bound(from);
        const auto before = next == taken_.begin() ? taken_.end() : std::prev(next);
        const bool joins = before != taken_.end() && before->second >= from;
        if (joins) from = before->second;
        const std::uint64_t end = next == taken_.end() ? from + ns : std::min(from + ns, next->first);
        if (joins) {
            before->second = end;
        } else {
            taken_.emplace_hint(next, from, end);
        }
        ns -= end - from;
        from = end;
        if (next != taken_.end() && next->first == end) {
            std::prev(next)->second = next->second;
            taken_.erase(next);
        }
    }
    if (taken_.size() > kKept) taken_.erase(taken_.begin());
    return from;
}

void await_timing(const WorkPtr& work, const std::vector<WorkPtr>& after, const Timing* within) {
    Timing& timing = work->timing;
    timing.from_ns = within != nullptr ? within->from_ns : now_ns();
    if (within == nullptr) submitted();
    if (logs_work()) {
        timing.did.at_ns = machine_ns();
        const Device& device = work->context->device();
        // Another thread may create or give back some meanwhile.
        const std::uint64_t before = device.created_bytes, used = device.memory.used();
        const std::uint64_t created = std::max(before, device.created_bytes.load());
        log_memory(device.ordinal, used - std::min(used, created));
    }
    if (within != nullptr) timing.after = within->after;
    std::copy_if(after.begin(), after.end(), std::back_inserter(timing.after),
                 [](const WorkPtr& earlier) { return earlier != nullptr; });
    timing.may_wait = may_wait_for_program(work->op);
    untimed().push_back(work);
    if (shared::in_order() && !timing.may_wait && all_timed(timing.after))
        shared::set_next_work(std::min(shared::next_work(), begin_of(*work)));
}

bool settle_timing() {
    const bool settled = settle() == nullptr;
    return shared::in_order() ? shared::next_work() > now_ns() : settled;
}

std::uint64_t held_up_until() {
    return held_up_ns;
}

AwaitedWork::AwaitedWork(const std::vector<WorkPtr>& works) : works_(works) {
    const auto is_known = [](const WorkPtr& work) { return work == nullptr || work->timing.known; };
    if (!shared::in_order() || std::all_of(works.begin(), works.end(), is_known)) return;
    awaited = {&works, shared::wait_for_work(), now_ns()};
}

AwaitedWork::~AwaitedWork() {
    if (awaited.works == &works_) awaited = {};
}

void stop_awaiting_timing() {
    if (Work* first = settle(); first != nullptr) first->timing.may_wait = true;
    settle();
}

std::uint64_t next_end_after(std::uint64_t ns) {
    const auto it = ends().upper_bound(ns);
    const std::uint64_t end = it == ends().end() ? kNoEnd : *it;
    return shared::in_order() ? std::min(end, shared::next_work()) : end;
}

}  // namespace simcuda::driver
