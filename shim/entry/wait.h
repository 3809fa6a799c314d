// Calls that wait for work. The thread that makes them brings in meanwhile what is foretold.
#pragma once

#include "shim/device/cuda_api.h"

namespace lms::session {
class Session;
}

namespace lms::entry {

// For a call that is about to wait in the driver for what `stream` (resolved: program/streams.h) was given.
// Comes back when that is over, nothing is foretold, or something is being captured.
void move_ahead_while_busy(CUstream stream);

// The same for what any stream of the session's GPU was given.
void move_ahead_while_busy(session::Session& session);

// Waits in the driver for what work given to `stream` (of the current context) would wait for: also for what
// other streams were given, if it is a default one.
CUresult wait_for_earlier(CUstream stream);

}  // namespace lms::entry
