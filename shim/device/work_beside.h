// Whether calls of the driver's wait for work that is unfinished beside them.
#pragma once

#include <functional>

#include "shim/device/cuda_api.h"

namespace lms::device {

// Makes `call` beside a host function, in a stream made for it in the current context. The function ends as
// soon as the call has returned, or else after some milliseconds. Up to three times, 24 ms in all. True if
// the call never returned before the function ended, but soon did whenever it was made again without: a busy
// machine or slow calls delay both. If anything fails, false.
bool waits_for_work_beside(const std::function<bool()>& call);

}  // namespace lms::device
