// The signals that a write can end a program with, kept from it: SIGPIPE (a pipe without a reader) and
// SIGXFSZ (a file larger than its limit). The program did not make the call.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace lms::util {

// Both are sent to the thread that writes. While one of these lives they are blocked in this thread, and what
// came meanwhile is taken away again; the write fails with EPIPE or EFBIG.
class NoWriteSignals {
  public:
    NoWriteSignals() noexcept {
        sigemptyset(&held_);
        sigset_t pending;
        sigpending(&pending);
        // One that waits already is the program's own.
        for (const int signal : {SIGPIPE, SIGXFSZ}) {
            if (sigismember(&pending, signal) == 0) sigaddset(&held_, signal);
        }
        pthread_sigmask(SIG_BLOCK, &held_, &before_);
    }
    ~NoWriteSignals() {
        const timespec now = {};
        while (sigtimedwait(&held_, nullptr, &now) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoWriteSignals(const NoWriteSignals&) = delete;
    NoWriteSignals& operator=(const NoWriteSignals&) = delete;

  private:
    sigset_t held_, before_;
};

}  // namespace lms::util
