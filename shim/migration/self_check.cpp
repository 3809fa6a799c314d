#include "shim/migration/self_check.h"

#include "shim/migration/user_warnings.h"
#include "shim/trace/events.h"
#include "shim/trace/live_page.h"
#include "shim/util/log.h"

namespace lms::engine {

void check_moves(State& state, SessionLock& lock) {
    state.changed.wait(lock, [&] { return state.trial != State::Trial::Running; });
    if (state.trial != State::Trial::Ahead) return;
    state.trial = State::Trial::Running;
    const auto begun = trace::now_ns();
    const device::Trial trial = unlocked(lock, [&] { return state.port.try_moves(); });
    const auto ended = trace::now_ns();
    state.trial = trial.trust == device::Trust::Nothing ? State::Trial::Distrusted : State::Trial::Passed;
    trace::add(trace::counters().self_checks);
    trace::add(trace::counters().self_check_ns, ended - begun);
    using device::Trust;
    if (trial.trust == Trust::NotInPlace || trial.trust == Trust::Nothing) {
        trace::add(trace::counters().self_checks_failed);
        announce_distrust(state, trial);
    }
    if (trial.trust == Trust::Unknown && trial.failed[0] != '\0')
        log::info("a trial of moves came to no end: {}", trial.failed);
    if (state.trial == State::Trial::Distrusted) state.host_limit_bytes = 0;
    state.changed.notify_all();
}

}  // namespace lms::engine
