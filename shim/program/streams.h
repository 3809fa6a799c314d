// The program's streams. Work submitted while nothing moved left no fences, so once something is to move,
// every stream that may still hold some is asked.
#pragma once

#include <atomic>
#include <vector>

#include "shim/device/cuda_api.h"
#include "shim/program/handles.h"

namespace lms::program {

// Thread-safe, for the process: a stream may be older than any session.
void stream_created(CUstream stream, CUcontext context);
// Its streams are gone with it: those that were known.
std::vector<CUstream> streams_destroyed_with(CUcontext context);

struct KnownStream {
    CUstream stream;
    CUcontext context;
};
// Streams created and not destroyed.
std::vector<KnownStream> known_streams();
// Work may be in other streams: these were destroyed before it was over, or a call that the shim does not
// know made them.
inline constinit std::atomic<bool> streams_unlisted{false};
// The context of one of them; null if it is none.
CUcontext context_of_known(CUstream stream);

using Streams = Handles<CUstream, CUcontext>;
Streams& streams();

// While it lives, the handle of a stream that another thread may destroy can be given to the driver.
struct StreamUse : Streams::Use {
    explicit StreamUse(CUstream stream) : Use(streams(), stream) {}
};

// Around the call that destroys a stream. What the stream was given is fenced before forget(): a session that
// asked for known_streams() in between would otherwise take that work for over.
struct StreamEnd : Streams::Retire {
    explicit StreamEnd(CUstream stream) : Retire(streams(), stream) {}
};

}  // namespace lms::program
