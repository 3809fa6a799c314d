// A GPU that other processes under the shim use too (executor/gpu_share.h).
#include <utility>

#include "shim/executor/budget.h"
#include "shim/executor/placement.h"
#include "shim/session/session.h"
#include "shim/util/bounds.h"

namespace lms::session {
namespace {

// As far as there are fences.
bool has_unfinished_work(executor::Core& core, executor::SessionLock& lock) LMS_LOCKED {
    executor::poll_completions(core, lock);
    return !core.fences.latest_of_program().empty();
}

}  // namespace

void Session::share_by(std::unique_ptr<executor::GpuShare> share) {
    share_ = std::move(share);
    const executor::SessionLock lock(core_->mutex);
    core_->share = share_.get();
}

void Session::share_on(const util::ShareTerms& terms) {
    if (share_) share_->set_terms(terms);
}

void Session::claim_host_by(executor::HostClaims* claims) {
    const executor::SessionLock lock(core_->mutex);
    core_->host_claims = claims;
    executor::settle_host(*core_);
}

std::uint64_t Session::give_back_host(std::uint64_t lacking_bytes) {
    executor::SessionLock lock(core_->mutex);
    return executor::give_back_host(*core_, lacking_bytes, lock);
}

util::Clock::duration Session::host_look_is_due_in() {
    const executor::SessionLock lock(core_->mutex);
    return core_->host_part.returnable_bytes > 0 ? bounds::kIdleHostLook : bounds::kIdleMemory;
}

void Session::give_back_idle() {
    executor::SessionLock lock(core_->mutex);
    executor::give_back_idle(*core_, lock);
}

void Session::look_at_host_claims() {
    executor::HostClaims* claims = nullptr;
    {
        const executor::SessionLock lock(core_->mutex);
        claims = core_->host_claims;
    }
    const std::uint64_t lacking = claims ? claims->lacking_bytes() : 0;
    if (lacking > 0) give_back_host(lacking);
}

// A turn that is watched is in use as long as anything has been submitted, or moved, since the last look.
bool Session::sees_use(executor::SessionLock& lock) {
    const std::uint64_t begun = core_->engine.submissions().begun();
    const bool submitted = std::exchange(begun_before_, begun) != begun;
    return has_unfinished_work(*core_, lock) ||
           (share_->is_turn_watched() && (submitted || migrator_->is_busy()));
}

void Session::look_at_share(Looks who) {
    const bool due = who == Looks::Program || share_->is_due();
    executor::SessionLock lock(core_->mutex);
    const bool in_use = who == Looks::Program || sees_use(lock);
    // The driver is not asked in vain each time that a watched turn is seen to be in use.
    if (std::exchange(was_in_use_, in_use) && in_use && !due) return;
    if (executor::refresh_grant(*core_, *share_, lock, in_use) == CUDA_SUCCESS)
        migrator_->keep_to_budget(lock, !in_use || !share_->takes_turns() || share_->waits(false));
}

void Session::help_while_idle() {
    if (share_) idle_helper_ = std::make_unique<IdleHelper>(*this);
}

}  // namespace lms::session
