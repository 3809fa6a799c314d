// The linear copies to and from arrays of one dimension.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/array.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

CUDA_MEMCPY3D row(std::size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
}

// One row is one, whether its array has a height of 1 or none.
void check_row(CUarray array) {
    require(array != nullptr && checked_array(array)->one_row(), CUDA_ERROR_INVALID_VALUE);
}

void to_array(CUDA_MEMCPY3D& copy, CUarray array, std::size_t offset) {
    check_row(array);
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.dstXInBytes = offset;
}

void from_array(CUDA_MEMCPY3D& copy, CUarray array, std::size_t offset) {
    check_row(array);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.srcXInBytes = offset;
}

void to_host(CUDA_MEMCPY3D& copy, void* host) {
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host;
}

void from_host(CUDA_MEMCPY3D& copy, const void* host) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
}

// `describe` fills in the two ends.
template <class Describe>
CUresult copy_row(Site site, std::size_t bytes, Describe describe) {
    return call(site.entry, [&](Context& context) {
        CUDA_MEMCPY3D copy = row(bytes);
        describe(copy);
        const auto stream = resolve(context, nullptr, site.per_thread);
        return copy_and_wait(context, *stream, pitched_copy(context, copy));
    });
}

template <class Describe>
CUresult copy_row(Site site, std::size_t bytes, CUstream handle, Describe describe) {
    return call(site.entry, [&](Context& context) {
        CUDA_MEMCPY3D copy = row(bytes);
        describe(copy);
        const auto stream = resolve(context, handle, site.per_thread);
        return copy_async(context, *stream, pitched_copy(context, copy));
    });
}

}  // namespace

SIMCUDA_STREAM_API(cuMemcpyDtoA_v2, _ptds,
                   (CUarray to, std::size_t offset, CUdeviceptr from, std::size_t bytes),
                   (to, offset, from, bytes)) {
    return copy_row(site, bytes, [&](CUDA_MEMCPY3D& copy) {
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = from;
        to_array(copy, to, offset);
    });
}

SIMCUDA_STREAM_API(cuMemcpyAtoD_v2, _ptds,
                   (CUdeviceptr to, CUarray from, std::size_t offset, std::size_t bytes),
                   (to, from, offset, bytes)) {
    return copy_row(site, bytes, [&](CUDA_MEMCPY3D& copy) {
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = to;
        from_array(copy, from, offset);
    });
}

SIMCUDA_STREAM_API(cuMemcpyHtoA_v2, _ptds,
                   (CUarray to, std::size_t offset, const void* from, std::size_t bytes),
                   (to, offset, from, bytes)) {
    return copy_row(site, bytes, [&](CUDA_MEMCPY3D& copy) {
        from_host(copy, from);
        to_array(copy, to, offset);
    });
}

SIMCUDA_STREAM_API(cuMemcpyAtoH_v2, _ptds, (void* to, CUarray from, std::size_t offset, std::size_t bytes),
                   (to, from, offset, bytes)) {
    return copy_row(site, bytes, [&](CUDA_MEMCPY3D& copy) {
        to_host(copy, to);
        from_array(copy, from, offset);
    });
}

SIMCUDA_STREAM_API(cuMemcpyAtoA_v2, _ptds,
                   (CUarray to, std::size_t to_offset, CUarray from, std::size_t from_offset,
                    std::size_t bytes),
                   (to, to_offset, from, from_offset, bytes)) {
    return copy_row(site, bytes, [&](CUDA_MEMCPY3D& copy) {
        from_array(copy, from, from_offset);
        to_array(copy, to, to_offset);
        require(bytes % checked_array(from)->element_bytes == 0, CUDA_ERROR_INVALID_VALUE);
    });
}

SIMCUDA_STREAM_API(cuMemcpyHtoAAsync_v2, _ptsz,
                   (CUarray to, std::size_t offset, const void* from, std::size_t bytes, CUstream stream),
                   (to, offset, from, bytes, stream)) {
    return copy_row(site, bytes, stream, [&](CUDA_MEMCPY3D& copy) {
        from_host(copy, from);
        to_array(copy, to, offset);
    });
}

SIMCUDA_STREAM_API(cuMemcpyAtoHAsync_v2, _ptsz,
                   (void* to, CUarray from, std::size_t offset, std::size_t bytes, CUstream stream),
                   (to, from, offset, bytes, stream)) {
    return copy_row(site, bytes, stream, [&](CUDA_MEMCPY3D& copy) {
        to_host(copy, to);
        from_array(copy, from, offset);
    });
}

}  // namespace simcuda::driver
