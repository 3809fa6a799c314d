// Work on managed memory of a GPU that is not the current one. cuMemAlloc's memory is found by its
// address from any; what is mapped, without peer access, only by a copy that names contexts.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "shim/session/fast_submit.h"

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
void note_use_elsewhere(std::span<const session::Range> ranges, CUstream stream);
inline void note_use(std::span<const session::Range> ranges, CUstream stream) {
    if (several_devices()) [[unlikely]]
        note_use_elsewhere(ranges, stream);
}
// The same of a graph, whose nodes run where they were made, whosever stream it is launched into.
void note_graph_use(CUstream stream);

// Submits such work, or any other, by `call`. `waits`: the host does, for it.
CUresult where_it_is(std::span<const session::Range> ranges, CUstream stream, bool waits, session::Call call);

// A copy on the device, or between it and the host, by `call` where the driver can tell by the addresses.
CUresult copy_across(engine::Address to, engine::Address from, std::size_t bytes, CUstream stream, bool waits,
                     session::Call call);

}  // namespace lms::entry
