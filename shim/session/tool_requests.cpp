#include "shim/session/tool_requests.h"

#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include "shim/device/driver_table.h"
#include "shim/session/sessions.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/keep_errno.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"
#include "shim/util/units.h"

namespace lms::session {
namespace {

// What was acted upon.
struct Before {
    std::uint64_t limit_bytes = 0;
    std::uint64_t log_level = 0;
    std::string policy;
    std::string share;
    std::uint64_t trace = 0;
};

int act_upon_trace(const trace::LiveRequest& request) {
    const std::string path(request.trace_path, strnlen(request.trace_path, sizeof request.trace_path));
    if (path.empty()) return end_trace();
    const std::uint64_t bytes = request.trace_bytes;
    return begin_trace(path, bytes == 0 ? std::nullopt : std::optional(bytes));
}

void act_upon(trace::LiveRequest& request, Before& before) {
    if (const std::uint64_t level = request.log_level; level != before.log_level) {
        before.log_level = level;
        const bool known = level > 0 && level <= std::size(log::kLevelNames);
        log::set_level(known ? static_cast<log::Level>(level - 1) : settings().log_level);
    }
    if (const std::uint64_t bytes = request.limit_bytes; bytes != before.limit_bytes) {
        before.limit_bytes = bytes;
        log::info("`lms set`: limit={}", bytes == 0 ? "none" : util::format_bytes(bytes));
        set_limit(bytes);
    }
    const std::string policy(request.policy, strnlen(request.policy, sizeof request.policy));
    if (policy != before.policy) {
        before.policy = policy;
        if (set_policy(policy)) log::info("`lms set`: policy={}", policy);
    }
    const std::string share(request.share, strnlen(request.share, sizeof request.share));
    if (share != before.share) {
        before.share = share;
        const auto terms = util::parse_share_terms(share);
        if (terms && terms->shares) {
            set_share(*terms);
            log::info("`lms set`: share={}", util::format_share_terms(*terms));
        }
    }
    if (const std::uint64_t number = request.trace; number != before.trace) {
        before.trace = number;
        request.trace_answer = static_cast<std::uint64_t>(act_upon_trace(request));
    }
}

// One thread at a time; others go on meanwhile.
void look(trace::LiveRequest& request) {
    static Before before;
    static std::atomic<bool> looking;
    std::uint64_t number = request.number.load(std::memory_order_acquire);
    if (number <= detail::requests_seen || looking.exchange(true)) return;
    const struct Over {
        ~Over() { looking = false; }
    } over;
    for (; number > detail::requests_seen; number = request.number.load(std::memory_order_acquire)) {
        act_upon(request, before);
        detail::requests_seen = number;
    }
    request.taken = detail::requests_seen.load();
}

// What is still in use goes when it is not; others' work waits too.
void wait_while_paused(trace::LiveRequest& request) {
    log::info("`lms set`: paused");
    for (bool done = false; request.paused == 1; util::pause(bounds::kRequest)) {
        look(request);
        if (done) continue;
        done = true;
        for (Session* session : sessions())
            done &= !session->awake() || session->pause() == Session::Asked::Done;
    }
    for (Session* session : sessions()) {
        if (session->awake()) session->resume_paused();
    }
}

}  // namespace

void detail::take_up_requests() noexcept try {
    const util::KeepErrno keep;
    // A host function may not ask the driver for anything.
    CUcontext context = nullptr;
    if (device::driver().cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_PERMITTED) return;
    trace::LiveRequest& request = trace::own_page.page.request;
    look(request);
    look_at_shares();
    if (request.paused == 1) wait_while_paused(request);
} catch (const std::exception& problem) {
    log::warn("`lms set` or `lms trace` failed: {}", problem.what());
}

}  // namespace lms::session
