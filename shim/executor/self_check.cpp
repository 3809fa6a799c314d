#include "shim/executor/self_check.h"

#include "shim/executor/eviction.h"
#include "shim/telemetry/telemetry.h"
#include "shim/trace/events.h"
#include "shim/trace/live_page.h"
#include "shim/util/log.h"

namespace lms::executor {
namespace {

using device::Trust;

// Each that finds no end takes a second of the thread that makes it.
constexpr unsigned kMostTrials = 3;

device::Trial make_trial(Core& core, SessionLock& lock) LMS_LOCKED {
    std::optional<device::TrialMemory> memory;
    if (core.trial_block) memory = {core.trial_block->handle, core.trial_block->alias};
    const auto begun = trace::now_ns();
    const device::Trial trial = unlocked(lock, [&] { return core.port.try_moves(memory); });
    if (trial.trust == Trust::Unknown && trial.failed[0] == '\0') return trial;
    trace::add(trace::counters().self_checks);
    trace::add(trace::counters().self_check_ns, trace::now_ns() - begun);
    return trial;
}

void distrust(Core& core, const device::Trial& trial) LMS_LOCKED {
    trace::add(trace::counters().self_checks_failed);
    core.telemetry.announce_distrust(trial);
    if (trial.trust == Trust::Nothing) {
        core.trial = Core::Trial::Distrusted;
        core.engine.distrust();
        core.engine.cancel_evictions();
    } else if (core.host_blocks.held_bytes() == 0) {
        core.port.map_no_host_memory();
    } else {
        core.in_place_lost = true;  // what is mapped cannot be pinned instead
    }
}

}  // namespace

void set_trial_block_apart(Core& core, SessionLock& lock) {
    if (!core.port.tries_moves() || core.trial != Core::Trial::Ahead || core.trial_block) return;
    if (core.engine.budget_bytes() < core.granularity) return;
    // What stays free for the driver may have room for it, and for something else then.
    device::MemoryInfo info{};
    if (unlocked(lock, [&] { return core.port.memory_info(info); }) != CUDA_SUCCESS) return;
    if (info.free_bytes + core.device_blocks.held_bytes() >=
        core.engine.budget_bytes() + 2 * core.granularity)
        return;
    Block block;
    if (core.device_blocks.create(core.granularity, block, lock) == CUDA_SUCCESS) core.trial_block = block;
}

void give_back_trial_block(Core& core) {
    if (core.trial_block) core.engine.put(*core.trial_block);
    core.trial_block.reset();
}

void check_moves(Core& core, SessionLock& lock) {
    core.changed.wait(lock, [&]() LMS_LOCKED { return core.trial != Core::Trial::Running; });
    if (core.trial != Core::Trial::Ahead) return;
    core.trial = Core::Trial::Running;
    // The trial may wait for ever there.
    core.remaps_wait = core.port.remaps_were_seen_to_wait();
    if (core.remaps_wait) core.telemetry.announce_remaps_wait();
    const device::Trial trial = make_trial(core, lock);
    const bool told = trial.trust != Trust::Unknown;
    if (!told && trial.failed[0] != '\0') {
        ++core.trials;
        log::info("a trial of moves did not finish: {}", trial.failed);
    }
    const bool again = core.port.tries_moves() && !told && core.trials < kMostTrials;
    if (told && trial.trust != Trust::Moves) distrust(core, trial);
    if (trial.remaps_wait) {
        core.remaps_wait = true;
        trace::add(trace::counters().self_checks_remaps_wait);
        core.telemetry.announce_remaps_wait();
    }
    if (!again && trial.over && core.trial_block) {
        give_back_trial_block(core);
        // What is of no use to a chunk may be of some to the driver.
        core.device_blocks.trim(core.granularity, lock);
    }
    // Of the first copies it is told how fast they go; of all where these are timed already.
    if (told && trial.over && !core.telemetry.traced && !core.large.timed)
        unlocked(lock, [&] { core.port.time_copies(); });
    if (core.trial == Core::Trial::Running) core.trial = again ? Core::Trial::Ahead : Core::Trial::Passed;
    core.changed.notify_all();
}

}  // namespace lms::executor
