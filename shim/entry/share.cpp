// Managed memory given to others: processes, devices, network cards. What can be given stays on the GPU from
// then on, until it is freed, or becomes the driver's if the program has mapped it itself; what cannot is
// refused, and the user told what to do.
#include <atomic>
#include <string_view>

#include "shim/device/driver_table.h"
#include "shim/entry/context_check.h"
#include "shim/entry/ranges.h"
#include "shim/session/program_memory.h"

namespace lms::entry {
namespace {

using device::driver;
using session::Range;

// Says why the program is refused, once for each way.
CUresult refuse(std::atomic<bool>& said, std::string_view what, CUresult status) {
    if (log::once(said)) {
        log::warn(
            "{} is not possible for managed memory ({}); for buffers that others use, raise LMS_THRESHOLD "
            "above their size",
            what, device::error_name(status));
    }
    return status;
}

// Calls with `range` on the GPU, where it then stays.
template <typename Call>
CUresult give(std::string_view what, const Range& range, Call&& call) {
    return guarded([&]() -> CUresult {
        if (session::has_program_memory(range.address, range.bytes)) {
            const CUresult status = session::give_to_driver(range.address, range.bytes);
            return status == CUDA_SUCCESS ? session::call_with_oom_retry(call) : status;
        }
        if (!is_managed(range.address)) return session::call_with_oom_retry(call);
        std::vector<session::PinnedIn> kept;
        CUresult status = session::pin_resident(std::span(&range, 1), kept);
        if (status != CUDA_SUCCESS) return status;
        status = session::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS) {
            session::leave_pinned(kept);
            return status;
        }
        session::let_go(kept);
        static std::atomic<bool> said;
        return refuse(said, what, status);
    });
}

// The whole buffer that holds `address`.
Range buffer_of(CUdeviceptr address) {
    session::Session* session = session::allocator_of(address);
    const auto buffer = session ? session->buffer_at(address) : std::nullopt;
    return buffer ? Range{buffer->address, buffer->bytes} : Range{address, 0};
}

// SYNC_MEMOPS, the only attribute that can be set, on every mapping that the buffer consists of.
CUresult set_attribute(const void* value, CUpointer_attribute attribute, const Range& buffer) {
    const std::uint64_t step = session::allocator_of(buffer.address)->granularity();
    CUresult status = CUDA_SUCCESS;
    for (std::uint64_t at = 0; at < buffer.bytes && status == CUDA_SUCCESS; at += step)
        status = driver().cuPointerSetAttribute(value, attribute, buffer.address + at);
    return status;
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
    return guarded([&]() -> CUresult {
        if (!lms::session::allocator_of(dptr)) return driver().cuIpcGetMemHandle(pHandle, dptr);
        if (const CUresult error = refusal(); error != CUDA_SUCCESS) return error;
        const Range buffer = buffer_of(dptr);
        if (dptr - buffer.address >= buffer.bytes) return CUDA_ERROR_INVALID_VALUE;
        static std::atomic<bool> said;
        return refuse(said, "cuIpcGetMemHandle", CUDA_ERROR_NOT_SUPPORTED);
    });
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
    return guarded([&]() -> CUresult {
        if (!lms::session::allocator_of(ptr)) return driver().cuMemPoolExportPointer(shareData_out, ptr);
        // As for any memory of the default pool, which cannot be exported.
        static std::atomic<bool> said;
        return refuse(said, "cuMemPoolExportPointer", CUDA_ERROR_INVALID_VALUE);
    });
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
    return give("cuMemGetHandleForAddressRange", {dptr, size}, [&] {
        return driver().cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
    });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr,
                             size_t size, unsigned long long flags) {
    return give("cuMulticastBindAddr", {memptr, size},
                [&] { return driver().cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags); });
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                                CUdeviceptr memptr, size_t size, unsigned long long flags) {
    return give("cuMulticastBindAddr_v2", {memptr, size}, [&] {
        return driver().cuMulticastBindAddr_v2(mcHandle, dev, mcOffset, memptr, size, flags);
    });
}

CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset, void* ptr,
                                   cuuint64_t size, unsigned long long flags) {
    return give("cuLogicalEndpointBindAddr", {reinterpret_cast<CUdeviceptr>(ptr), size},
                [&] { return driver().cuLogicalEndpointBindAddr(leId, dev, offset, ptr, size, flags); });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    // Others are about to read or write the memory behind the driver's back.
    const Range buffer = buffer_of(ptr);
    if (buffer.bytes > 0 && ptr - buffer.address >= buffer.bytes) return CUDA_ERROR_INVALID_VALUE;
    return give("cuPointerSetAttribute", buffer.bytes > 0 ? buffer : Range{ptr, 1}, [&] {
        return buffer.bytes > 0 ? set_attribute(value, attribute, buffer)
                                : driver().cuPointerSetAttribute(value, attribute, ptr);
    });
}
