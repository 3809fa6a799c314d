// cudaMemcpy* between pointers, pitched memory and arrays, in both forms.
#include "tools/simcuda/runtime/copy.h"

#include <algorithm>

namespace simcuda::runtime {
namespace {

CUdeviceptr device(const void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

template <Form form>
cudaError_t memcpy_sync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) { return copy_1d<form>(cu, to, from, bytes, kind); });
}

template <Form form>
cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
    return run([&](const Driver& cu) { return copy_1d_async<form>(cu, to, from, bytes, kind, stream); });
}

CUDA_MEMCPY2D pitched_copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                           std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    require(width <= to_pitch && width <= from_pitch, cudaErrorInvalidPitchValue);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = memory_types(kind).from;
    copy.srcHost = from;
    copy.srcDevice = device(from);
    copy.srcPitch = from_pitch;
    copy.dstMemoryType = memory_types(kind).to;
    copy.dstHost = to;
    copy.dstDevice = device(to);
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

template <Form form>
CUresult copy_2d(const Driver& cu, const CUDA_MEMCPY2D& copy) {
    if (copy.WidthInBytes == 0 || copy.Height == 0) return CUDA_SUCCESS;
    return RT_DRIVER(cu, form, cuMemcpy2DUnaligned_v2, _ptds)(&copy);
}

template <Form form>
CUresult copy_2d_async(const Driver& cu, const CUDA_MEMCPY2D& copy, cudaStream_t stream) {
    if (copy.WidthInBytes == 0 || copy.Height == 0) return CUDA_SUCCESS;
    return RT_DRIVER(cu, form, cuMemcpy2DAsync_v2, _ptsz)(&copy, stream);
}

template <Form form>
cudaError_t memcpy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                      std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return copy_2d<form>(cu, pitched_copy(to, to_pitch, from, from_pitch, width, height, kind));
    });
}

template <Form form>
cudaError_t memcpy_2d_async(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                            std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        return copy_2d_async<form>(cu, pitched_copy(to, to_pitch, from, from_pitch, width, height, kind),
                                   stream);
    });
}

template <Form form>
cudaError_t memcpy_2d_to_array(cudaArray_t array, std::size_t x, std::size_t y, const void* from,
                               std::size_t pitch, std::size_t width, std::size_t height,
                               cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        auto copy = pitched_copy(nullptr, width, from, pitch, width, height, kind);
        return copy_2d<form>(cu, to_array(copy, array, x, y));
    });
}

template <Form form>
cudaError_t memcpy_2d_to_array_async(cudaArray_t array, std::size_t x, std::size_t y, const void* from,
                                     std::size_t pitch, std::size_t width, std::size_t height,
                                     cudaMemcpyKind kind, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        auto copy = pitched_copy(nullptr, width, from, pitch, width, height, kind);
        return copy_2d_async<form>(cu, to_array(copy, array, x, y), stream);
    });
}

template <Form form>
cudaError_t memcpy_2d_from_array(void* to, std::size_t pitch, cudaArray_const_t array, std::size_t x,
                                 std::size_t y, std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        auto copy = pitched_copy(to, pitch, nullptr, width, width, height, kind);
        return copy_2d<form>(cu, from_array(copy, array, x, y));
    });
}

template <Form form>
cudaError_t memcpy_2d_from_array_async(void* to, std::size_t pitch, cudaArray_const_t array, std::size_t x,
                                       std::size_t y, std::size_t width, std::size_t height,
                                       cudaMemcpyKind kind, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        auto copy = pitched_copy(to, pitch, nullptr, width, width, height, kind);
        return copy_2d_async<form>(cu, from_array(copy, array, x, y), stream);
    });
}

template <Form form>
cudaError_t memcpy_2d_array_to_array(cudaArray_t to, std::size_t to_x, std::size_t to_y,
                                     cudaArray_const_t from, std::size_t from_x, std::size_t from_y,
                                     std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        auto copy = pitched_copy(nullptr, width, nullptr, width, width, height, kind);
        return copy_2d<form>(cu, from_array(to_array(copy, to, to_x, to_y), from, from_x, from_y));
    });
}

// The old linear forms: bytes in the order of the array's rows, which may begin and end inside one.
template <class CopyRows>
CUresult by_rows(const Driver& cu, cudaArray_const_t array, std::size_t x, std::size_t y, std::size_t bytes,
                 CopyRows copy_rows) {
    auto handle = reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    require(cu.cuArray3DGetDescriptor_v2(&descriptor, handle));
    std::size_t row = descriptor.Width * element_bytes(cu, handle);
    std::size_t done = 0;
    while (done < bytes) {
        std::size_t left = bytes - done;
        bool whole = x == 0 && left >= row;
        std::size_t width = whole ? row : std::min(left, row - x);
        std::size_t height = whole ? left / row : 1;
        CUresult result = copy_rows(x, y, done, width, height);
        if (result != CUDA_SUCCESS) return result;
        done += width * height;
        y += height;
        x = 0;
    }
    return CUDA_SUCCESS;
}

template <Form form>
cudaError_t memcpy_to_array(cudaArray_t array, std::size_t x, std::size_t y, const void* from,
                            std::size_t bytes, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return by_rows(cu, array, x, y, bytes, [&](auto at_x, auto at_y, auto done, auto width, auto height) {
            auto copy = pitched_copy(nullptr, width, static_cast<const char*>(from) + done, width, width,
                                     height, kind);
            return copy_2d<form>(cu, to_array(copy, array, at_x, at_y));
        });
    });
}

template <Form form>
cudaError_t memcpy_from_array(void* to, cudaArray_const_t array, std::size_t x, std::size_t y,
                              std::size_t bytes, cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        return by_rows(cu, array, x, y, bytes, [&](auto at_x, auto at_y, auto done, auto width, auto height) {
            auto copy =
                pitched_copy(static_cast<char*>(to) + done, width, nullptr, width, width, height, kind);
            return copy_2d<form>(cu, from_array(copy, array, at_x, at_y));
        });
    });
}

bool empty(const cudaExtent& extent) {
    return extent.width == 0 || extent.height == 0 || extent.depth == 0;
}

template <Form form>
cudaError_t memcpy_3d(const cudaMemcpy3DParms* parameters) {
    return run([&](const Driver& cu) {
        require(parameters != nullptr, cudaErrorInvalidValue);
        if (empty(parameters->extent)) return CUDA_SUCCESS;
        CUDA_MEMCPY3D copy = to_driver(cu, *parameters);
        return RT_DRIVER(cu, form, cuMemcpy3D_v2, _ptds)(&copy);
    });
}

template <Form form>
cudaError_t memcpy_3d_async(const cudaMemcpy3DParms* parameters, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        require(parameters != nullptr, cudaErrorInvalidValue);
        if (empty(parameters->extent)) return CUDA_SUCCESS;
        CUDA_MEMCPY3D copy = to_driver(cu, *parameters);
        return RT_DRIVER(cu, form, cuMemcpy3DAsync_v2, _ptsz)(&copy, stream);
    });
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

RT_EXPORT_STREAM(cudaMemcpy, _ptds, memcpy_sync)
RT_EXPORT_STREAM(cudaMemcpyAsync, _ptsz, memcpy_async)
RT_EXPORT_STREAM(cudaMemcpy2D, _ptds, memcpy_2d)
RT_EXPORT_STREAM(cudaMemcpy2DAsync, _ptsz, memcpy_2d_async)
RT_EXPORT_STREAM(cudaMemcpy2DToArray, _ptds, memcpy_2d_to_array)
RT_EXPORT_STREAM(cudaMemcpy2DToArrayAsync, _ptsz, memcpy_2d_to_array_async)
RT_EXPORT_STREAM(cudaMemcpy2DFromArray, _ptds, memcpy_2d_from_array)
RT_EXPORT_STREAM(cudaMemcpy2DFromArrayAsync, _ptsz, memcpy_2d_from_array_async)
RT_EXPORT_STREAM(cudaMemcpy2DArrayToArray, _ptds, memcpy_2d_array_to_array)
RT_EXPORT_STREAM(cudaMemcpyToArray, _ptds, memcpy_to_array)
RT_EXPORT_STREAM(cudaMemcpyFromArray, _ptds, memcpy_from_array)
RT_EXPORT_STREAM(cudaMemcpy3D, _ptds, memcpy_3d)
RT_EXPORT_STREAM(cudaMemcpy3DAsync, _ptsz, memcpy_3d_async)

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, std::size_t bytes) {
    return run([&](const Driver& cu) {
        if (bytes == 0) return CUDA_SUCCESS;
        return cu.cuMemcpyPeer(device(to), primary_context(cu, to_device), device(from),
                               primary_context(cu, from_device), bytes);
    });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream) {
    return run([&](const Driver& cu) {
        if (bytes == 0) return CUDA_SUCCESS;
        return cu.cuMemcpyPeerAsync(device(to), primary_context(cu, to_device), device(from),
                                    primary_context(cu, from_device), bytes, stream);
    });
}
