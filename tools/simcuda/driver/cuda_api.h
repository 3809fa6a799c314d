// cuda.h with every ABI version under its exported name.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL  // without it the header's macros rename cuMemAlloc to cuMemAlloc_v2 and
                                     // so on
#endif
#include <cuda.h>
#include <cudaProfiler.h>
