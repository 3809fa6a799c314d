// For calls that a driver may refuse for a moment.
#pragma once

#include "shim/device/cuda_api.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::device {

// Makes `call` until `enough(its answer)`, for bounds::kRefused or so; what it answered last. Calls are
// counted, not time: a thread that was not run for long has not asked.
template <typename Call, typename Enough>
CUresult patiently(Call&& call, Enough&& enough) {
    for (auto left = bounds::kRefused / bounds::kQuickGlance;; --left) {
        const CUresult status = call();
        if (left == 0 || enough(status)) return status;
        util::pause(bounds::kQuickGlance);
    }
}

}  // namespace lms::device
