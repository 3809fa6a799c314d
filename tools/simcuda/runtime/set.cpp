// cudaMemset*, in both forms.
#include "tools/simcuda/runtime/call.h"

namespace simcuda::runtime {
namespace {

CUdeviceptr device(const void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

template <Form form>
cudaError_t set_1d(void* memory, int value, std::size_t bytes) {
    return run([&](const Driver& cu) {
        if (bytes == 0) return CUDA_SUCCESS;
        return RT_DRIVER(cu, form, cuMemsetD8_v2, _ptds)(device(memory), static_cast<unsigned char>(value),
                                                         bytes);
    });
}

template <Form form>
cudaError_t set_1d_async(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        if (bytes == 0) return CUDA_SUCCESS;
        return RT_DRIVER(cu, form, cuMemsetD8Async, _ptsz)(device(memory), static_cast<unsigned char>(value),
                                                           bytes, stream);
    });
}

template <Form form>
cudaError_t set_2d(void* memory, std::size_t pitch, int value, std::size_t width, std::size_t height) {
    return run([&](const Driver& cu) {
        if (width == 0 || height == 0) return CUDA_SUCCESS;
        return RT_DRIVER(cu, form, cuMemsetD2D8_v2, _ptds)(device(memory), pitch,
                                                           static_cast<unsigned char>(value), width, height);
    });
}

template <Form form>
cudaError_t set_2d_async(void* memory, std::size_t pitch, int value, std::size_t width, std::size_t height,
                         cudaStream_t stream) {
    return run([&](const Driver& cu) {
        if (width == 0 || height == 0) return CUDA_SUCCESS;
        return RT_DRIVER(cu, form, cuMemsetD2D8Async, _ptsz)(
            device(memory), pitch, static_cast<unsigned char>(value), width, height, stream);
    });
}

// The driver has no 3D form. Slices that follow one another without a gap are one rectangle.
template <class SetRectangle>
CUresult by_slices(const cudaPitchedPtr& memory, const cudaExtent& extent, SetRectangle set) {
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
    if (extent.height == memory.ysize) return set(device(memory.ptr), extent.height * extent.depth);
    for (std::size_t z = 0; z < extent.depth; ++z) {
        CUresult result = set(device(memory.ptr) + z * memory.pitch * memory.ysize, extent.height);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

template <Form form>
cudaError_t set_3d(cudaPitchedPtr memory, int value, cudaExtent extent) {
    return run([&](const Driver& cu) {
        return by_slices(memory, extent, [&](CUdeviceptr at, std::size_t height) {
            return RT_DRIVER(cu, form, cuMemsetD2D8_v2, _ptds)(
                at, memory.pitch, static_cast<unsigned char>(value), extent.width, height);
        });
    });
}

template <Form form>
cudaError_t set_3d_async(cudaPitchedPtr memory, int value, cudaExtent extent, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        return by_slices(memory, extent, [&](CUdeviceptr at, std::size_t height) {
            return RT_DRIVER(cu, form, cuMemsetD2D8Async, _ptsz)(
                at, memory.pitch, static_cast<unsigned char>(value), extent.width, height, stream);
        });
    });
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

RT_EXPORT_STREAM(cudaMemset, _ptds, set_1d)
RT_EXPORT_STREAM(cudaMemsetAsync, _ptsz, set_1d_async)
RT_EXPORT_STREAM(cudaMemset2D, _ptds, set_2d)
RT_EXPORT_STREAM(cudaMemset2DAsync, _ptsz, set_2d_async)
RT_EXPORT_STREAM(cudaMemset3D, _ptds, set_3d)
RT_EXPORT_STREAM(cudaMemset3DAsync, _ptsz, set_3d_async)
