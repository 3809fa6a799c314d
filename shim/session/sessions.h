// The sessions of this process, one per GPU that has managed memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shim/device/cuda_api.h"
#include "shim/program/contexts.h"
#include "shim/session/managed.h"
#include "shim/session/session.h"
#include "shim/session/working_set.h"

namespace lms::session {

// Thread-safe. Sessions are opened at the first managed allocation on their GPU and live as long as the
// process: the order in which libraries exit is not ours. While their GPU has no context they rest.

// To be called when the program asks for memory: from the first time on this process's counters are kept
// (LMS_STATS, the page that tools read).
void program_allocates();

// Whether the policy wants an allocation of `bytes` managed (LMS_THRESHOLD).
bool manages(std::uint64_t bytes);

// The session of the current context's GPU, opened if there is none. Null without a current context, where no
// session can be opened (said once), or where it may be about to rest; the driver then serves the allocation.
Session* current_session();

// Whether it may be about to rest, with all that it has, for who works in `context`: that through which it
// works may be going just now, and is another.
bool may_be_about_to_rest(const Session& session, CUcontext context);

// The session of `device`, or null.
Session* session_of(CUdevice device);

// Work on `device` may reach the buffers of `owner`, another GPU, from now on.
CUresult admit_peer(CUdevice owner, CUdevice device);

// From now on none of the work that is submitted goes to the driver without a look.
void look_at_all_work();

// A context of a GPU that may be the first: memory of the program's own may have outlived the last.
void context_made(CUcontext context, CUdevice device);
// Before a call that may destroy `context`, whose end that is: if its GPU has another, the session works
// through that from now on, and the work in this one is waited for.
void context_ending(CUcontext context, program::ContextEnd& end);
// After it: the context is there still, or
void context_stays(CUcontext context);
// it is gone, and its buffers with it, which are these until that is said.
std::vector<Buffer> buffers_of(CUcontext context);
void context_gone(CUcontext context);

// Managed memory takes no more of each GPU from now on; 0: what it could before. Also of those whose sessions
// are opened later.
void set_limit(std::uint64_t bytes);

// Of each GPU: whether other processes under the shim have come or changed, and what this one gives back for
// that.
bool shares_are_due() noexcept;
void look_at_shares();
// Whether there were any at the last look.
bool gpus_are_shared() noexcept;

// The terms on which those GPUs are shared that are shared, and will be.
void set_share(const util::ShareTerms& terms);

// Decides what goes from now on, in all sessions: what `setting` means, as LMS_POLICY. False, having said why
// at warn, if there is none that can be used.
bool set_policy(const std::string& setting);

// While the program runs (trace/writer.h), with what the sessions know: 0 or an errno.
int begin_trace(const std::string& path, std::optional<std::uint64_t> most_bytes);
int end_trace();

// From now on managed memory is in that range too, or may come to be.
void widen_bounds(engine::Address begin, engine::Address end);

}  // namespace lms::session
