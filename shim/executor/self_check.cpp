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

device::Trial make_trial(State& state, SessionLock& lock) LMS_LOCKED {
    std::optional<device::TrialMemory> memory;
    if (state.trial_block) memory = {state.trial_block->handle, state.trial_block->alias};
    const auto begun = trace::now_ns();
    const device::Trial trial = unlocked(lock, [&] { return state.port.try_moves(memory); });
    if (trial.trust == Trust::Unknown && trial.failed[0] == '\0') return trial;
    trace::add(trace::counters().self_checks);
    trace::add(trace::counters().self_check_ns, trace::now_ns() - begun);
    return trial;
}

void distrust(State& state, const device::Trial& trial) LMS_LOCKED {
    trace::add(trace::counters().self_checks_failed);
    state.telemetry.announce_distrust(trial);
    if (trial.trust == Trust::Nothing) {
        state.trial = State::Trial::Distrusted;
        state.engine.distrust();
        state.engine.cancel_evictions();
    } else if (state.host_blocks.held_bytes() == 0) {
        state.port.map_no_host_memory();
    } else {
        state.in_place_lost = true;  // what is mapped cannot be pinned instead
    }
}

}  // namespace

void set_trial_block_apart(State& state, SessionLock& lock) {
    if (!state.port.tries_moves() || state.trial != State::Trial::Ahead || state.trial_block) return;
    if (state.engine.budget_bytes() < state.granularity) return;
    // What stays free for the driver may have room for it, and for something else then.
    device::MemoryInfo info{};
    if (unlocked(lock, [&] { return state.port.memory_info(info); }) != CUDA_SUCCESS) return;
    if (info.free_bytes + state.device_blocks.held_bytes() >=
        state.engine.budget_bytes() + 2 * state.granularity)
        return;
    Block block;
    if (state.device_blocks.create(state.granularity, block, lock) == CUDA_SUCCESS) state.trial_block = block;
}

void give_back_trial_block(State& state) {
    if (state.trial_block) state.engine.put(*state.trial_block);
    state.trial_block.reset();
}

void check_moves(State& state, SessionLock& lock) {
    state.changed.wait(lock, [&]() LMS_LOCKED { return state.trial != State::Trial::Running; });
    if (state.trial != State::Trial::Ahead) return;
    state.trial = State::Trial::Running;
    // The trial may wait for ever there.
    state.remaps_wait = state.port.remaps_were_seen_to_wait();
    if (state.remaps_wait) state.telemetry.announce_remaps_wait();
    const device::Trial trial = make_trial(state, lock);
    const bool told = trial.trust != Trust::Unknown;
    if (!told && trial.failed[0] != '\0') {
        ++state.trials;
        log::info("a trial of moves did not finish: {}", trial.failed);
    }
    const bool again = state.port.tries_moves() && !told && state.trials < kMostTrials;
    if (told && trial.trust != Trust::Moves) distrust(state, trial);
    if (trial.remaps_wait) {
        state.remaps_wait = true;
        trace::add(trace::counters().self_checks_remaps_wait);
        state.telemetry.announce_remaps_wait();
    }
    if (!again && trial.over && state.trial_block) {
        give_back_trial_block(state);
        // What is of no use to a chunk may be of some to the driver.
        state.device_blocks.trim(state.granularity, lock);
    }
    // Of the first copies it is told how fast they go; of all where these are timed already.
    if (told && trial.over && !state.telemetry.traced && !state.large.timed)
        unlocked(lock, [&] { state.port.time_copies(); });
    if (state.trial == State::Trial::Running)
        state.trial = again ? State::Trial::Ahead : State::Trial::Passed;
    state.changed.notify_all();
}

}  // namespace lms::executor
