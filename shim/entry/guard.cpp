#include "shim/entry/guard.h"

#include <atomic>
#include <new>

#include "shim/executor/own_moves.h"
#include "shim/util/log.h"

namespace lms::entry {

CUresult answer_to(const std::exception& error) noexcept {
    if (dynamic_cast<const std::bad_alloc*>(&error)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (dynamic_cast<const executor::WaitsForItself*>(&error)) {
        if (static std::atomic<bool> said; log::once(said))
            log::warn(
                "a signal handler called CUDA in a thread that it had interrupted while memory moves: the "
                "call "
                "fails with CUDA_ERROR_NOT_PERMITTED");
        return CUDA_ERROR_NOT_PERMITTED;
    }
    log::error("internal error: {}; the call fails with CUDA_ERROR_UNKNOWN, please report it", error.what());
    return CUDA_ERROR_UNKNOWN;
}

}  // namespace lms::entry
