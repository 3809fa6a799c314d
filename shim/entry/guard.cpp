#include "shim/entry/guard.h"

#include <new>

#include "shim/util/log.h"

namespace lms::entry {

CUresult answer_to(const std::exception& error) noexcept {
    if (dynamic_cast<const std::bad_alloc*>(&error)) return CUDA_ERROR_OUT_OF_MEMORY;
    log::error("internal error: {}; the call fails with CUDA_ERROR_UNKNOWN, please report it", error.what());
    return CUDA_ERROR_UNKNOWN;
}

}  // namespace lms::entry
