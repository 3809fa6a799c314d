// What stands around every hook's body.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "shim/device/cuda_api.h"
#include "shim/session/sessions.h"
#include "shim/util/log.h"
#include "shim/util/reserve.h"

namespace lms::entry {

// Runs a hook's body; nothing it throws reaches the app. In a child of fork it is refused as CUDA does there.
template <typename Body>
CUresult guarded(Body&& body) noexcept {
    if (engine::in_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        log::error("internal error: {}; the call fails with CUDA_ERROR_UNKNOWN, please report it",
                   error.what());
        return CUDA_ERROR_UNKNOWN;
    }
}

// The same of a hook by which the program comes to hold more of something.
template <typename Body>
CUresult guarded_taking(Body&& body) noexcept {
    return util::out_of_memory() ? CUDA_ERROR_OUT_OF_MEMORY : guarded(std::forward<Body>(body));
}

}  // namespace lms::entry
