// cudaMemcpy* between pointers, pitched memory and arrays, in both forms.
#include "tools/simcuda/runtime/copy.h"

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

CUDA_MEMCPY3D_PEER to_driver(const Driver& cu, const cudaMemcpy3DPeerParms* p) {
    require(p != nullptr, cudaErrorInvalidValue);
    const CUDA_MEMCPY3D copy =
        to_driver(cu, cudaMemcpy3DParms{p->srcArray, p->srcPos, p->srcPtr, p->dstArray, p->dstPos, p->dstPtr,
                                        p->extent, cudaMemcpyDeviceToDevice});
    CUDA_MEMCPY3D_PEER out{};
    out.srcXInBytes = copy.srcXInBytes;
    out.srcY = copy.srcY;
    out.srcZ = copy.srcZ;
    out.srcMemoryType = copy.srcMemoryType;
    out.srcDevice = copy.srcDevice;
    out.srcArray = copy.srcArray;
    out.srcContext = primary_context(cu, p->srcDevice);
    out.srcPitch = copy.srcPitch;
    out.srcHeight = copy.srcHeight;
    out.dstXInBytes = copy.dstXInBytes;
    out.dstY = copy.dstY;
    out.dstZ = copy.dstZ;
    out.dstMemoryType = copy.dstMemoryType;
    out.dstDevice = copy.dstDevice;
    out.dstArray = copy.dstArray;
    out.dstContext = primary_context(cu, p->dstDevice);
    out.dstPitch = copy.dstPitch;
    out.dstHeight = copy.dstHeight;
    out.WidthInBytes = copy.WidthInBytes;
    out.Height = copy.Height;
    out.Depth = copy.Depth;
    return out;
}

template <Form form>
cudaError_t memcpy_3d_peer(const cudaMemcpy3DPeerParms* parameters) {
    return run([&](const Driver& cu) {
        const CUDA_MEMCPY3D_PEER copy = to_driver(cu, parameters);
        if (empty(parameters->extent)) return CUDA_SUCCESS;
        return RT_DRIVER(cu, form, cuMemcpy3DPeer, _ptds)(&copy);
    });
}

template <Form form>
cudaError_t memcpy_3d_peer_async(const cudaMemcpy3DPeerParms* parameters, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        const CUDA_MEMCPY3D_PEER copy = to_driver(cu, parameters);
        if (empty(parameters->extent)) return CUDA_SUCCESS;
        return RT_DRIVER(cu, form, cuMemcpy3DPeerAsync, _ptsz)(&copy, stream);
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
RT_EXPORT_STREAM(cudaMemcpy3D, _ptds, memcpy_3d)
RT_EXPORT_STREAM(cudaMemcpy3DAsync, _ptsz, memcpy_3d_async)
RT_EXPORT_STREAM(cudaMemcpy3DPeer, _ptds, memcpy_3d_peer)
RT_EXPORT_STREAM(cudaMemcpy3DPeerAsync, _ptsz, memcpy_3d_peer_async)

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
