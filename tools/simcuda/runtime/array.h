// Formats of array elements, as the runtime and as the driver describe them.
#pragma once

#include "tools/simcuda/runtime/call.h"

namespace simcuda::runtime {

struct Format {
    CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT8;  // of a channel
    unsigned channels = 0;
};

// Throw Failure: cudaErrorInvalidChannelDescriptor for what is no element, cudaErrorNotSupported for
// compressed, planar and normalised ones.
Format driver_format(const cudaChannelFormatDesc& channel);
cudaChannelFormatDesc channel_of(const Format& format);

}  // namespace simcuda::runtime
