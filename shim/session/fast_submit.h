// The short cut of everything that submits work: while everything fits it goes to the driver without a look.
#pragma once

#include "shim/device/cuda_api.h"
#include "shim/program/capture.h"
#include "shim/program/fast_path.h"
#include "shim/program/per_thread_streams.h"
#include "shim/session/managed.h"
#include "shim/util/function_ref.h"

namespace lms::session {

// Submits work, or makes another call of the driver's that may need memory.
using Call = util::FunctionRef<CUresult()>;

inline CUstream resolve_stream(CUstream stream, bool per_thread) {
    if (stream) return stream;
    return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

// The calling thread has submitted work to its own stream while a capture is under way, which may forbid to
// wait for that through the legacy stream: leaves a fence behind it.
void fence_own_stream();

// Calls `call`, which submits work to `stream`, without a look at what it reaches, if nothing moves anywhere;
// `status` is then what it returned. False: it was not called, or the driver had no memory left for it and it
// must be tried with room made.
template <typename Callable>
[[gnu::always_inline]] inline bool try_fast_path(CUstream stream, Callable&& call, CUresult& status) {
    if (!program::fast_path_gate.enter()) return false;
    struct Leave {
        ~Leave() { program::fast_path_gate.leave(); }
    };
    const Leave leave;
    status = call();
    // After the call: a capture that nears fences what came before, or is seen here.
    if (stream == CU_STREAM_PER_THREAD) [[unlikely]] {
        // Threads share what they only read.
        if (!program::per_thread_streams_used.load()) program::per_thread_streams_used.store(true);
        if (program::capturing_anywhere()) fence_own_stream();
    }
    return status != CUDA_ERROR_OUT_OF_MEMORY || sessions().empty();
}

}  // namespace lms::session
