// Memsets.
#include "shim/device/driver_table.h"
#include "shim/entry/cross_device_copy.h"
#include "shim/entry/transfer.h"

namespace lms::entry {
namespace {

// Bytes of so many values; as many as there can be, where that many go round.
template <typename Value>
std::uint64_t bytes_of(std::size_t count) {
    return count > UINT64_MAX / sizeof(Value) ? UINT64_MAX : count * sizeof(Value);
}

// What rows of values span.
template <typename Value>
engine::Range span_of(CUdeviceptr to, std::size_t pitch, std::size_t width, std::size_t height) {
    if (width == 0 || height == 0) return {to, 0};
    return {to, (height - 1) * pitch + bytes_of<Value>(width)};
}

// `count` values of type Value; `rest` is the stream of the asynchronous forms.
template <typename Value, typename Real, typename... Rest>
CUresult set(Real real, CUdeviceptr to, Value value, std::size_t count, CUstream stream, Rest... rest) {
    const std::uint64_t bytes = bytes_of<Value>(count);
    const CUresult status = linear(to, 0, bytes, stream, [=](std::uint64_t at, std::uint64_t n) {
        const engine::Range range{to + at, n};
        return where_it_is({&range, 1}, stream, sizeof...(Rest) == 0,
                           [=] { return real(to + at, value, n / sizeof(Value), rest...); });
    });
    return noted_if_tables(status, stream, [=] { engine::note_set({to, bytes}); });
}

// Rows of values; halved like 2D copies.
template <typename Value, typename Real, typename... Rest>
CUresult set_parts(Real real, CUdeviceptr to, std::size_t pitch, Value value, std::size_t width,
                   std::size_t height, CUstream stream, Rest... rest) {
    const engine::Range rows = span_of<Value>(to, pitch, width, height);
    const auto pass = [=] {
        return where_it_is({&rows, 1}, stream, sizeof...(Rest) == 0,
                           [=] { return real(to, pitch, value, width, height, rest...); });
    };
    CUresult status = CUDA_SUCCESS;
    note_use({&rows, 1}, stream);
    if (engine::try_fast_path(stream, pass, status)) return status;
    if (engine::capturing(stream) || !too_large({rows})) return over({rows}, stream, pass);
    const bool by_rows = height > 1;
    const std::size_t half = (by_rows ? height : width) / 2;
    status =
        set_parts(real, to, pitch, value, by_rows ? width : half, by_rows ? half : height, stream, rest...);
    if (status != CUDA_SUCCESS) return status;
    return set_parts(real, to + (by_rows ? half * pitch : bytes_of<Value>(half)), pitch, value,
                     by_rows ? width : width - half, by_rows ? height - half : height, stream, rest...);
}

template <typename Value, typename Real, typename... Rest>
CUresult set_2d(Real real, CUdeviceptr to, std::size_t pitch, Value value, std::size_t width,
                std::size_t height, CUstream stream, Rest... rest) {
    const engine::Range rows[] = {span_of<Value>(to, pitch, width, height)};
    if (const CUresult error = within_buffers(rows); error != CUDA_SUCCESS) return error;
    return noted_if_tables(set_parts(real, to, pitch, value, width, height, stream, rest...), stream, [=] {
        engine::note_set({to, width * sizeof(Value), pitch, height});
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;
using lms::engine::resolve_stream;

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return set(driver().cuMemsetD8_v2, dstDevice, uc, N, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
    return set_2d(driver().cuMemsetD2D8_v2, dstDevice, dstPitch, uc, Width, Height, CU_STREAM_LEGACY);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    return set(driver().cuMemsetD8_v2_ptds, dstDevice, uc, N, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                              size_t Height) {
    return set_2d(driver().cuMemsetD2D8_v2_ptds, dstDevice, dstPitch, uc, Width, Height,
                  CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return set(driver().cuMemsetD8Async, dstDevice, uc, N, resolve_stream(hStream, false), hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
    return set_2d(driver().cuMemsetD2D8Async, dstDevice, dstPitch, uc, Width, Height,
                  resolve_stream(hStream, false), hStream);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    return set(driver().cuMemsetD8Async_ptsz, dstDevice, uc, N, resolve_stream(hStream, true), hStream);
}

CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                size_t Height, CUstream hStream) {
    return set_2d(driver().cuMemsetD2D8Async_ptsz, dstDevice, dstPitch, uc, Width, Height,
                  resolve_stream(hStream, true), hStream);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return set(driver().cuMemsetD16_v2, dstDevice, us, N, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
    return set_2d(driver().cuMemsetD2D16_v2, dstDevice, dstPitch, us, Width, Height, CU_STREAM_LEGACY);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    return set(driver().cuMemsetD16_v2_ptds, dstDevice, us, N, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                               size_t Height) {
    return set_2d(driver().cuMemsetD2D16_v2_ptds, dstDevice, dstPitch, us, Width, Height,
                  CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    return set(driver().cuMemsetD16Async, dstDevice, us, N, resolve_stream(hStream, false), hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
    return set_2d(driver().cuMemsetD2D16Async, dstDevice, dstPitch, us, Width, Height,
                  resolve_stream(hStream, false), hStream);
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    return set(driver().cuMemsetD16Async_ptsz, dstDevice, us, N, resolve_stream(hStream, true), hStream);
}

CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                 size_t Height, CUstream hStream) {
    return set_2d(driver().cuMemsetD2D16Async_ptsz, dstDevice, dstPitch, us, Width, Height,
                  resolve_stream(hStream, true), hStream);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return set(driver().cuMemsetD32_v2, dstDevice, ui, N, CU_STREAM_LEGACY);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
    return set_2d(driver().cuMemsetD2D32_v2, dstDevice, dstPitch, ui, Width, Height, CU_STREAM_LEGACY);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
    return set(driver().cuMemsetD32_v2_ptds, dstDevice, ui, N, CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                               size_t Height) {
    return set_2d(driver().cuMemsetD2D32_v2_ptds, dstDevice, dstPitch, ui, Width, Height,
                  CU_STREAM_PER_THREAD);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return set(driver().cuMemsetD32Async, dstDevice, ui, N, resolve_stream(hStream, false), hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
    return set_2d(driver().cuMemsetD2D32Async, dstDevice, dstPitch, ui, Width, Height,
                  resolve_stream(hStream, false), hStream);
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
    return set(driver().cuMemsetD32Async_ptsz, dstDevice, ui, N, resolve_stream(hStream, true), hStream);
}

CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                 size_t Height, CUstream hStream) {
    return set_2d(driver().cuMemsetD2D32Async_ptsz, dstDevice, dstPitch, ui, Width, Height,
                  resolve_stream(hStream, true), hStream);
}
