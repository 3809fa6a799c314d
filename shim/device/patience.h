// For calls that a driver may refuse for a moment.
#pragma once

#include <chrono>
#include <thread>

#include "shim/device/cuda_api.h"

namespace lms::device {

// Makes `call` until `enough(its answer)`, for about a second; what it answered last.
template <typename Call, typename Enough>
CUresult patiently(Call&& call, Enough&& enough) {
    for (int attempt = 0;; ++attempt) {
        const CUresult status = call();
        if (attempt == 1000 || enough(status)) return status;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace lms::device
