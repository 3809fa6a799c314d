// Work of the shim's in a thread of the program that may be cancelled (pthread_cancel).
#pragma once

#include <pthread.h>

namespace lms::util {

// While it lives a cancellation of this thread waits: ended in the middle, the thread would leave locks and
// moves behind, and the shim's frames are not unwound by the program's unwinder.
class NotCancelled {
  public:
    NotCancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
    NotCancelled(const NotCancelled&) = delete;
    NotCancelled& operator=(const NotCancelled&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace lms::util
