// The formats of array elements that are simulated, for the driver and the runtime alike.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL  // as in either's cuda_api.h, whichever comes first
#endif
#include <cuda.h>

namespace simcuda {

// Bytes of one channel; 0: not simulated, or no format at all.
constexpr unsigned channel_bytes(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return 4;
        default:
            return 0;
    }
}

}  // namespace simcuda
