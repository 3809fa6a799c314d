#include "shim/engine/capture.h"

#include <atomic>

#include "shim/device/driver_table.h"

namespace lms::engine {

namespace {
std::atomic<int> captures{0};
}

void capture_began() {
    ++captures;
}
void capture_ended() {
    --captures;
}

bool capturing_anywhere() {
    return captures.load(std::memory_order_relaxed) > 0;
}

bool capturing(CUstream stream) {
    if (!capturing_anywhere()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = device::driver().cuStreamIsCapturing(stream, &status);
    // The legacy stream cannot tell while another stream's capture forbids it.
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace lms::engine
