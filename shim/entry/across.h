// Copies that reach managed memory of a GPU that is not the current one. cuMemAlloc's memory is found by its
// address from any; what is mapped, without peer access, only by a copy that names contexts.
#pragma once

#include <optional>

#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/engine/sessions.h"

namespace lms::entry {

// The contexts of a copy's two ends; null for host memory.
struct Ends {
    CUcontext to;
    CUcontext from;
};

// Nothing where no end is managed memory of another GPU than the current one.
std::optional<Ends> ends_apart(core::Address to, core::Address from);

// Copies on the device, or (with no stream in `rest`: synchronously) between it and the host, by `real` where
// the driver can tell by the addresses.
template <typename Real, typename... Rest>
CUresult copy_across(core::Address to, core::Address from, std::size_t bytes, CUstream stream, Real&& real,
                     Rest... rest) {
    const auto ends = ends_apart(to, from);
    if (!ends) return real();
    const device::Driver& driver = device::driver();
    constexpr bool kSynchronous = sizeof...(rest) == 0;
    if (ends->to && ends->from) {
        if constexpr (kSynchronous) {
            const auto peer = stream == CU_STREAM_PER_THREAD ? driver.cuMemcpyPeer_ptds : driver.cuMemcpyPeer;
            return peer(to, ends->to, from, ends->from, bytes);
        } else {
            return driver.cuMemcpyPeerAsync(to, ends->to, from, ends->from, bytes, stream);
        }
    }
    if (!kSynchronous) return real();
    const CUresult status = driver.cuStreamSynchronize(stream);
    if (status != CUDA_SUCCESS) return status;
    const device::InContext in_context(ends->to ? ends->to : ends->from);
    return real();
}

}  // namespace lms::entry
