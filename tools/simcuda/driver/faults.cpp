#include "tools/simcuda/driver/faults.h"

#include <cstdio>

#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/report.h"

namespace simcuda::driver {

void fail_at(Context& context, const char* what, DeviceAddress address) {
    char text[256];
    std::snprintf(text, sizeof text, "%s: illegal address 0x%llx", what,
                  static_cast<unsigned long long>(address));
    log_line(text);
    violation(text);
    context.fail(CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace simcuda::driver
