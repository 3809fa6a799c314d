// For calls that a driver may refuse for a moment.
#pragma once

#include "shim/device/cuda_api.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::device {

// Makes `call` until `enough(its answer)`, for so long at most; what it answered last.
template <typename Call, typename Enough>
CUresult patiently(Call&& call, Enough&& enough) {
    for (const auto deadline = util::Clock::now() + bounds::kRefused;; util::pause(bounds::kQuickGlance)) {
        const CUresult status = call();
        if (enough(status) || util::Clock::now() >= deadline) return status;
    }
}

}  // namespace lms::device
