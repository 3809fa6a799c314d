#pragma once

#include "tools/simcuda/driver/cuda_api.h"

namespace simcuda::driver {

const char* error_name(CUresult code);  // "CUDA_ERROR_...", or "?" for a code there is not

}  // namespace simcuda::driver
