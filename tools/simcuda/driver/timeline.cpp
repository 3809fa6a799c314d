#include "tools/simcuda/driver/timeline.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <set>

#include "tools/simcuda/driver/clock.h"

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

void work_out(Work& work) {
    Timing& timing = work.timing;
    std::uint64_t from = timing.from_ns;
    for (const WorkPtr& earlier : timing.after) from = std::max(from, earlier->done_ns);
    timing.after.clear();
    std::uint64_t end = from + timing.least_ns;
    for (const auto& [resource, ns] : timing.takes) end = std::max(end, resource->book(from, ns));
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

Work* settle() {
    Work* first = nullptr;
    for (bool again = true; again;) {
        again = false;
        first = settle_once(again);
    }
    return first;
}

}  // namespace

std::uint64_t Resource::book(std::uint64_t from, std::uint64_t ns) {
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
    if (logs_work()) timing.did.at_ns = machine_ns();
    if (within != nullptr) timing.after = within->after;
    std::copy_if(after.begin(), after.end(), std::back_inserter(timing.after),
                 [](const WorkPtr& earlier) { return earlier != nullptr; });
    timing.may_wait = may_wait_for_program(work->op);
    untimed().push_back(work);
}

bool settle_timing() {
    return settle() == nullptr;
}

void stop_awaiting_timing() {
    if (Work* first = settle(); first != nullptr) first->timing.may_wait = true;
    settle();
}

std::uint64_t next_end_after(std::uint64_t ns) {
    const auto it = ends().upper_bound(ns);
    return it == ends().end() ? kNoEnd : *it;
}

}  // namespace simcuda::driver
