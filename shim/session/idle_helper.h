// The shim's one thread of its own, for each GPU that may be shared: it gives back what others want while the
// program makes no calls, and what no buffer has needed for a while.
//
// Asleep on the page (sharing/page.h) until another process says something, but for a look at who lacks host
// memory, and every ten seconds at what lies idle here. While the program's own threads look at the others it
// leaves that to them. In simulated time it is no thread: a thread of the program's that spends time does its
// work.
#pragma once

#include <atomic>
#include <thread>

#include "shim/util/clock.h"

namespace lms::session {

class Session;

class IdleHelper {
  public:
    // Its thread takes no signals. Without memory or threads left there is none, of which the user is told.
    explicit IdleHelper(Session& session) noexcept;
    ~IdleHelper();  // when its thread has ended
    IdleHelper(const IdleHelper&) = delete;
    IdleHelper& operator=(const IdleHelper&) = delete;

  private:
    void help() noexcept;
    void look() noexcept;

    Session& session_;
    // The next looks at others' lack of host memory and at idle memory; news of others come more often.
    util::Clock::time_point host_look_at_{};
    util::Clock::time_point idle_look_at_{};
    std::atomic<bool> ended_{false};
    std::thread thread_;
};

}  // namespace lms::session
