// The old linear copies of arrays: bytes in the order of the array's rows, which may begin and end inside
// one.
#include <algorithm>

#include "tools/simcuda/runtime/copy.h"

namespace simcuda::runtime {
namespace {

std::size_t row_bytes(const Driver& cu, cudaArray_const_t array) {
    auto handle = reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    require(cu.cuArray3DGetDescriptor_v2(&descriptor, handle));
    return descriptor.Width * element_bytes(cu, handle);
}

// `copy_rows` copies one rectangle: where in the array, bytes done so far, its width and height.
template <class CopyRows>
CUresult by_rows(const Driver& cu, cudaArray_const_t array, std::size_t x, std::size_t y, std::size_t bytes,
                 CopyRows copy_rows) {
    const std::size_t row = row_bytes(cu, array);
    require(x < row || bytes == 0, cudaErrorInvalidValue);
    std::size_t done = 0;
    while (done < bytes) {
        const std::size_t left = bytes - done;
        const bool whole = x == 0 && left >= row;
        const std::size_t width = whole ? row : std::min(left, row - x);
        const std::size_t height = whole ? left / row : 1;
        const CUresult result = copy_rows(x, y, done, width, height);
        if (result != CUDA_SUCCESS) return result;
        done += width * height;
        y += height;
        x = 0;
    }
    return CUDA_SUCCESS;
}

template <class Give>
cudaError_t into_array(cudaArray_t array, std::size_t x, std::size_t y, const void* from, std::size_t bytes,
                       cudaMemcpyKind kind, Give give) {
    return run([&](const Driver& cu) {
        return by_rows(cu, array, x, y, bytes, [&](auto at_x, auto at_y, auto done, auto width, auto height) {
            const auto copy = pitched_copy(nullptr, width, static_cast<const char*>(from) + done, width,
                                           width, height, kind);
            return give(cu, to_array(copy, array, at_x, at_y));
        });
    });
}

template <class Give>
cudaError_t out_of_array(void* to, cudaArray_const_t array, std::size_t x, std::size_t y, std::size_t bytes,
                         cudaMemcpyKind kind, Give give) {
    return run([&](const Driver& cu) {
        return by_rows(cu, array, x, y, bytes, [&](auto at_x, auto at_y, auto done, auto width, auto height) {
            const auto copy =
                pitched_copy(static_cast<char*>(to) + done, width, nullptr, width, width, height, kind);
            return give(cu, from_array(copy, array, at_x, at_y));
        });
    });
}

template <Form form>
auto now() {
    return [](const Driver& cu, const CUDA_MEMCPY2D& copy) { return copy_2d<form>(cu, copy); };
}

template <Form form>
auto later(cudaStream_t stream) {
    return [stream](const Driver& cu, const CUDA_MEMCPY2D& copy) {
        return copy_2d_async<form>(cu, copy, stream);
    };
}

template <Form form>
cudaError_t memcpy_to_array(cudaArray_t array, std::size_t x, std::size_t y, const void* from,
                            std::size_t bytes, cudaMemcpyKind kind) {
    return into_array(array, x, y, from, bytes, kind, now<form>());
}

template <Form form>
cudaError_t memcpy_to_array_async(cudaArray_t array, std::size_t x, std::size_t y, const void* from,
                                  std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return into_array(array, x, y, from, bytes, kind, later<form>(stream));
}

template <Form form>
cudaError_t memcpy_from_array(void* to, cudaArray_const_t array, std::size_t x, std::size_t y,
                              std::size_t bytes, cudaMemcpyKind kind) {
    return out_of_array(to, array, x, y, bytes, kind, now<form>());
}

template <Form form>
cudaError_t memcpy_from_array_async(void* to, cudaArray_const_t array, std::size_t x, std::size_t y,
                                    std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return out_of_array(to, array, x, y, bytes, kind, later<form>(stream));
}

// The rows of the two may differ in length: each rectangle of one is a stretch of bytes of the other.
template <Form form>
cudaError_t memcpy_array_to_array(cudaArray_t to, std::size_t to_x, std::size_t to_y, cudaArray_const_t from,
                                  std::size_t from_x, std::size_t from_y, std::size_t bytes,
                                  cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        const std::size_t from_row = row_bytes(cu, from);
        const std::size_t start = from_y * from_row + from_x;
        const auto one_row = [&](std::size_t x, std::size_t y, std::size_t at, std::size_t width) {
            for (std::size_t done = 0; done < width;) {
                const std::size_t source = start + at + done;
                const std::size_t part = std::min(width - done, from_row - source % from_row);
                const auto copy = pitched_copy(nullptr, part, nullptr, part, part, 1, kind);
                const CUresult result = copy_2d<form>(cu, from_array(to_array(copy, to, x + done, y), from,
                                                                     source % from_row, source / from_row));
                if (result != CUDA_SUCCESS) return result;
                done += part;
            }
            return CUDA_SUCCESS;
        };
        return by_rows(cu, to, to_x, to_y, bytes, [&](auto x, auto y, auto done, auto width, auto height) {
            for (std::size_t row = 0; row < height; ++row) {
                const CUresult result = one_row(x, y + row, done + row * width, width);
                if (result != CUDA_SUCCESS) return result;
            }
            return CUDA_SUCCESS;
        });
    });
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

RT_EXPORT_STREAM(cudaMemcpyToArray, _ptds, memcpy_to_array)
RT_EXPORT_STREAM(cudaMemcpyToArrayAsync, _ptsz, memcpy_to_array_async)
RT_EXPORT_STREAM(cudaMemcpyFromArray, _ptds, memcpy_from_array)
RT_EXPORT_STREAM(cudaMemcpyFromArrayAsync, _ptsz, memcpy_from_array_async)
RT_EXPORT_STREAM(cudaMemcpyArrayToArray, _ptds, memcpy_array_to_array)
