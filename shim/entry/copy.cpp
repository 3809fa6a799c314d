// Copies. Every form brings in the parts of managed buffers it names; host pointers, arrays and unmanaged
// memory are left to the driver.
#include "shim/device/driver_table.h"
#include "shim/entry/cross_device_copy.h"
#include "shim/entry/in_place.h"
#include "shim/entry/transfer.h"

namespace lms::entry {
namespace {

using device::driver;
using engine::destination_of;
using engine::Range;
using engine::resolve_stream;
using engine::source_of;

core::Address address_of(const void* pointer) {
    return reinterpret_cast<core::Address>(pointer);
}

// Tells the pointer tables of it.
template <typename Copy>
void note_box(const Copy& copy) {
    if (copy.dstMemoryType == CU_MEMORYTYPE_HOST) return;
    engine::note_typed(destination_of(copy), source_of(copy), copy.srcMemoryType);
}

// The same of a linear copy, whatever its form calls its sides.
CUresult noted_transfer(CUresult status, CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                        CUstream stream) {
    return noted(status, stream, [=] { engine::note_transfer({to, bytes}, {from, bytes}); });
}
CUresult noted_managed(CUresult status, CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                       CUstream stream) {
    return noted_if_tables(status, stream, [=] { engine::note_copy({to, bytes}, {from, bytes}); });
}
// Apart, so that it costs others nothing.
[[gnu::noinline]] CUresult noted_mixed(CUresult status, CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                       CUstream stream) {
    return is_managed(from) ? noted_managed(status, to, from, bytes, stream)
                            : noted_transfer(status, to, from, bytes, stream);
}
CUresult noted_copy(CUresult status, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    if (!in(engine::managed_bounds(), from)) return noted_transfer(status, to, from, bytes, stream);
    return engine::bounds_are_mixed() ? noted_mixed(status, to, from, bytes, stream)
                                      : noted_managed(status, to, from, bytes, stream);
}

// Host copies are about to be read or written by a copy that the host waits for: what was submitted before it
// comes first. Nobody promises that of copies from host to host.
CUresult await_earlier(engine::HostCopies copies, CUstream stream) {
    return copies.empty() ? CUDA_SUCCESS : device::as_told(wait_for_earlier(stream));
}

// Halves a copy until the parts are small enough to be there at once: between slices, between rows, and last
// within a row, where an element of any array begins. `rest` is the stream of the asynchronous forms.
template <typename Real, typename Copy, typename... Rest>
CUresult copy_parts(Real real, const Copy* copy, CUstream stream, Rest... rest) {
    const auto pass = [=](engine::HostCopies copies = {}) {
        const CUresult status = await_earlier(copies, stream);
        if (status != CUDA_SUCCESS) return status;
        const Range sides[] = {engine::span_of(source_of(*copy)), engine::span_of(destination_of(*copy))};
        return where_it_is(sides, stream, sizeof...(Rest) == 0, [&] {
            return copy_in_place([=](const Copy* part) { return real(part, rest...); }, *copy, copies);
        });
    };
    CUresult status = CUDA_SUCCESS;
    Range source = engine::span_of(source_of(*copy));
    Range destination = engine::span_of(destination_of(*copy));
    const Range sides[] = {source, destination};
    note_use(sides, stream);
    if (lms::engine::try_fast_path(stream, pass, status)) return status;
    source.only_read = true;
    if (sizeof...(Rest) == 0 &&
        (copy->srcMemoryType == CU_MEMORYTYPE_HOST || copy->dstMemoryType == CU_MEMORYTYPE_HOST)) {
        source.may_stay = destination.may_stay =
            lms::engine::within_reach(source.address, source.bytes) &&
            lms::engine::within_reach(destination.address, destination.bytes);
    }
    Copy first;
    Copy second;
    const bool whole = lms::engine::capturing(stream) || !too_large({source, destination});
    if (source.may_stay || !whole) {
        if (const CUresult error = host_sides(sides); error != CUDA_SUCCESS) return error;
    }
    if (whole) {
        return over({source, destination}, stream, pass,
                    [&] { return told_of(destination.address, source.address, bytes_of(source_of(*copy))); });
    }
    constexpr std::size_t kLargestElement = 16;
    if (!halve(*copy, first, second))
        cut_row(*copy, copy->WidthInBytes / 2 / kLargestElement * kLargestElement, first, second);
    status = copy_parts(real, &first, stream, rest...);
    return status == CUDA_SUCCESS ? copy_parts(real, &second, stream, rest...) : status;
}

// 2D and 3D copies.
template <typename Real, typename Copy, typename... Rest>
CUresult copy_box(Real real, const Copy* copy, CUstream stream, Rest... rest) {
    if (!copy) return real(copy, rest...);
    const Range ranges[] = {engine::span_of(source_of(*copy)), engine::span_of(destination_of(*copy))};
    if (const CUresult error = within_buffers(ranges); error != CUDA_SUCCESS) return error;
    return noted(copy_parts(real, copy, stream, rest...), stream, [&] { note_box(*copy); });
}

// Linear copies by `copy(to, from, n)`; `rest` is the stream of the asynchronous forms. with_host(): one side
// is the host's, which then waits for the synchronous forms.
template <typename Copy, typename WithHost, typename... Rest>
CUresult copy_linear(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream, Copy copy,
                     WithHost with_host, Rest... rest) {
    const auto part = [=](core::Address target, core::Address source, std::uint64_t n) {
        return copy_across(
            target, source, n, stream, [=] { return copy(target, source, n); }, rest...);
    };
    const auto piece = [=](std::uint64_t at, std::uint64_t n, engine::HostCopies copies = {}) {
        const CUresult status = await_earlier(copies, stream);
        return status == CUDA_SUCCESS ? copy_in_place(to + at, from + at, n, copies, part) : status;
    };
    return linear(to, from, bytes, stream, piece, [=] { return sizeof...(Rest) == 0 && with_host(); });
}

// Copies whose sides are what they are.
template <typename Real, typename... Rest>
CUresult copy_any(Real real, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream,
                  Rest... rest) {
    const CUresult status = copy_linear(
        to, from, bytes, stream,
        [=](core::Address target, core::Address source, std::uint64_t n) {
            return real(target, source, n, rest...);
        },
        [=] { return engine::is_host_memory(to) || engine::is_host_memory(from); }, rest...);
    return noted_copy(status, to, from, bytes, stream);
}

template <typename Real, typename... Rest>
CUresult copy_within(Real real, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream,
                     Rest... rest) {
    const CUresult status = copy_linear(
        to, from, bytes, stream,
        [=](core::Address target, core::Address source, std::uint64_t n) {
            return real(target, source, n, rest...);
        },
        [] { return false; }, rest...);
    return noted_copy(status, to, from, bytes, stream);
}

template <typename Real, typename... Rest>
CUresult copy_in(Real real, CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream,
                 Rest... rest) {
    const CUresult status = copy_linear(
        to, address_of(from), bytes, stream,
        [=](core::Address target, core::Address source, std::uint64_t n) {
            return real(target, reinterpret_cast<const void*>(source), n, rest...);
        },
        [] { return true; }, rest...);
    return noted(status, stream, [=] { engine::note_upload({to, bytes}, {address_of(from), bytes}); });
}

template <typename Real, typename... Rest>
CUresult eviction_copy(Real real, void* to, CUdeviceptr from, std::size_t bytes, CUstream stream,
                       Rest... rest) {
    return copy_linear(
        address_of(to), from, bytes, stream,
        [=](core::Address target, core::Address source, std::uint64_t n) {
            return real(reinterpret_cast<void*>(target), source, n, rest...);
        },
        [] { return true; }, rest...);
}

template <typename Real, typename... Rest>
CUresult copy_peer(Real real, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                   std::size_t bytes, CUstream stream, Rest... rest) {
    const CUresult status = linear(to, from, bytes, stream, [=](std::uint64_t at, std::uint64_t n) {
        return real(to + at, to_context, from + at, from_context, n, rest...);
    });
    return noted_copy(status, to, from, bytes, stream);
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;
using lms::engine::resolve_stream;

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return copy_any(driver().cuMemcpy, dst, src, ByteCount, CU_STREAM_LEGACY);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    return copy_any(driver().cuMemcpy_ptds, dst, src, ByteCount, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
    return copy_in(driver().cuMemcpyHtoD_v2, dstDevice, srcHost, ByteCount, CU_STREAM_LEGACY);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
    return copy_in(driver().cuMemcpyHtoD_v2_ptds, dstDevice, srcHost, ByteCount, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return eviction_copy(driver().cuMemcpyDtoH_v2, dstHost, srcDevice, ByteCount, CU_STREAM_LEGACY);
}

CUresult cuMemcpyDtoH_v2_ptds(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    return eviction_copy(driver().cuMemcpyDtoH_v2_ptds, dstHost, srcDevice, ByteCount, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_within(driver().cuMemcpyDtoD_v2, dstDevice, srcDevice, ByteCount, CU_STREAM_LEGACY);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_within(driver().cuMemcpyDtoD_v2_ptds, dstDevice, srcDevice, ByteCount, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
    return copy_peer(driver().cuMemcpyPeer, dstDevice, dstContext, srcDevice, srcContext, ByteCount,
                     CU_STREAM_LEGACY);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount) {
    return copy_peer(driver().cuMemcpyPeer_ptds, dstDevice, dstContext, srcDevice, srcContext, ByteCount,
                     CU_STREAM_PER_THREAD);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
    return copy_box(driver().cuMemcpy2D_v2, pCopy, CU_STREAM_LEGACY);
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* pCopy) {
    return copy_box(driver().cuMemcpy2D_v2_ptds, pCopy, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
    return copy_box(driver().cuMemcpy2DUnaligned_v2, pCopy, CU_STREAM_LEGACY);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* pCopy) {
    return copy_box(driver().cuMemcpy2DUnaligned_v2_ptds, pCopy, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
    return copy_box(driver().cuMemcpy3D_v2, pCopy, CU_STREAM_LEGACY);
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* pCopy) {
    return copy_box(driver().cuMemcpy3D_v2_ptds, pCopy, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
    return copy_box(driver().cuMemcpy3DPeer, pCopy, CU_STREAM_LEGACY);
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* pCopy) {
    return copy_box(driver().cuMemcpy3DPeer_ptds, pCopy, CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return copy_any(driver().cuMemcpyAsync, dst, src, ByteCount, resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    return copy_any(driver().cuMemcpyAsync_ptsz, dst, src, ByteCount, resolve_stream(hStream, true), hStream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
    return copy_in(driver().cuMemcpyHtoDAsync_v2, dstDevice, srcHost, ByteCount,
                   resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                   CUstream hStream) {
    return copy_in(driver().cuMemcpyHtoDAsync_v2_ptsz, dstDevice, srcHost, ByteCount,
                   resolve_stream(hStream, true), hStream);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return eviction_copy(driver().cuMemcpyDtoHAsync_v2, dstHost, srcDevice, ByteCount,
                         resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    return eviction_copy(driver().cuMemcpyDtoHAsync_v2_ptsz, dstHost, srcDevice, ByteCount,
                         resolve_stream(hStream, true), hStream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
    return copy_within(driver().cuMemcpyDtoDAsync_v2, dstDevice, srcDevice, ByteCount,
                       resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream) {
    return copy_within(driver().cuMemcpyDtoDAsync_v2_ptsz, dstDevice, srcDevice, ByteCount,
                       resolve_stream(hStream, true), hStream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    return copy_peer(driver().cuMemcpyPeerAsync, dstDevice, dstContext, srcDevice, srcContext, ByteCount,
                     resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    return copy_peer(driver().cuMemcpyPeerAsync_ptsz, dstDevice, dstContext, srcDevice, srcContext, ByteCount,
                     resolve_stream(hStream, true), hStream);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
    return copy_box(driver().cuMemcpy2DAsync_v2, pCopy, resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
    return copy_box(driver().cuMemcpy2DAsync_v2_ptsz, pCopy, resolve_stream(hStream, true), hStream);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
    return copy_box(driver().cuMemcpy3DAsync_v2, pCopy, resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
    return copy_box(driver().cuMemcpy3DAsync_v2_ptsz, pCopy, resolve_stream(hStream, true), hStream);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
    return copy_box(driver().cuMemcpy3DPeerAsync, pCopy, resolve_stream(hStream, false), hStream);
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
    return copy_box(driver().cuMemcpy3DPeerAsync_ptsz, pCopy, resolve_stream(hStream, true), hStream);
}
