// Work over ranges of memory, for the hooks of copies, sets and their like.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shim/access/pointer_tables.h"
#include "shim/entry/cross_device_copy.h"
#include "shim/entry/guard.h"
#include "shim/session/submit.h"

namespace lms::entry {

using Ranges = std::span<const session::Range>;

inline bool is_managed(engine::Address address) {
    return session::session_at(address) != nullptr;
}
bool any_managed(Ranges ranges);

// The driver's error where a range begins in managed memory and goes on past the end of its buffer. The
// driver refuses that of its own memory; ours is mapped to the end of the granule.
CUresult within_buffers(Ranges ranges);

// For what is about to be copied in parts, of which the driver would not see what it refuses of the whole: an
// error where host memory is page-locked at its beginning, and not to its end.
CUresult host_sides(Ranges ranges);

// How much of its buffer follows an address; 0 where it is not managed.
std::uint64_t rest_of_buffer(engine::Address address);

// The most bytes one piece may name of each of the managed operands.
std::uint64_t piece_bytes(engine::Address a, engine::Address b);

// The next part of what is done in parts, with `left` bytes to go: at most `piece`, and it ends where a chunk
// of the destination (or else of the source) does. So no chunk is overwritten by two parts, and no element of
// a memset is cut.
std::uint64_t part_bytes(engine::Address to, engine::Address from, std::uint64_t left, std::uint64_t piece);

// Whether work over `ranges` should be done in parts.
bool too_large(Ranges ranges);

// What became of a copy or set, once `note` has told access/pointer_tables.h of it if it was submitted. A
// captured one is noted with its graph.
CUresult noted(CUresult status, CUstream stream, util::FunctionRef<void()> note);

// Calls with `ranges` on the device: a captured copy or a new graph node, for the driver looks at what its
// operands are mapped to.
CUresult recorded(Ranges ranges, session::Call call);

// What a trace tells of a copy; without one nothing is asked. Of two GPUs' memory each would tell it.
trace::Copied told_of(engine::Address destination, engine::Address source, std::uint64_t bytes);

// Submits work over `ranges`, which must all be there at once.
CUresult over(Ranges ranges, CUstream stream, session::Call call);
// The same of a copy that can be made in host copies, of which a trace tells `copied()`.
CUresult over_in_place(Ranges ranges, CUstream stream, util::FunctionRef<CUresult(session::HostCopies)> copy,
                       util::FunctionRef<trace::Copied()> copied);

// The same for work that cannot use them in place, or reads them out of stream order: they are on the device,
// and filled, before it is submitted.
CUresult over_resident(Ranges ranges, CUstream stream, session::Call call);

}  // namespace lms::entry
