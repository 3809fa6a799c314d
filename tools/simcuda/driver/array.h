// CUDA arrays: what a CUarray and a CUmipmappedArray point to. Rows of elements in device memory, which
// programs reach by copies, textures and surfaces only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/simcuda/array_format.h"
#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/memory.h"

namespace simcuda::driver {

class Context;

// Bytes of one channel. Throws Failure with CUDA_ERROR_INVALID_VALUE for no format, CUDA_ERROR_NOT_SUPPORTED
// for those that are compressed, planar or normalised.
unsigned checked_channel_bytes(CUarray_format format);

// Immutable. Slices are the layers of a layered array, the faces of a cube map, or the depth.
struct Array {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};  // as the program asked
    unsigned element_bytes = 0;
    std::size_t pitch = 0;  // bytes from row to row
    RegionPtr memory;
    bool level = false;  // of a mipmapped array, which it ends with

    CUarray handle() { return reinterpret_cast<CUarray>(this); }
    std::size_t row_bytes() const { return descriptor.Width * element_bytes; }
    std::size_t rows() const { return descriptor.Height != 0 ? descriptor.Height : 1; }
    std::size_t slices() const { return descriptor.Depth != 0 ? descriptor.Depth : 1; }
    bool has(unsigned flag) const { return (descriptor.Flags & flag) != 0; }
    bool one_row() const { return descriptor.Height <= 1 && descriptor.Depth == 0; }
};

struct MipmappedArray {
    std::vector<std::shared_ptr<Array>> levels;  // the finest first
    CUmipmappedArray handle() { return reinterpret_cast<CUmipmappedArray>(this); }
};

// Throw Failure with the error codes of cuArray3DCreate and cuMipmappedArrayCreate.
std::shared_ptr<Array> create_array(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor);
std::shared_ptr<MipmappedArray> create_mipmapped(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                                 unsigned levels);

// Throw Failure with CUDA_ERROR_INVALID_HANDLE for anything that is not live.
std::shared_ptr<Array> checked_array(CUarray handle);
std::shared_ptr<MipmappedArray> checked_mipmapped(CUmipmappedArray handle);

// Wait for work that may use the memory, then give it back. Throw Failure with CUDA_ERROR_INVALID_HANDLE; a
// level of a mipmapped array cannot be destroyed by itself.
void destroy_array(CUarray handle);
void destroy_mipmapped(CUmipmappedArray handle);

// The array whose memory holds the address, or null.
std::shared_ptr<Array> array_at(std::uint64_t address);

// The context's arrays are no longer valid; their memory goes with the context's.
void forget_arrays(const Context& context);

}  // namespace simcuda::driver
