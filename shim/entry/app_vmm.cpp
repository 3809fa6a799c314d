// The app's own virtual memory management: passed on. Managed buffers are what cuMemAlloc gives, so its calls
// answer for them as they do for that.
#include "shim/device/driver_table.h"
#include "shim/entry/transfer.h"

namespace lms::entry {
namespace {

template <typename Call>
CUresult unless_managed(CUdeviceptr address, Call&& call) {
    return guarded([&]() -> CUresult {
        return is_managed(address) ? CUDA_ERROR_INVALID_VALUE : engine::call_with_oom_retry(call);
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    return unless_managed(ptr, [&] { return driver().cuMemMap(ptr, size, offset, handle, flags); });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    return unless_managed(ptr, [&] { return driver().cuMemUnmap(ptr, size); });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
    return unless_managed(ptr, [&] { return driver().cuMemSetAccess(ptr, size, desc, count); });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
    return unless_managed(reinterpret_cast<CUdeviceptr>(addr),
                          [&] { return driver().cuMemRetainAllocationHandle(handle, addr); });
}
