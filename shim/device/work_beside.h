// Whether calls of the driver's wait for work that is unfinished beside them.
#pragma once

#include <functional>

#include "shim/device/cuda_api.h"

namespace lms::device {

// Makes `call` beside a host function, in a stream made for it in the current context, that ends as soon as
// the call has returned, or after some milliseconds if it has not: up to three times, 24 ms in all. True if
// the call never returned before, though it soon did whenever it was made again without: what else holds it
// up (a busy machine, calls that are slow) does so both times. Where anything fails, false.
bool waits_for_work_beside(const std::function<bool()>& call);

}  // namespace lms::device
