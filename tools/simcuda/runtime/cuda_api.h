// The runtime's and the driver's headers, with every ABI version and both default-stream forms under their
// exported names, and every function they declare exported.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // otherwise macros rename cuMemAlloc to cuMemAlloc_v2 and so on

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // deprecated functions are exported like the rest

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop
