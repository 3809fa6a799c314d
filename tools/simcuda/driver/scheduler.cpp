#include "tools/simcuda/driver/scheduler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/shared/order.h"
#include "tools/simcuda/driver/stream.h"
#include "tools/simcuda/driver/worker.h"

namespace simcuda::driver {
namespace {

std::condition_variable& completions() {
    static auto& condition = *new std::condition_variable;
    return condition;
}

unsigned waiting = 0;  // threads waiting on completions(); guarded by work_mutex

// The launch waits for one thing less. That it begins early is never promised.
void release(const WorkPtr& launch, const WorkPtr& ended, std::vector<WorkPtr>& ready) {
    if (!ended->done && !launch->early) {
        launch->early = launch->context->device().scheduler.begin_early();
        if (!launch->early) return ended->dependents.push_back(launch);
    }
    if (--launch->blockers == 0) ready.push_back(launch);
}

void release_held(Work& kernel, std::vector<WorkPtr>& ready) {
    kernel.let_go = true;
    for (const auto& [launch, ended] : std::exchange(kernel.held, {})) release(launch, ended, ready);
}

// Starts the work, or ends it if there is nothing to it, and so on down the line. work_mutex is held.
void start_all(std::vector<WorkPtr> ready) {
    bool ended = false;
    while (!ready.empty()) {
        const WorkPtr work = std::move(ready.back());
        ready.pop_back();
        if (!std::holds_alternative<MarkerOp>(work->op)) {
            work->context->device().scheduler.dispatch(work);
            continue;
        }
        work->done = true;
        if (!simulated_time()) work->done_ns = now_ns();
        for (WorkPtr& dependent : work->dependents) {
            if (--dependent->blockers == 0) ready.push_back(std::move(dependent));
        }
        work->dependents.clear();
        release_held(*work, ready);
        if (work->early) work->context->device().scheduler.end_early();
        if (work->stream != nullptr) --work->stream->pending;
        work->stream.reset();
        work->context.reset();
        ended = true;
    }
    if (ended && simulated_time()) settle_timing();
    if (ended && waiting != 0) completions().notify_all();
}

// Beyond this a thread that waits for another time than that of the longest work waits no longer: the work
// may be waiting for that thread.
constexpr auto kPatience = std::chrono::seconds(1);

template <class Predicate>
void await_timing_until(std::unique_lock<std::mutex>& lock, Predicate ready) {
    ++waiting;
    while (!ready()) {
        if (completions().wait_for(lock, kPatience) == std::cv_status::timeout) stop_awaiting_timing();
    }
    --waiting;
}

bool has_ended(const WorkPtr& work) {
    return work == nullptr || work->done;
}

std::uint64_t end_of(const std::vector<WorkPtr>& works) {
    std::uint64_t end = 0;
    for (const WorkPtr& work : works) {
        if (work != nullptr) end = std::max(end, work->done_ns);
    }
    return end;
}

}  // namespace

std::mutex& work_mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
}

Scheduler::Scheduler(unsigned device)
    : host_to_device_(8 * device + 1, simulated_time() ? 0 : knobs().h2d_gbps, {device, true}),
      device_to_host_(8 * device + 2, simulated_time() ? 0 : knobs().d2h_gbps, {device, false}),
      on_device_(8 * device + 3, 0),
      kernels_(8 * device + 4),
      host_(8 * device + 5),
      resources_(device) {}

bool Scheduler::begin_early() {
    if (early_ >= knobs().kernels / 2) return false;
    ++early_;
    return true;
}

void Scheduler::dispatch(const WorkPtr& work) {
    if (std::holds_alternative<KernelOp>(work->op)) return kernels_.add(work);
    if (std::holds_alternative<HostOp>(work->op)) return host_.add(work);
    if (const auto* copy = std::get_if<CopyOp>(&work->op)) {
        if (copy->from.place != Place::Device) return host_to_device_.add(work);
        if (copy->to.place != Place::Device) return device_to_host_.add(work);
    }
    on_device_.add(work);
}

void enqueue(const WorkPtr& work, const std::vector<WorkPtr>& after, const Timing* within) {
    if (simulated_time()) {
        cost_of_transfer(work->timing, work->op, work->context->device().scheduler.resources());
        await_timing(work, after, within);
    }
    for (const WorkPtr& earlier : after) {
        if (earlier == nullptr || earlier->done) continue;
        earlier->dependents.push_back(work);
        ++work->blockers;
    }
    if (work->blockers == 0) start_all({work});
}

void enqueue_early(const WorkPtr& launch, const std::vector<WorkPtr>& after,
                   const std::vector<Primary>& primaries, const WorkPtr& both) {
    std::vector<WorkPtr> all{launch};
    auto& behind = std::get<KernelOp>(launch->op).launch.behind;
    for (const Primary& primary : primaries) {
        all.push_back(primary.ended);
        behind.emplace_back(primary.ended, &primary.ended->done);
    }
    launch->blockers = static_cast<unsigned>(primaries.size());
    enqueue(launch, after);
    // What it costs is what it is behind these: how much they share is not modelled.
    if (simulated_time()) launch->timing.after.insert(launch->timing.after.end(), all.begin() + 1, all.end());
    std::vector<WorkPtr> ready;
    for (const auto& [kernel, ended] : primaries) {
        if (kernel->let_go)
            release(launch, ended, ready);
        else
            kernel->held.emplace_back(launch, ended);
    }
    start_all(std::move(ready));
    enqueue(both, all);
}

void let_go(const WorkPtr& kernel) {
    std::lock_guard lock(work_mutex());
    std::vector<WorkPtr> ready;
    release_held(*kernel, ready);
    start_all(std::move(ready));
}

void spawn(const WorkPtr& work, std::vector<SpawnStep> steps) {
    std::lock_guard lock(work_mutex());
    ++work->blockers;  // until all steps are there: some may end at once
    const Timing within = work->timing;
    std::vector<WorkPtr> works;
    for (SpawnStep& step : steps) {
        works.push_back(std::make_shared<Work>());
        works.back()->op = std::move(step.op);
        works.back()->context = work->context;
        works.back()->dependents.push_back(work);
        ++work->blockers;
        std::vector<WorkPtr> after;
        for (std::size_t index : step.after) after.push_back(works[index]);
        enqueue(works.back(), after, &within);
    }
    if (simulated_time()) work->timing.after.insert(work->timing.after.end(), works.begin(), works.end());
    if (--work->blockers == 0) start_all({work});
}

void complete(const WorkPtr& work) {
    work->op = MarkerOp{};  // gives back what the operation owned, before anybody is told that it has ended
    std::lock_guard lock(work_mutex());
    start_all({work});
}

void await(const WorkPtr& work) {
    std::unique_lock lock(work_mutex());
    await_all(lock, {work});
}

void await_all(std::unique_lock<std::mutex>& lock, const std::vector<WorkPtr>& works) {
    const AwaitedWork waits(works);
    await(lock, [&] { return std::all_of(works.begin(), works.end(), has_ended); });
    if (!simulated_time()) return;
    await_timing_until(lock, [&] {
        return std::all_of(works.begin(), works.end(),
                           [](const WorkPtr& work) { return work == nullptr || work->timing.known; });
    });
    wait_until_ns(end_of(works));
    lock.unlock();
    come_in_order();
    lock.lock();
}

bool have_ended(std::unique_lock<std::mutex>& lock, const std::vector<WorkPtr>& works) {
    if (!simulated_time()) return std::all_of(works.begin(), works.end(), has_ended);
    if (shared::in_order()) {
        lock.unlock();
        shared::await_others(now_ns());
        lock.lock();
    }
    await_timing_until(lock, settle_timing);
    const auto late = std::find_if(works.begin(), works.end(), [](const WorkPtr& work) {
        return work != nullptr && !(work->timing.known && work->done_ns <= now_ns());
    });
    if (late == works.end()) {
        for (const WorkPtr& work : works) answered(work.get());
        return true;
    }
    asked_too_early(late->get(), next_end_after(now_ns()));
    return false;
}

void keep_order() {
    start_worker("simcuda-order", [] {
        for (;;) {
            const std::uint32_t seen = shared::changes();
            std::uint64_t held_up = kNoEnd;
            {
                std::lock_guard lock(work_mutex());
                settle_timing();
                held_up = held_up_until();
                if (waiting != 0) completions().notify_all();
            }
            shared::await_change(seen, held_up);
        }
    });
}

namespace detail {

void await_completion(std::unique_lock<std::mutex>& lock) {
    ++waiting;
    completions().wait(lock);
    --waiting;
}

}  // namespace detail
}  // namespace simcuda::driver
