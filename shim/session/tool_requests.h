// What comes from outside of a running program: requests of its user (`lms set`), in the page that it shares
// with tools, and other processes on its GPUs.
#pragma once

#include <atomic>

#include "shim/session/sessions.h"
#include "shim/trace/live_page.h"

namespace lms::session {

namespace detail {
inline constinit std::atomic<std::uint64_t> requests_seen{0};
void take_up_requests() noexcept;
}  // namespace detail

// Acts upon it, if there is something new; while the process is paused, waits. For calls that may take long
// and hold no lock, before they do anything: those that allocate or wait, and work that is looked at.
inline void take_up_requests() {
    const trace::LiveRequest& request = trace::own_page.page.request;
    if (request.number.load(std::memory_order_relaxed) >
            detail::requests_seen.load(std::memory_order_relaxed) ||
        request.paused.load(std::memory_order_relaxed) == 1 || shares_are_due()) [[unlikely]]
        detail::take_up_requests();
}

}  // namespace lms::session
