#include "tools/simcuda/driver/kernel_engine.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>

#include "tools/simcuda/driver/clock.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/faults.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/random.h"
#include "tools/simcuda/driver/report.h"
#include "tools/simcuda/driver/scheduler.h"
#include "tools/simcuda/driver/shared/turns.h"
#include "tools/simcuda/driver/worker.h"

namespace simcuda::driver {
namespace {

constexpr std::uint32_t kSlice = 64;  // most blocks a thread takes before it looks up

std::uint64_t threads_of(const exec::Launch& launch) {
    std::uint64_t threads = 1;
    for (int axis = 0; axis < 3; ++axis) threads *= std::uint64_t{launch.grid[axis]} * launch.block[axis];
    return threads;
}

void settle(Context& context, const exec::Grid& grid, const std::string& name) {
    switch (grid.outcome()) {
        case exec::Outcome::Finished:
            return;
        case exec::Outcome::IllegalAddress:
            return fail_at(context, name.c_str(), grid.fault_address());
        case exec::Outcome::Trap:
            return context.fail(CUDA_ERROR_LAUNCH_FAILED);
        case exec::Outcome::Assert:
            return context.fail(CUDA_ERROR_ASSERT);
        case exec::Outcome::NotSupported:
            message("kernel %s cannot go on: %s", name.c_str(), grid.message().c_str());
            return context.fail(CUDA_ERROR_NOT_SUPPORTED);
        case exec::Outcome::Timeout:
            return context.fail(CUDA_ERROR_LAUNCH_TIMEOUT);
    }
}

}  // namespace

struct KernelEngine::Running {
    std::unique_ptr<exec::Grid> grid;
    exec::Flags behind;
    std::size_t device = 0;
    bool exhausted = false;  // no block left to take; guarded by mutex_
    unsigned helpers = 0;    // guarded by mutex_
};

void KernelEngine::add(WorkPtr work) {
    std::lock_guard lock(mutex_);
    ready_.push_back(std::move(work));
    if (idle_leaders_ < ready_.size() && leaders_ < knobs().kernels) {
        const unsigned slot = leaders_++;
        start_worker("simcuda-kernel", [this, slot] { lead(slot); });
    }
    if (helpers_ == 0) {
        for (; helpers_ + 1 < std::thread::hardware_concurrency(); ++helpers_) {
            const unsigned helper = helpers_;
            start_worker("simcuda-helper", [this, helper] { help(helper); });
        }
    }
    arrived_.notify_one();
}

void KernelEngine::lead(unsigned slot) {
    Random random(number_ + 100 * (slot + 1));
    for (;;) {
        WorkPtr work;
        {
            std::unique_lock lock(mutex_);
            ++idle_leaders_;
            arrived_.wait(lock, [&] { return !ready_.empty(); });
            --idle_leaders_;
            const std::size_t which = random.below(ready_.size());
            work = std::move(ready_[which]);
            ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(which));
        }
        try {
            if (work->context->error() == CUDA_SUCCESS) run(work, random);
        } catch (const std::exception&) {  // no memory for the grid's own needs
            work->context->fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        complete(work);
        std::lock_guard lock(mutex_);
        if (!running_.empty()) running_changed_.notify_all();  // what was behind it may be helped now
    }
}

void KernelEngine::run(const WorkPtr& work, Random& random) {
    random.delay();
    const auto device = static_cast<std::size_t>(work->context->device().ordinal);
    shared::Turn turn(device);
    exec::Launch& launch = std::get<KernelOp>(work->op).launch;
    const std::string name = launch.kernel->name;
    const std::uint64_t threads = threads_of(launch);
    if (launch.kernel->lets_dependents_go) launch.on_let_go = [&work] { let_go(work); };
    auto running = std::make_shared<Running>();
    running->behind = launch.behind;
    running->device = device;
    running->grid = exec::Grid::create(std::move(launch));
    exec::Grid& grid = *running->grid;
    {
        std::lock_guard lock(mutex_);
        running_.push_back(running);
        running_changed_.notify_all();
    }
    while (grid.run(1 + static_cast<std::uint32_t>(random.below(kSlice)))) turn.pause();
    {
        std::unique_lock lock(mutex_);
        std::erase(running_, running);
        running_changed_.wait(lock, [&] { return running->helpers == 0 && grid.finished(); });
    }
    settle(*work->context, grid, name);
    count_launch();
    if (simulated_time()) {
        const exec::sc_tally tally = exec::tally_of(grid);
        if (logs_work())
            work->timing.did = {name, work->timing.did.at_ns, tally.operations, tally.bytes, threads};
        return cost_of_kernel(work->timing, tally, threads, work->context->device().scheduler.resources());
    }
    turn.last(1000 * knobs().kernel_us);
}

std::shared_ptr<KernelEngine::Running> KernelEngine::join() {
    std::unique_lock lock(mutex_);
    for (;;) {
        for (const auto& running : running_) {
            if (running->exhausted || !exec::all_set(running->behind)) continue;
            ++running->helpers;
            return running;
        }
        running_changed_.wait(lock);
    }
}

void KernelEngine::help(unsigned helper) {
    Random random(number_ + 100'000 + helper);
    for (;;) {
        const auto running = join();
        bool more = false;
        {
            const shared::Turn turn(running->device);
            more = running->grid->run(1 + static_cast<std::uint32_t>(random.below(kSlice)));
        }
        std::lock_guard lock(mutex_);
        if (!more) running->exhausted = true;
        if (--running->helpers == 0) running_changed_.notify_all();
    }
}

}  // namespace simcuda::driver
