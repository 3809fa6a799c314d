// Copies between linear memory and arrays; the arrays are the driver's.
#include "shim/device/driver_table.h"
#include "shim/entry/transfer.h"

namespace lms::entry {
namespace {

template <typename Real>
CUresult copy_to_array(Real real, CUarray to, std::size_t at, CUdeviceptr from, std::size_t bytes,
                       CUstream stream) {
    return linear(0, from, bytes, stream, [&](std::uint64_t offset, std::uint64_t n) {
        return real(to, at + offset, from + offset, n);
    });
}

template <typename Real>
CUresult copy_from_array(Real real, CUdeviceptr to, CUarray from, std::size_t at, std::size_t bytes,
                         CUstream stream) {
    const CUresult status = linear(to, 0, bytes, stream, [&](std::uint64_t offset, std::uint64_t n) {
        return real(to + offset, from, at + offset, n);
    });
    return noted(status, stream, [&] { engine::note_set({to, bytes}); });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_to_array(driver().cuMemcpyDtoA_v2, dstArray, dstOffset, srcDevice, ByteCount,
                         CU_STREAM_LEGACY);
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount) {
    return copy_to_array(driver().cuMemcpyDtoA_v2_ptds, dstArray, dstOffset, srcDevice, ByteCount,
                         CU_STREAM_PER_THREAD);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_from_array(driver().cuMemcpyAtoD_v2, dstDevice, srcArray, srcOffset, ByteCount,
                           CU_STREAM_LEGACY);
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
    return copy_from_array(driver().cuMemcpyAtoD_v2_ptds, dstDevice, srcArray, srcOffset, ByteCount,
                           CU_STREAM_PER_THREAD);
}
