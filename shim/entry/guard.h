// Around every hook's body.
#pragma once

#include <exception>
#include <utility>

#include "shim/device/cuda_api.h"
#include "shim/session/managed.h"
#include "shim/util/not_cancelled.h"
#include "shim/util/reserve.h"

namespace lms::entry {

// What the program is answered where a hook's body threw that.
CUresult answer_to(const std::exception& error) noexcept;

// Runs a hook's body; nothing it throws reaches the program, and no thread is cancelled in it. In a child of
// fork it is refused as CUDA does there.
template <typename Body>
CUresult guarded(Body&& body) noexcept {
    if (session::in_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
    const util::NotCancelled whole;
    try {
        return body();
    } catch (const std::exception& error) {
        return answer_to(error);
    }
}

// The same of a hook by which the program comes to hold more of something.
template <typename Body>
CUresult guarded_taking(Body&& body) noexcept {
    return util::out_of_memory() ? CUDA_ERROR_OUT_OF_MEMORY : guarded(std::forward<Body>(body));
}

// The same of one that ends what `handle` is, by `call`. What is known of it goes before, for the driver may
// give the handle out again at once, and comes back if that refuses (End).
template <typename End, typename Handle, typename Call>
CUresult guarded_end(Handle handle, Call&& call) noexcept {
    return guarded([&] {
        End end(handle);
        const CUresult status = call();
        if (status != CUDA_SUCCESS) end.refused();
        return status;
    });
}

}  // namespace lms::entry
