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

#include <cstdint>

#include "shim/device/later_api.h"

namespace lms::device {

using Address = std::uint64_t;  // a device address

// The driver's answer to what a stream capture forbids.
inline bool about_capture(CUresult status) {
    return status >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           status <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

// After such an error nothing of the context works any more, and all its calls answer it.
inline bool is_sticky(CUresult status) {
    switch (status) {
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_CONTAINED:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_EXTERNAL_DEVICE:
        case CUDA_ERROR_TENSOR_MEMORY_LEAK:
        // Of a server that runs several programs on the GPU as one, and that has ended, or has ended this
        // one.
        case CUDA_ERROR_MPS_RPC_FAILURE:
        case CUDA_ERROR_MPS_CLIENT_TERMINATED:
            return true;
        default:
            return false;
    }
}

// Whether any call would be answered so: its context has failed, or it is made in a host callback.
inline bool refuses_all(CUresult status) {
    return is_sticky(status) || status == CUDA_ERROR_NOT_PERMITTED;
}

// The object of the call no longer exists, nor what it stood for.
inline bool is_gone(CUresult status) {
    return status == CUDA_ERROR_INVALID_HANDLE || status == CUDA_ERROR_INVALID_CONTEXT ||
           status == CUDA_ERROR_CONTEXT_IS_DESTROYED || status == CUDA_ERROR_DEINITIALIZED;
}

// Whether work may be unfinished, after this answer to a query of it. It is unfinished; or the query is
// forbidden (in a host function, beside a capture); or the answer says nothing of it. Otherwise none of it
// runs: it has passed, or its context has failed or is destroyed.
inline bool leaves_open(CUresult status) {
    return status != CUDA_SUCCESS && !is_sticky(status) && !is_gone(status);
}
inline bool says_nothing(CUresult status) {
    return leaves_open(status) && status != CUDA_ERROR_NOT_READY && status != CUDA_ERROR_NOT_PERMITTED &&
           !about_capture(status);
}

// What the program gets if a call of the shim's own fails in its place: its context's error, what a capture
// forbids it, or an error that it can expect of any call and survive.
inline CUresult as_told(CUresult status) {
    const bool its_own = status == CUDA_SUCCESS || refuses_all(status) || about_capture(status);
    return its_own ? status : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace lms::device
