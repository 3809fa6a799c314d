// The turn from letting all work through to looking at it (program/fast_path.h), and the work from before. So
// is work of calls that the shim does not know (entry/interpose/unseen_call.h), which may be in any stream.
//
// What was let through left no fence and may use any buffer, so nothing moves until it is over. Nobody waits
// for it here: the thread that turns to pressure may hold what that work waits for. A stream's is over when
// the stream has been seen idle, or has passed a fence that work submitted to it since has left. Asking a
// stream neither orders anything nor needs a place in its queue, as an event recorded there would.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shim/engine/engine.h"
#include "shim/executor/fences.h"
#include "shim/executor/session_lock.h"

namespace lms::executor {

struct Core;

using engine::EarlierWork;

// All need `lock`, the session's; the first two drop it around driver calls.

// From here on work is looked at. Once; does not wait.
void begin_pressure(Core& core, SessionLock& lock) LMS_LOCKED;
// The contexts whose legacy streams a capture forbids to use now. Nothing is asked while nothing is captured.
// Without the session's lock.
std::vector<CUcontext> forbidden_legacy(Core& core);
// Leaves fences behind all that was given to any stream of any context, also to streams that nobody knows.
// False: of some that cannot be told so, for a capture would end, or the driver is too old. Without the
// session's lock.
bool fence_contexts(Core& core, std::vector<FencePtr>& fences) LMS_UNLOCKED;
// The fences' work may reach any chunk. Those that were refused are null.
void count_as_opaque(Core& core, std::vector<FencePtr>& fences) LMS_LOCKED;
// A call that the shim does not know, during which no capture began and behind which not all could be fenced,
// may have given work to any stream: all are asked again, but for legacy ones that were `forbidden` before it
// and are still, and those that can be fenced at once because a capture nears.
void unseen_work_came(Core& core, std::span<const CUcontext> forbidden, SessionLock& lock) LMS_LOCKED;
// Looks whether earlier work is over.
void look_at_earlier_work(Core& core, SessionLock& lock) LMS_LOCKED;
// `use` is of a fence in that stream, behind the work of its listings up to `listing`; it counts as opaque
// work in its stead.
void stands_for_earlier_work(Core& core, StreamKey stream, std::uint64_t listing,
                             const engine::Use& use) LMS_LOCKED;
// The legacy stream of `context` was given work just before a capture forbade to leave a fence behind it: it
// is asked when that may be.
void leave_legacy_open(Core& core, CUcontext context) LMS_LOCKED;
// Its streams are gone; who ended them has fenced what they held, or it is over.
void earlier_work_gone(Core& core, const std::function<bool(const EarlierWork::In&)>& gone) LMS_LOCKED;
// A capture is about to begin on a blocking stream, or may be about to reach one, which forbids to ask for
// legacy streams: leaves fences in those that are busy.
void fence_legacy_streams(Core& core, SessionLock& lock) LMS_LOCKED;
// Then too: leaves events in those whose last work has left none (Fences::leave_open).
void close_legacy_streams(Core& core, SessionLock& lock) LMS_LOCKED;
// Leaves fences behind what the context's streams were given so far without a look, and no capture knows of
// it. False: of some nobody can tell when it is over.
bool fence_beside_captures(Core& core, CUcontext context, SessionLock& lock) LMS_LOCKED;
// Leaves fences behind what the context's streams were given so far, in those that are busy. False: it may
// have others than are known, or a capture forbids to ask. Without the session's lock.
bool fence_streams(Core& core, CUcontext context, std::vector<FencePtr>& fences) LMS_UNLOCKED;
// The session begins anew, without buffers.
void end_pressure(Core& core);

}  // namespace lms::executor
