// The default streams that threads have of their own, one in each context. Others have no handle for them, so
// they are told apart by numbers.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/device/cuda_api.h"

namespace lms::program {

// No number is given twice, and none is a pointer's value: their highest bit is set.
using PerThreadStream = std::uint64_t;

// All of these are for the process, and thread-safe.

// The calling thread's in `context`.
PerThreadStream per_thread_stream(CUcontext context);
// False of one whose thread has ended or whose context is gone; true of whatever is no number of these.
bool per_thread_stream_lives(PerThreadStream stream);
void per_thread_streams_gone_with(CUcontext context);
// How often threads and contexts have gone that had some.
std::uint64_t per_thread_streams_gone();

// A thread has submitted work to its own without a look, which other threads cannot ask how far it is.
inline constinit std::atomic<bool> per_thread_streams_used{false};
// Or has submitted some beside moves.
inline constinit std::atomic<bool> per_thread_streams_used_beside_moves{false};
inline void note_use_beside_moves(CUstream stream) {
    if (stream == CU_STREAM_PER_THREAD) per_thread_streams_used_beside_moves.store(true);
}
// captures_since_none() when one did so last while a capture was under way, and it could not be fenced.
inline constinit std::atomic<std::uint64_t> per_thread_streams_unfenced_at{0};

}  // namespace lms::program
