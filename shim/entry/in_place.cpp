#include "shim/entry/in_place.h"

#include <algorithm>

#include "shim/entry/wait.h"

namespace lms::entry {

Where where_is(engine::Address address, session::HostCopies copies) {
    const auto next =
        std::upper_bound(copies.begin(), copies.end(), address,
                         [](engine::Address a, const session::HostCopy& copy) { return a < copy.address; });
    if (next != copies.begin()) {
        const session::HostCopy& copy = *(next - 1);
        const std::uint64_t offset = address - copy.address;
        if (offset < copy.bytes) return {copy.host + offset, copy.bytes - offset, true};
    }
    return {address, next == copies.end() ? UINT64_MAX : next->address - address, false};
}

CUresult await_earlier(session::HostCopies copies, CUstream stream) {
    return copies.empty() ? CUDA_SUCCESS : device::as_told(wait_for_earlier(stream));
}

CUresult copy_in_place(engine::Address to, engine::Address from, std::uint64_t bytes,
                       session::HostCopies copies,
                       util::FunctionRef<CUresult(engine::Address, engine::Address, std::uint64_t)> copy) {
    if (copies.empty()) return copy(to, from, bytes);
    CUresult status = CUDA_SUCCESS;
    for (std::uint64_t at = 0; at < bytes && status == CUDA_SUCCESS;) {
        const Where target = where_is(to + at, copies);
        const Where source = where_is(from + at, copies);
        const std::uint64_t n = std::min({bytes - at, target.bytes, source.bytes});
        status = copy(target.address, source.address, n);
        at += n;
    }
    return status;
}

}  // namespace lms::entry
