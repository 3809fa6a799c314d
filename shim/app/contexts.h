// The app's contexts, as far as it has shown them: where work may be that nobody fenced, and through which
// the shim can work on a GPU when another goes.
#pragma once

#include <vector>

#include "shim/device/cuda_api.h"

namespace lms::engine {

// Thread-safe, for the process.
void context_seen(CUcontext context, CUdevice device);
// The primary context of `device` as the app was last given it; null if it was not.
void primary_seen(CUcontext context, CUdevice device);
CUcontext primary_of(CUdevice device);
void forget_context(CUcontext context);
bool is_known(CUcontext context);
std::vector<CUcontext> known_contexts();
// Whether work in `context` may reach memory of `owner`: it is that GPU's, or a peer's, or not known.
bool may_reach(CUcontext context, CUdevice owner);
// The same of all that was ever given to `context`: also of what runs on other GPUs than its own, or copies
// their memory, of which leads_elsewhere() has told.
bool may_lead_to(CUcontext context, CUdevice owner);
void leads_elsewhere(CUcontext context);
// Work on `device` may reach memory of `owner`, another GPU.
void peer_admitted(CUdevice owner, CUdevice device);
std::vector<CUdevice> peers_of(CUdevice owner);
// One of that GPU's that is not `other`; null if there is none.
CUcontext another_context(CUdevice device, CUcontext other);

// While one lives, a call of this thread may destroy `context`, of `device`, or has, and what it had is being
// forgotten.
class ContextEnd {
  public:
    ContextEnd(CUcontext context, CUdevice device);
    ~ContextEnd();
    ContextEnd(const ContextEnd&) = delete;
    ContextEnd& operator=(const ContextEnd&) = delete;

  private:
    CUcontext context_;
};
// Before a new context is told of: comes back when none lives of one that had its handle, which the driver
// may give out again before the call that destroyed its last owner has returned, nor of one that is the only
// one of its GPU, through which the shim works. Within a second: such a call may wait for who waits here.
void await_end_of_last(CUcontext context, CUdevice device);

}  // namespace lms::engine
