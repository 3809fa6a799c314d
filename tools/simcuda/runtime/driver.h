// The driver, as the runtime sees it: a table of its functions under their exported names.
//
// It is found the way NVIDIA's runtime finds it: dlopen("libcuda.so.1"), dlsym of cuGetProcAddress_v2 alone,
// then a query for each function by its base name and the CUDA version that introduced its ABI, with flags
// for the per-thread default stream. So whatever stands between a program and its driver stands here too.
#pragma once

#include "tools/simcuda/runtime/cuda_api.h"

namespace simcuda::runtime {

// A function the driver does not know answers CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER; none is ever null.
struct Driver {
#define LMS_ENTRY(symbol, base, introduced, stream, action) decltype(&::symbol) symbol;
#define LMS_INTEROP(symbol, base, introduced, stream, action)
#include "shim/entry_points.def"
};

// Loads the driver and initialises it at the first call; later ones, from any thread, return the same at
// once. Where that failed: null, and why in `error` (cudaErrorInsufficientDriver without a driver or with too
// old a one, or what cuInit answered).
const Driver* driver(cudaError_t& error);

}  // namespace simcuda::runtime
