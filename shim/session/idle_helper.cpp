#include "shim/session/idle_helper.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <mutex>

#include "shim/program/contexts.h"
#include "shim/session/session.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/log.h"

namespace lms::session {
namespace {

// Whether the process ends, and how many helpers are at work. A child of fork has no helpers.
std::atomic<bool> exiting{false};
std::atomic<int> at_work{0};

// Before what the driver does at exit: it was loaded earlier. What a helper has begun it ends first.
void wait_at_exit() {
    exiting = true;
    const auto deadline = util::Clock::now() + bounds::kOtherThread;
    while (at_work > 0 && util::Clock::now() < deadline) util::pause(bounds::kQuickGlance);
}

struct NoSignals {
    NoSignals() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    NoSignals(const NoSignals&) = delete;
    NoSignals& operator=(const NoSignals&) = delete;
    sigset_t before;
};

}  // namespace

IdleHelper::IdleHelper(Session& session) noexcept : session_(session) {
    const util::GpuClock& clock = session.share()->clock();
    if (clock.set_helper) {
        const auto help = [](void* self) {
            auto& helper = *static_cast<IdleHelper*>(self);
            helper.look();
            return static_cast<std::uint64_t>(std::chrono::nanoseconds(bounds::kSimulatedNews).count());
        };
        clock.set_helper(help, this);
        return;
    }
    static std::once_flag once;
    std::call_once(once, [] {
        std::atexit(wait_at_exit);
        ::pthread_atfork(nullptr, nullptr, [] { at_work = 0; });
    });
    try {
        const NoSignals none;
        thread_ = std::thread([this] { help(); });
        ::pthread_setname_np(thread_.native_handle(), "lmsshim");
    } catch (const std::exception& problem) {
        log::warn(
            "GPU {}: no thread can be made ({}); it gives nothing back while the program makes no calls",
            session.device(), problem.what());
    }
}

IdleHelper::~IdleHelper() {
    ended_ = true;
    const util::GpuClock& clock = session_.share()->clock();
    if (clock.set_helper) {
        clock.set_helper(nullptr, this);
        return;
    }
    session_.share()->wake();
    if (thread_.joinable()) thread_.join();
}

void IdleHelper::help() noexcept {
    while (!ended_) {
        session_.share()->await_news(ended_, session_.host_look_is_due_in());
        ++at_work;
        if (!exiting) look();
        --at_work;
    }
}

// Another thread may destroy the context meanwhile; it waits.
void IdleHelper::look() noexcept try {
    const program::ContextUse context(session_.context());
    if (!context || ended_ || !session_.awake()) return;
    if (session_.share()->is_left_to_helper()) session_.look_at_share(Session::Looks::Helper);
    if (util::Clock::now() < host_look_at_) return;
    session_.look_at_host_claims();
    if (util::Clock::now() >= idle_look_at_) {
        session_.give_back_idle();
        idle_look_at_ = util::Clock::now() + bounds::kIdleMemory;
    }
    host_look_at_ = util::Clock::now() + session_.host_look_is_due_in();
} catch (const std::exception& problem) {
    log::debug("GPU {}: nothing given back: {}", session_.device(), problem.what());
}

}  // namespace lms::session
