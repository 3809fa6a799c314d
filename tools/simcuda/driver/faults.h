// What a fault in the middle of work does.
#pragma once

#include "tools/simcuda/address.h"

namespace simcuda::driver {

class Context;

// `what` touched memory that is not there: fails the context with CUDA_ERROR_ILLEGAL_ADDRESS and notes it for
// the log and the report.
void fail_at(Context& context, const char* what, DeviceAddress address);

}  // namespace simcuda::driver
