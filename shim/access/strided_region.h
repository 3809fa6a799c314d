// What a copy or set spans on one side: slices of rows of bytes, from the descriptors of the driver's 2D and
// 3D copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/device/cuda_api.h"
#include "shim/session/managed.h"

namespace lms::access {

// `depth` slices of `height` rows of `width` bytes. Empty: width 0.
struct StridedRegion {
    engine::Address begin;
    std::uint64_t width;
    std::uint64_t pitch = 0;  // bytes from row to row
    std::uint64_t height = 1;
    std::uint64_t slice_pitch = 0;  // bytes from slice to slice
    std::uint64_t depth = 1;
};

inline std::uint64_t bytes_of(const StridedRegion& box) {
    return box.width * box.height * box.depth;
}

// From its first byte to its last.
inline session::Range span_of(const StridedRegion& box) {
    if (box.width == 0) return {0, 0};
    return {box.begin, (box.depth - 1) * box.slice_pitch + (box.height - 1) * box.pitch + box.width};
}

// Where a side of that type begins. A unified one is given as the device's.
inline engine::Address base_of(CUmemorytype type, CUdeviceptr device, const void* host) {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<engine::Address>(host) : device;
}

// One side of a copy; empty if that is an array.
inline StridedRegion box_of(CUmemorytype type, CUdeviceptr device, const void* host, std::size_t pitch,
                            std::size_t slice_rows, std::size_t x, std::size_t y, std::size_t z,
                            std::size_t width, std::size_t rows, std::size_t slices) {
    if (type == CU_MEMORYTYPE_ARRAY || width == 0 || rows == 0 || slices == 0) return {0, 0};
    // What is not said is as tight as can be.
    if (pitch == 0) pitch = x + width;
    if (slice_rows == 0) slice_rows = y + rows;
    const engine::Address base = base_of(type, device, host);
    return {base + (z * slice_rows + y) * pitch + x, width, pitch, rows, slice_rows * pitch, slices};
}

// The sides of CUDA_MEMCPY2D, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER, which name their fields alike.
template <typename Copy>
StridedRegion source_of(const Copy& c) {
    if constexpr (requires { c.Depth; }) {
        return box_of(c.srcMemoryType, c.srcDevice, c.srcHost, c.srcPitch, c.srcHeight, c.srcXInBytes, c.srcY,
                      c.srcZ, c.WidthInBytes, c.Height, c.Depth);
    } else {
        return box_of(c.srcMemoryType, c.srcDevice, c.srcHost, c.srcPitch, 0, c.srcXInBytes, c.srcY, 0,
                      c.WidthInBytes, c.Height, 1);
    }
}

template <typename Copy>
StridedRegion destination_of(const Copy& c) {
    if constexpr (requires { c.Depth; }) {
        return box_of(c.dstMemoryType, c.dstDevice, c.dstHost, c.dstPitch, c.dstHeight, c.dstXInBytes, c.dstY,
                      c.dstZ, c.WidthInBytes, c.Height, c.Depth);
    } else {
        return box_of(c.dstMemoryType, c.dstDevice, c.dstHost, c.dstPitch, 0, c.dstXInBytes, c.dstY, 0,
                      c.WidthInBytes, c.Height, 1);
    }
}

}  // namespace lms::access
