// The one way that work goes to the driver: what it names is brought in first, and a fence is left behind.
#pragma once

#include <array>
#include <cstddef>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "shim/device/cuda_api.h"
#include "shim/session/fast_submit.h"
#include "shim/session/sessions.h"
#include "shim/session/stream_turns.h"
#include "shim/session/working_set.h"

namespace lms::session {

// Memory for what is noted down of one launch: on the stack, and beyond that wherever there is some.
class Scratch : public std::pmr::monotonic_buffer_resource {
  public:
    Scratch() : monotonic_buffer_resource(&first_, sizeof first_) {}

  private:
    std::array<std::byte, 2048> first_;
};

// Null: it is not known.
CUcontext context_of(CUstream stream);

// Holds what a reach names in every session for as long as it lives; tells the sessions when it ends that the
// work was submitted (or refused). status() says whether it may be submitted.
class ResidencyGuard {
  public:
    // `reach` must outlive it.
    explicit ResidencyGuard(const WorkingSet& reach);
    ~ResidencyGuard();
    ResidencyGuard(const ResidencyGuard&) = delete;
    ResidencyGuard& operator=(const ResidencyGuard&) = delete;
    CUresult status() const { return status_; }

    // Around waiting for moves that others make, so that work which nothing may move beside does not wait for
    // itself. After resume() look at status() again.
    void suspend();
    void resume();
    // While suspended: what it holds may move too, where it can be used in host memory.
    void give_up();

    // The driver has refused the work.
    void refused();

    // What it holds where its address does not lead, by ascending address.
    std::vector<HostCopy> host_copies() const;

  private:
    // Made before anything is held: where that fails half-way, the destructor lets go of the rest.
    explicit ResidencyGuard(CUstream stream) : submitting_(stream) {}

    struct Held {
        Held(Session* session_, Work&& work_) : session(session_), work(std::move(work_)) {}
        Session* session;
        Work work;
    };
    const Submitting submitting_;
    Scratch scratch_;
    std::pmr::vector<Held> held_{&scratch_};
    CUresult status_ = CUDA_SUCCESS;
};

// Chunks of one session kept on the device until let_go().
struct PinnedIn {
    Session* session;
    ResidentPins kept;
};

// Brings the managed parts of `ranges` in, waits until they are there, and keeps them. On failure keeps
// nothing.
CUresult pin_resident(std::span<const Range> ranges, std::vector<PinnedIn>& kept);
void let_go(std::vector<PinnedIn>& kept);
// Keeps them for as long as their buffers live instead.
void leave_pinned(std::vector<PinnedIn>& kept);

// What becomes of one piece of work that names all of `reach`. Where a GPU lacks some of that, and it is more
// than half of what may be there, little else can come in beside it: what is missing is used in place, or is
// waited for before the work is submitted. Refused: there is no room for it beside what cannot leave.
enum class AsOne { Fits, InPlace, Waits, Refused };
AsOne as_one(const WorkingSet& reach);
// What work finds that is alone on the GPU. Little: it names three quarters of what may be there, and what is
// missing can be used in place. None: it would be refused.
enum class Room { Enough, Little, None };
Room room_for(const WorkingSet& reach);

// Works in `stream` that are not known to be over.
std::uint64_t unfinished_in(CUstream stream);

using GuardsOfCall = std::span<ResidencyGuard* const>;

// What call_with_oom_retry() does once `call` has failed with `status`.
CUresult call_again(CUresult status, Call call, GuardsOfCall guards);

// Calls `call` (which submits the work of `guards`, if any, and returns its CUresult), again as long as the
// driver is out of memory and more room for it can be made.
template <typename Callable>
CUresult call_with_oom_retry(Callable&& call, GuardsOfCall guards = {}) {
    const CUresult status = call();
    return status == CUDA_SUCCESS ? status : call_again(status, call, guards);
}

// What pin_with_retry() does once `call` has failed with `status`.
CUresult pin_again(CUresult status, Call call);

// The same of a call that pins host memory, which evictions take more of: it is given what the shim has
// pinned for no buffer.
template <typename Callable>
CUresult pin_with_retry(Callable&& call) {
    const CUresult status = call();
    return status == CUDA_SUCCESS ? status : pin_again(status, call);
}

// Submits work to `stream` that uses no memory which may move.
template <typename Callable>
CUresult submit_beside_moves(CUstream stream, Callable&& call) {
    const Submitting submitting(stream);
    return call_with_oom_retry(call);
}

// For work over ranges that may stay on the host: by ascending address.
using HostCopies = std::span<const HostCopy>;

using Look = util::FunctionRef<WorkingSet()>;

// Submits work that try_fast_path() did not take; `look()` gives its WorkingSet.
CUresult submit_after_look(CUstream stream, Look look, Call call);

// Submits work: `look()` is only asked where something may have to move.
CUresult submit(CUstream stream, Look look, Call call);

// The same of work that is told of the host copies to be used in place, none while everything fits.
CUresult submit_in_place(CUstream stream, Look look, util::FunctionRef<CUresult(HostCopies)> call);

// Calls `call`, which the shim does not know: it may submit any work to any stream.
CUresult submit_unseen(Call call);

}  // namespace lms::session
