#include "tools/simcuda/driver/unimplemented.h"

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/report.h"

namespace simcuda::driver {

int unimplemented_entry(unsigned entry) noexcept {
    const auto which = static_cast<Entry>(entry);
    if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
    if (count_call(which) == 1) message("%s is not simulated: CUDA_ERROR_NOT_SUPPORTED", info(which).symbol);
    log_call(which, CUDA_ERROR_NOT_SUPPORTED);
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace simcuda::driver
