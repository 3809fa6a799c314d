// cuMemset*: fills. They return at once, except into host memory in the synchronous form.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

constexpr std::size_t kOneRow = 0;  // pitch of a fill that is not two-dimensional

// Checks a fill and where it goes; `into_host` says whether that is host memory.
MemsetOp fill(const Context& context, CUdeviceptr to, std::size_t pitch, std::uint32_t value,
              unsigned element_bytes, std::size_t width, std::size_t height, bool& into_host) {
    require(to % element_bytes == 0 && pitch % element_bytes == 0, CUDA_ERROR_INVALID_VALUE);
    require(height <= 1 || pitch >= width * element_bytes, CUDA_ERROR_INVALID_VALUE);
    MemsetOp op{to, pitch, width, height, value, element_bytes};
    if (width == 0 || height == 0) return op;
    std::size_t last = 0, row = 0, bytes = 0;
    const bool overflows = __builtin_mul_overflow(height - 1, pitch, &last) ||
                           __builtin_mul_overflow(width, std::size_t{element_bytes}, &row) ||
                           __builtin_add_overflow(last, row, &bytes);
    require(!overflows, CUDA_ERROR_INVALID_VALUE);
    into_host = device_end(context, to, bytes).place != Place::Device;
    return op;
}

CUresult set(Site site, CUdeviceptr to, std::size_t pitch, std::uint32_t value, unsigned element_bytes,
             std::size_t width, std::size_t height) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, nullptr, site.per_thread);
        const CUresult allowed = capture_check_query(*stream);
        require(allowed == CUDA_SUCCESS, allowed);
        bool into_host = false;
        const WorkPtr work =
            submit(*stream, fill(context, to, pitch, value, element_bytes, width, height, into_host));
        return into_host ? wait(context, work) : CUDA_SUCCESS;
    });
}

CUresult set(Site site, CUdeviceptr to, std::size_t pitch, std::uint32_t value, unsigned element_bytes,
             std::size_t width, std::size_t height, CUstream handle) {
    return call(site.entry, [&](Context& context) {
        const auto stream = resolve(context, handle, site.per_thread);
        bool into_host = false;
        submit(*stream, fill(context, to, pitch, value, element_bytes, width, height, into_host));
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_STREAM_API(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char value, std::size_t count),
                   (to, value, count)) {
    return set(site, to, kOneRow, value, 1, count, 1);
}

SIMCUDA_STREAM_API(cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short value, std::size_t count),
                   (to, value, count)) {
    return set(site, to, kOneRow, value, 2, count, 1);
}

SIMCUDA_STREAM_API(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned value, std::size_t count),
                   (to, value, count)) {
    return set(site, to, kOneRow, value, 4, count, 1);
}

SIMCUDA_STREAM_API(cuMemsetD2D8_v2, _ptds,
                   (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                    std::size_t height),
                   (to, pitch, value, width, height)) {
    return set(site, to, pitch, value, 1, width, height);
}

SIMCUDA_STREAM_API(cuMemsetD2D16_v2, _ptds,
                   (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                    std::size_t height),
                   (to, pitch, value, width, height)) {
    return set(site, to, pitch, value, 2, width, height);
}

SIMCUDA_STREAM_API(cuMemsetD2D32_v2, _ptds,
                   (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height),
                   (to, pitch, value, width, height)) {
    return set(site, to, pitch, value, 4, width, height);
}

SIMCUDA_STREAM_API(cuMemsetD8Async, _ptsz,
                   (CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream),
                   (to, value, count, stream)) {
    return set(site, to, kOneRow, value, 1, count, 1, stream);
}

SIMCUDA_STREAM_API(cuMemsetD16Async, _ptsz,
                   (CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream),
                   (to, value, count, stream)) {
    return set(site, to, kOneRow, value, 2, count, 1, stream);
}

SIMCUDA_STREAM_API(cuMemsetD32Async, _ptsz,
                   (CUdeviceptr to, unsigned value, std::size_t count, CUstream stream),
                   (to, value, count, stream)) {
    return set(site, to, kOneRow, value, 4, count, 1, stream);
}

SIMCUDA_STREAM_API(cuMemsetD2D8Async, _ptsz,
                   (CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                    std::size_t height, CUstream stream),
                   (to, pitch, value, width, height, stream)) {
    return set(site, to, pitch, value, 1, width, height, stream);
}

SIMCUDA_STREAM_API(cuMemsetD2D16Async, _ptsz,
                   (CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                    std::size_t height, CUstream stream),
                   (to, pitch, value, width, height, stream)) {
    return set(site, to, pitch, value, 2, width, height, stream);
}

SIMCUDA_STREAM_API(cuMemsetD2D32Async, _ptsz,
                   (CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
                    CUstream stream),
                   (to, pitch, value, width, height, stream)) {
    return set(site, to, pitch, value, 4, width, height, stream);
}

}  // namespace simcuda::driver
