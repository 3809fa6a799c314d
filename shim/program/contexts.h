// The program's contexts, as far as it has shown them: where work may be that nobody fenced, and through
// which the shim can work on a GPU when another goes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "shim/device/cuda_api.h"
#include "shim/program/handles.h"

namespace lms::program {

// Thread-safe, for the process.
void context_seen(CUcontext context, CUdevice device);
// The primary context of `device` as the program was last given it; null if it was not.
void primary_seen(CUcontext context, CUdevice device);
CUcontext primary_of(CUdevice device);
void forget_context(CUcontext context);
std::vector<CUcontext> known_contexts();
std::vector<CUcontext> known_contexts_of(CUdevice device);
// Whether work in `context` may reach memory of `owner`: it is that GPU's, or a peer's, or not known.
bool may_reach(CUcontext context, CUdevice owner);
// The same of all that was ever given to `context`: also of what runs on other GPUs than its own, or copies
// their memory, of which leads_elsewhere() has told.
bool may_lead_to(CUcontext context, CUdevice owner);
void leads_elsewhere(CUcontext context);
// Work on `device` may reach memory of `owner`, another GPU.
void peer_admitted(CUdevice owner, CUdevice device);
std::vector<CUdevice> peers_of(CUdevice owner);
// One of that GPU's that is not `other`, of those that may be about to go only where all are; null if there
// is none.
CUcontext another_context(CUdevice device, CUcontext other);

struct Context {
    std::optional<CUdevice> device;  // none: in use, and never seen
    std::uint64_t seen = 0;          // its place in the order in which they were seen
    bool is_primary = false;
    bool leads_elsewhere = false;
};
using Contexts = Handles<CUcontext, Context>;

// While it lives, a context that another thread may destroy, and what is in it, can be asked about. False if
// another thread's call that may destroy it is not over after `patience`; it may leave it and its work as
// they are.
struct ContextUse : Contexts::Use {
    explicit ContextUse(CUcontext context, std::chrono::nanoseconds patience = {});
};

// While one lives, a call of this thread may destroy `context`, of `device`, or has, and what it had is being
// forgotten. Those of one GPU come one at a time, each knowing what the one before it left: it waits for
// other threads' (at most a second: the call of one may wait for this thread).
class ContextEnd {
  public:
    ContextEnd(CUcontext context, CUdevice device);
    ~ContextEnd();
    ContextEnd(const ContextEnd&) = delete;
    ContextEnd& operator=(const ContextEnd&) = delete;
    // Before the call: through which the shim can work on. Null: there is none, and from here on none that is
    // made counts as one (is_left_to_end()).
    CUcontext successor();
    // Before the call, last: nobody uses it from here on (ContextUse). Waits for that, as above.
    void close();
    // After the call, which has destroyed it: nobody has to wait for the driver any more.
    void is_gone();

    struct State;

  private:
    std::unique_ptr<State> state_;
    std::optional<Contexts::Retire> retire_;
};
// Whether a call may be destroying it that found no successor.
bool is_left_to_end(CUcontext context);
// context_seen() of one that has just been made, and is not the program's yet. Waits until no ContextEnd
// lives of one that had its handle, which the driver may give out again before the call that destroyed its
// last owner has returned, nor of one that is the only one of its GPU, through which the shim works. The call
// that destroys that it waits for a second at most: that may wait for this thread.
void new_context_seen(CUcontext context, CUdevice device);

}  // namespace lms::program
