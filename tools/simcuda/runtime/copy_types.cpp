#include "tools/simcuda/array_format.h"
#include "tools/simcuda/runtime/copy.h"
#include "tools/simcuda/runtime/error.h"

namespace simcuda::runtime {
namespace {

void* pointer(CUmemorytype type, const void* host, CUdeviceptr device) {
    if (type == CU_MEMORYTYPE_ARRAY) return nullptr;
    return type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host) : reinterpret_cast<void*>(device);
}

// A pitch of 0 leaves it to the driver.
void require_wide_enough(const cudaPitchedPtr& side, const cudaExtent& extent) {
    require(side.ptr == nullptr || side.pitch == 0 || extent.width <= side.pitch, cudaErrorInvalidPitchValue);
}

cudaMemcpyKind kind(CUmemorytype from, CUmemorytype to) {
    if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED) return cudaMemcpyDefault;
    if (from == CU_MEMORYTYPE_HOST)
        return to == CU_MEMORYTYPE_HOST ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
    return to == CU_MEMORYTYPE_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

}  // namespace

MemoryTypes memory_types(cudaMemcpyKind kind) {
    switch (kind) {
        case cudaMemcpyHostToHost:
            return {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST};
        case cudaMemcpyHostToDevice:
            return {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE};
        case cudaMemcpyDeviceToHost:
            return {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST};
        case cudaMemcpyDeviceToDevice:
            return {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE};
        case cudaMemcpyDefault:
            return {CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED};
    }
    throw Failure{cudaErrorInvalidMemcpyDirection};
}

CUDA_MEMCPY2D pitched_copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                           std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    require(width <= to_pitch && width <= from_pitch, cudaErrorInvalidPitchValue);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = memory_types(kind).from;
    copy.srcHost = from;
    copy.srcDevice = reinterpret_cast<CUdeviceptr>(from);
    copy.srcPitch = from_pitch;
    copy.dstMemoryType = memory_types(kind).to;
    copy.dstHost = to;
    copy.dstDevice = reinterpret_cast<CUdeviceptr>(to);
    copy.dstPitch = to_pitch;
    copy.WidthInBytes = width;
    copy.Height = height;
    return copy;
}

CUDA_MEMCPY2D to_array(CUDA_MEMCPY2D copy, cudaArray_const_t array, std::size_t x, std::size_t y) {
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
    copy.dstXInBytes = x;
    copy.dstY = y;
    return copy;
}

CUDA_MEMCPY2D from_array(CUDA_MEMCPY2D copy, cudaArray_const_t array, std::size_t x, std::size_t y) {
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
    copy.srcXInBytes = x;
    copy.srcY = y;
    return copy;
}

std::size_t element_bytes(const Driver& cu, CUarray array) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    require(cu.cuArray3DGetDescriptor_v2(&descriptor, array));
    const unsigned channel = channel_bytes(descriptor.Format);
    require(channel != 0, cudaErrorNotSupported);
    return std::size_t{channel} * descriptor.NumChannels;
}

CUDA_MEMCPY3D to_driver(const Driver& cu, const cudaMemcpy3DParms& copy) {
    auto [from, to] = memory_types(copy.kind);
    auto from_array = reinterpret_cast<CUarray>(copy.srcArray);
    auto to_array = reinterpret_cast<CUarray>(copy.dstArray);
    require((from_array != nullptr) != (copy.srcPtr.ptr != nullptr), cudaErrorInvalidValue);
    require((to_array != nullptr) != (copy.dstPtr.ptr != nullptr), cudaErrorInvalidValue);
    require_wide_enough(copy.srcPtr, copy.extent);
    require_wide_enough(copy.dstPtr, copy.extent);
    // With an array at either end, widths are in its elements; so are offsets into an array.
    std::size_t from_element = from_array ? element_bytes(cu, from_array) : 1;
    std::size_t to_element = to_array ? element_bytes(cu, to_array) : 1;

    CUDA_MEMCPY3D out{};
    out.srcXInBytes = copy.srcPos.x * from_element;
    out.srcY = copy.srcPos.y;
    out.srcZ = copy.srcPos.z;
    out.srcMemoryType = from_array ? CU_MEMORYTYPE_ARRAY : from;
    out.srcArray = from_array;
    out.srcHost = copy.srcPtr.ptr;
    out.srcDevice = reinterpret_cast<CUdeviceptr>(copy.srcPtr.ptr);
    out.srcPitch = copy.srcPtr.pitch;
    out.srcHeight = copy.srcPtr.ysize;
    out.dstXInBytes = copy.dstPos.x * to_element;
    out.dstY = copy.dstPos.y;
    out.dstZ = copy.dstPos.z;
    out.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : to;
    out.dstArray = to_array;
    out.dstHost = copy.dstPtr.ptr;
    out.dstDevice = reinterpret_cast<CUdeviceptr>(copy.dstPtr.ptr);
    out.dstPitch = copy.dstPtr.pitch;
    out.dstHeight = copy.dstPtr.ysize;
    out.WidthInBytes = copy.extent.width * (from_array ? from_element : to_element);
    out.Height = copy.extent.height;
    out.Depth = copy.extent.depth;
    return out;
}

cudaMemcpy3DParms to_runtime(const Driver& cu, const CUDA_MEMCPY3D& copy) {
    std::size_t from_element = copy.srcArray ? element_bytes(cu, copy.srcArray) : 1;
    std::size_t to_element = copy.dstArray ? element_bytes(cu, copy.dstArray) : 1;
    cudaMemcpy3DParms out{};
    out.srcArray = reinterpret_cast<cudaArray_t>(copy.srcArray);
    out.srcPos = {copy.srcXInBytes / from_element, copy.srcY, copy.srcZ};
    out.srcPtr = {pointer(copy.srcMemoryType, copy.srcHost, copy.srcDevice), copy.srcPitch, copy.srcPitch,
                  copy.srcHeight};
    out.dstArray = reinterpret_cast<cudaArray_t>(copy.dstArray);
    out.dstPos = {copy.dstXInBytes / to_element, copy.dstY, copy.dstZ};
    out.dstPtr = {pointer(copy.dstMemoryType, copy.dstHost, copy.dstDevice), copy.dstPitch, copy.dstPitch,
                  copy.dstHeight};
    out.extent = {copy.WidthInBytes / (copy.srcArray ? from_element : to_element), copy.Height, copy.Depth};
    out.kind = kind(copy.srcMemoryType, copy.dstMemoryType);
    return out;
}

CUDA_MEMCPY3D linear_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    auto [from_type, to_type] = memory_types(kind);
    require(bytes != 0, cudaErrorInvalidValue);
    CUDA_MEMCPY3D out{};
    out.srcMemoryType = from_type;
    out.srcHost = from;
    out.srcDevice = reinterpret_cast<CUdeviceptr>(from);
    out.srcPitch = bytes;
    out.srcHeight = 1;
    out.dstMemoryType = to_type;
    out.dstHost = to;
    out.dstDevice = reinterpret_cast<CUdeviceptr>(to);
    out.dstPitch = bytes;
    out.dstHeight = 1;
    out.WidthInBytes = bytes;
    out.Height = 1;
    out.Depth = 1;
    return out;
}

}  // namespace simcuda::runtime
