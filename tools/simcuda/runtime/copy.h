// Copies, as the runtime describes them, in the driver's terms.
#pragma once

#include "tools/simcuda/runtime/call.h"

namespace simcuda::runtime {

// What the driver calls the two ends of a copy of this kind. Throws cudaErrorInvalidMemcpyDirection.
struct MemoryTypes {
    CUmemorytype from, to;
};
MemoryTypes memory_types(cudaMemcpyKind kind);

// A 2D or 3D copy. Throw Failure.
CUDA_MEMCPY3D to_driver(const Driver& cu, const cudaMemcpy3DParms& copy);
cudaMemcpy3DParms to_runtime(const Driver& cu, const CUDA_MEMCPY3D& copy);

// A 1D copy as graph nodes hold it, which is of some bytes. Throws Failure.
CUDA_MEMCPY3D linear_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);

// A 2D copy between pointers; then its ends may be put into arrays, at column `x` (in bytes) of row `y`.
// Throws cudaErrorInvalidPitchValue.
CUDA_MEMCPY2D pitched_copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                           std::size_t width, std::size_t height, cudaMemcpyKind kind);
CUDA_MEMCPY2D to_array(CUDA_MEMCPY2D copy, cudaArray_const_t array, std::size_t x, std::size_t y);
CUDA_MEMCPY2D from_array(CUDA_MEMCPY2D copy, cudaArray_const_t array, std::size_t x, std::size_t y);

// Bytes of an array's element. Throws Failure.
std::size_t element_bytes(const Driver& cu, CUarray array);

// A copy to or from a variable can be of this kind, between devices, or of the default one. Throws
// cudaErrorInvalidMemcpyDirection.
void require_device_end(cudaMemcpyKind kind, cudaMemcpyKind with_host);

// Where `offset` bytes into a registered variable are, for an access to `bytes` of it. Throws Failure.
void* within_symbol(const Driver& cu, const void* stand_in, std::size_t offset, std::size_t bytes);

template <Form form>
CUresult copy_1d(const Driver& cu, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    memory_types(kind);  // refuses what is no kind
    if (bytes == 0) return CUDA_SUCCESS;
    switch (kind) {
        case cudaMemcpyHostToDevice:
            return RT_DRIVER(cu, form, cuMemcpyHtoD_v2, _ptds)(as<CUdeviceptr>(to), from, bytes);
        case cudaMemcpyDeviceToHost:
            return RT_DRIVER(cu, form, cuMemcpyDtoH_v2, _ptds)(to, as<CUdeviceptr>(from), bytes);
        case cudaMemcpyDeviceToDevice:
            return RT_DRIVER(cu, form, cuMemcpyDtoD_v2, _ptds)(as<CUdeviceptr>(to), as<CUdeviceptr>(from),
                                                               bytes);
        default:
            return RT_DRIVER(cu, form, cuMemcpy, _ptds)(as<CUdeviceptr>(to), as<CUdeviceptr>(from), bytes);
    }
}

template <Form form>
CUresult copy_1d_async(const Driver& cu, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream) {
    memory_types(kind);
    if (bytes == 0) return CUDA_SUCCESS;
    switch (kind) {
        case cudaMemcpyHostToDevice:
            return RT_DRIVER(cu, form, cuMemcpyHtoDAsync_v2, _ptsz)(as<CUdeviceptr>(to), from, bytes, stream);
        case cudaMemcpyDeviceToHost:
            return RT_DRIVER(cu, form, cuMemcpyDtoHAsync_v2, _ptsz)(to, as<CUdeviceptr>(from), bytes, stream);
        case cudaMemcpyDeviceToDevice:
            return RT_DRIVER(cu, form, cuMemcpyDtoDAsync_v2, _ptsz)(as<CUdeviceptr>(to),
                                                                    as<CUdeviceptr>(from), bytes, stream);
        default:
            return RT_DRIVER(cu, form, cuMemcpyAsync, _ptsz)(as<CUdeviceptr>(to), as<CUdeviceptr>(from),
                                                             bytes, stream);
    }
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

}  // namespace simcuda::runtime
