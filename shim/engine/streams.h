// The app's streams. Work submitted while nothing moved left no fences, so once something is to move, every
// stream that may still hold some is asked for one.
#pragma once

#include <vector>

#include "shim/device/cuda_api.h"

namespace lms::engine {

// Thread-safe, for the process: a stream may be older than any session.
void stream_created(CUstream stream, CUcontext context);
void stream_destroyed(CUstream stream);
// Its streams are gone with it.
void streams_destroyed_with(CUcontext context);
// Streams created and not destroyed.
std::vector<CUstream> known_streams();

}  // namespace lms::engine
