// A GPU that other processes under the shim use too (executor/gpu_share.h).
#include "shim/executor/budget.h"
#include "shim/session/session.h"

namespace lms::shim {
namespace {

// As far as there are fences.
bool has_unfinished_work(State& state, SessionLock& lock) LMS_LOCKED {
    poll_completions(state, lock);
    return !state.fences.latest_of_program().empty();
}

}  // namespace

void Session::share_by(std::unique_ptr<GpuShare> share) {
    share_ = std::move(share);
    const SessionLock lock(state_->mutex);
    state_->share = share_.get();
}

void Session::share_on(const util::ShareTerms& terms) {
    if (share_) share_->set_terms(terms);
}

void Session::claim_host_by(HostClaims* claims) {
    const SessionLock lock(state_->mutex);
    state_->host_claims = claims;
    settle_host(*state_);
}

void Session::give_back_host(std::uint64_t lacking_bytes) {
    SessionLock lock(state_->mutex);
    shim::give_back_host(*state_, lacking_bytes, lock);
}

void Session::look_at_share(Looks who) {
    SessionLock lock(state_->mutex);
    const bool idle = who == Looks::Helper && !has_unfinished_work(*state_, lock);
    if (refresh_grant(*state_, *share_, lock, !idle) == CUDA_SUCCESS)
        migrator_->keep_to_budget(lock, idle || !share_->takes_turns());
}

void Session::help_while_idle() {
    if (share_) idle_helper_ = std::make_unique<IdleHelper>(*this);
}

}  // namespace lms::shim
