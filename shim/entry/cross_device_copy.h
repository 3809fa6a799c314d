// Work on managed memory of a GPU that is not the current one. cuMemAlloc's memory is found by its
// address from any; what is mapped, without peer access, only by a copy that names contexts.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/entry/wait.h"
#include "shim/session/submit.h"

namespace lms::entry {

namespace detail {
inline constinit std::atomic<int> devices{0};  // 0: not asked for yet
int ask_for_devices();
}  // namespace detail

// Whether the process has more than one GPU. Asked before every copy and set, so most often one comparison.
inline bool several_devices() {
    const int known = detail::devices.load(std::memory_order_relaxed);
    return known != 1 && (known > 1 || detail::ask_for_devices() > 1);
}

// Work that uses these is about to be submitted to `stream`, without a look if nothing moves. Where they are
// another GPU's than the stream's, that one looks at the stream, too, when it begins to move.
void note_use_elsewhere(std::span<const engine::Range> ranges, CUstream stream);
inline void note_use(std::span<const engine::Range> ranges, CUstream stream) {
    if (several_devices()) [[unlikely]]
        note_use_elsewhere(ranges, stream);
}
// The same of a graph, whose nodes run where they were made, whosever stream it is launched into.
void note_graph_use(CUstream stream);

// The contexts of a copy's two ends; null for host memory.
struct Ends {
    CUcontext to;
    CUcontext from;
};

// Nothing where no end is managed memory of another GPU than the current one.
std::optional<Ends> ends_apart(core::Address to, core::Address from);

// The context in which work in `stream` is to be submitted whose managed memory, `ranges`, is all of one GPU,
// which is not the current one: the stream's if it is of that GPU, or any of that GPU's if the host waits for
// the work. Null: the current one.
CUcontext context_elsewhere(std::span<const engine::Range> ranges, CUstream stream, bool waits);

// Submits such work, or any other, by `call`.
template <typename Call>
CUresult where_it_is(std::span<const engine::Range> ranges, CUstream stream, bool waits, Call&& call) {
    const CUcontext there = several_devices() ? context_elsewhere(ranges, stream, waits) : nullptr;
    if (!there) [[likely]]
        return call();
    const device::Driver& driver = device::driver();
    // That GPU's default streams are others than the current one's.
    CUresult status = waits ? wait_for_earlier(stream) : CUDA_SUCCESS;
    if (status != CUDA_SUCCESS) return status;
    const device::InContext in_context(there);
    status = call();
    return waits && status == CUDA_SUCCESS ? driver.cuStreamSynchronize(stream) : status;
}

// Copies on the device, or between it and the host, by `real` where the driver can tell by the addresses.
// With no stream in `rest` the host waits for it.
template <typename Real, typename... Rest>
CUresult copy_across(core::Address to, core::Address from, std::size_t bytes, CUstream stream, Real&& real,
                     Rest... rest) {
    if (!several_devices()) [[likely]]
        return real();
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
    const engine::Range ranges[] = {{to, bytes}, {from, bytes}};
    return where_it_is(ranges, stream, kSynchronous, real);
}

}  // namespace lms::entry
