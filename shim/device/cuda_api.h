// cuda.h as the shim needs it: every versioned name visible as itself.
//
// Without __CUDA_API_VERSION_INTERNAL the header renames (cuMemAlloc becomes cuMemAlloc_v2) and hides older
// ABIs. With it, `cuMemAlloc` is the ABI of CUDA 2.0 and `cuMemAlloc_v2` is what programs use today: always
// spell the version. The visibility macro makes a definition of an entry point an export, although the shim
// is built hidden.
#pragma once

#if defined(__cuda_cuda_h__) && !defined(__CUDA_API_VERSION_INTERNAL)
#error "include shim/device/cuda_api.h before cuda.h"
#endif

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
// Keeps the *_MAX enumerators out, which would differ between translation units.
#ifndef __CUDA_API_VERSION_INTERNAL_ODR
#define __CUDA_API_VERSION_INTERNAL_ODR
#endif
#ifndef __CUDA_API_PUSH_VISIBILITY_DEFAULT
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#endif

#include <cuda.h>
#include <cudaProfiler.h>

namespace lms::device {

// The driver's answer to what a stream capture forbids.
inline bool about_capture(CUresult status) {
    return status >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           status <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace lms::device
