// cudaMallocArray and its kin: arrays and mipmapped arrays.
#include "tools/simcuda/runtime/array.h"

#include <algorithm>
#include <iterator>

namespace simcuda::runtime {
namespace {

struct Row {
    cudaChannelFormatKind kind;
    int bits;
    CUarray_format format;
};

constexpr Row kRows[] = {
    {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
    {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
    {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
    {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
    {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
    {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
    {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
    {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
};

CUDA_ARRAY3D_DESCRIPTOR descriptor(const cudaChannelFormatDesc* channel, const cudaExtent& extent,
                                   unsigned flags) {
    require(channel != nullptr, cudaErrorInvalidValue);
    const Format format = driver_format(*channel);
    return {extent.width, extent.height, extent.depth, format.format, format.channels, flags};
}

CUDA_ARRAY3D_DESCRIPTOR descriptor_of(const Driver& cu, cudaArray_const_t array) {
    CUDA_ARRAY3D_DESCRIPTOR found{};
    require(cu.cuArray3DGetDescriptor_v2(&found, reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array))));
    return found;
}

CUarray driver_array(cudaArray_t array) {
    return reinterpret_cast<CUarray>(array);
}

CUmipmappedArray driver_array(cudaMipmappedArray_t array) {
    return reinterpret_cast<CUmipmappedArray>(array);
}

}  // namespace

Format driver_format(const cudaChannelFormatDesc& channel) {
    const int bits[] = {channel.x, channel.y, channel.z, channel.w};
    const auto first_empty = std::find(std::begin(bits), std::end(bits), 0);
    const auto channels = static_cast<unsigned>(first_empty - std::begin(bits));
    const bool exists = channel.f >= cudaChannelFormatKindSigned && channel.f != cudaChannelFormatKindNone &&
                        channel.f <= cudaChannelFormatKindUnsignedNormalized1010102;
    require(exists, cudaErrorInvalidValue);
    require(channel.f <= cudaChannelFormatKindFloat, cudaErrorNotSupported);
    require(channels == 1 || channels == 2 || channels == 4, cudaErrorInvalidChannelDescriptor);
    require(std::all_of(std::begin(bits), first_empty, [&](int b) { return b == channel.x; }) &&
                std::all_of(first_empty, std::end(bits), [](int b) { return b == 0; }),
            cudaErrorInvalidChannelDescriptor);
    const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& r) { return r.kind == channel.f && r.bits == channel.x; });
    require(row != std::end(kRows), cudaErrorInvalidChannelDescriptor);
    return {row->format, channels};
}

cudaChannelFormatDesc channel_of(const Format& format) {
    const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const Row& r) { return r.format == format.format; });
    require(row != std::end(kRows), cudaErrorNotSupported);
    const auto bits = [&](unsigned channel) { return channel < format.channels ? row->bits : 0; };
    return {bits(0), bits(1), bits(2), bits(3), row->kind};
}

}  // namespace simcuda::runtime

using namespace simcuda::runtime;

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* channel, std::size_t width,
                            std::size_t height, unsigned int flags) {
    return cudaMalloc3DArray(array, channel, {width, height, 0}, flags);
}

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* channel, cudaExtent extent,
                              unsigned int flags) {
    return run([&](const Driver& cu) {
        require(array != nullptr, cudaErrorInvalidValue);
        const CUDA_ARRAY3D_DESCRIPTOR wanted = descriptor(channel, extent, flags);
        return cu.cuArray3DCreate_v2(reinterpret_cast<CUarray*>(array), &wanted);
    });
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    return run([&](const Driver& cu) {
        return array != nullptr ? cu.cuArrayDestroy(driver_array(array)) : CUDA_SUCCESS;
    });
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* array, const cudaChannelFormatDesc* channel,
                                     cudaExtent extent, unsigned int levels, unsigned int flags) {
    return run([&](const Driver& cu) {
        require(array != nullptr, cudaErrorInvalidValue);
        const CUDA_ARRAY3D_DESCRIPTOR wanted = descriptor(channel, extent, flags);
        return cu.cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(array), &wanted, levels);
    });
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
    return run([&](const Driver& cu) {
        return array != nullptr ? cu.cuMipmappedArrayDestroy(driver_array(array)) : CUDA_SUCCESS;
    });
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t* array, cudaMipmappedArray_const_t mipmapped,
                                       unsigned int level) {
    return run([&](const Driver& cu) {
        require(array != nullptr, cudaErrorInvalidValue);
        return cu.cuMipmappedArrayGetLevel(reinterpret_cast<CUarray*>(array),
                                           driver_array(const_cast<cudaMipmappedArray_t>(mipmapped)), level);
    });
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* channel, cudaExtent* extent, unsigned int* flags,
                             cudaArray_t array) {
    return run([&](const Driver& cu) {
        const CUDA_ARRAY3D_DESCRIPTOR found = descriptor_of(cu, array);
        if (channel != nullptr) *channel = channel_of(Format{found.Format, found.NumChannels});
        if (extent != nullptr) *extent = {found.Width, found.Height, found.Depth};
        if (flags != nullptr) *flags = found.Flags;
        return CUDA_SUCCESS;
    });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* channel, cudaArray_const_t array) {
    return run([&](const Driver& cu) {
        require(channel != nullptr, cudaErrorInvalidValue);
        const CUDA_ARRAY3D_DESCRIPTOR found = descriptor_of(cu, array);
        *channel = channel_of(Format{found.Format, found.NumChannels});
        return CUDA_SUCCESS;
    });
}
