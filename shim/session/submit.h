// The one way that work goes to the driver: what it names is brought in first, and a fence is left behind.
#pragma once

#include <array>
#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shim/app/capture.h"
#include "shim/app/fast_path.h"
#include "shim/app/per_thread_streams.h"
#include "shim/device/cuda_api.h"
#include "shim/session/sessions.h"
#include "shim/session/working_set.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::engine {

// Memory for what is noted down of one launch: on the stack, and beyond that wherever there is some.
class Scratch : public std::pmr::monotonic_buffer_resource {
  public:
    Scratch() : monotonic_buffer_resource(&first_, sizeof first_) {}

  private:
    std::array<std::byte, 2048> first_;
};

inline CUstream resolve_stream(CUstream stream, bool per_thread) {
    if (stream) return stream;
    return per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

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
    struct Held {
        Held(Session* session_, Work&& work_) : session(session_), work(std::move(work_)) {}
        Session* session;
        Work work;
    };
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

// Bytes to begin with where it is not known how much is wanted: one chunk's.
std::uint64_t least_reclaim();
// Makes room for memory that the driver was refused: on the current GPU, and if that has no more, on the
// others (calls name GPUs, too). Returns the bytes that were given up.
std::uint64_t reclaim(std::uint64_t bytes);
// The driver has given out what was made room for: budgets are looked at again.
void refresh_budgets();

// Calls `call` (which submits the work of `admissions`, if any, and returns its CUresult), again as long as
// the driver is out of memory and more room for it can be made.
template <typename Call, typename ResidencyGuards = std::span<ResidencyGuard>>
CUresult call_with_oom_retry(Call&& call, ResidencyGuards&& admissions = {}) {
    CUresult status = call();
    if (status == CUDA_SUCCESS) [[likely]]
        return status;
    if (status != CUDA_ERROR_OUT_OF_MEMORY) {
        for (ResidencyGuard& admission : admissions) admission.refused();
        return status;
    }
    // The driver does not say how much it wants: twice as much each time, until there is no more to be had.
    std::uint64_t wanted = least_reclaim();
    // At last what the work itself names makes room, and is used where it goes.
    bool own = false, last = false;
    while (status == CUDA_ERROR_OUT_OF_MEMORY && !last) {
        for (ResidencyGuard& admission : admissions) admission.suspend();
        if (own) {
            for (ResidencyGuard& admission : admissions) admission.give_up();
        }
        const std::uint64_t given = reclaim(wanted);
        for (ResidencyGuard& admission : admissions) admission.resume();
        for (const ResidencyGuard& admission : admissions) {
            if (admission.status() != CUDA_SUCCESS) return admission.status();
        }
        if (given > 0) {
            status = call();
            if (status == CUDA_SUCCESS) refresh_budgets();
        }
        if (given >= wanted) {
            wanted *= 2;
        } else {
            last = own || std::empty(admissions);
            own = true;
        }
    }
    return status;
}

// The calling thread has submitted work to its own stream while a capture is under way, which may forbid to
// wait for that through the legacy stream: leaves a fence behind it.
void fence_own_stream();
// Before pressure: behind what such a call gave to any stream, where that can be; else behind what it gave to
// the thread's own, of which no other thread can tell how far it is.
void fence_unseen_work();

// Calls `call`, which submits work to `stream`, without a look at what it reaches, if nothing moves anywhere;
// `status` is then what it returned. False: it was not called, or the driver had no memory left for it and it
// must be tried with room made.
template <typename Call>
inline bool try_fast_path(CUstream stream, Call&& call, CUresult& status) {
    if (!fast_path_gate.enter()) return false;
    struct Leave {
        ~Leave() { fast_path_gate.leave(); }
    };
    const Leave leave;
    status = call();
    // After the call: a capture that nears fences what came before, or is seen here.
    if (stream == CU_STREAM_PER_THREAD) [[unlikely]] {
        // Threads share what they only read.
        if (!per_thread_streams_used.load()) per_thread_streams_used.store(true);
        if (capturing_anywhere()) fence_own_stream();
    }
    return status != CUDA_ERROR_OUT_OF_MEMORY || sessions().empty();
}

// For work over ranges that may stay on the host: by ascending address.
using HostCopies = std::span<const HostCopy>;

// Submits work that try_fast_path() did not take; `look()` gives its WorkingSet. `call` is told of host
// copies if it takes them.
template <typename Look, typename Call>
CUresult submit_after_look(CUstream stream, Look&& look, Call&& call) {
    // Captured work does not run now; its graph is looked at when it is launched.
    if (capturing(stream)) return call();
    const WorkingSet reach = look();
    ResidencyGuard admission(reach);
    if (admission.status() != CUDA_SUCCESS) return admission.status();
    const auto submitting = [&] {
        if constexpr (std::is_invocable_v<Call&, HostCopies>) {
            return call(admission.host_copies());
        } else {
            return call();
        }
    };
    return call_with_oom_retry(submitting, std::span(&admission, 1));
}

// Submits work: `look()` is only asked where something may have to move.
template <typename Look, typename Call>
CUresult submit(CUstream stream, Look&& look, Call&& call) {
    CUresult status = CUDA_SUCCESS;
    if (try_fast_path(stream, call, status)) return status;
    return submit_after_look(stream, look, call);
}

// Calls `call`, which the shim does not know: it may submit any work to any stream.
template <typename Call>
CUresult submit_unseen(Call&& call) {
    CUresult status = CUDA_SUCCESS;
    const auto call_and_fence = [&] {
        const CUresult result = call();
        fence_unseen_work();
        return result;
    };
    if (try_fast_path(CU_STREAM_LEGACY, call_and_fence, status)) return status;
    WorkingSet reach;
    reach.opaque = reach.unseen = reach.anywhere = reach.in_any_stream = true;
    // Which streams it was given could not be asked beside a capture that began meanwhile.
    std::optional<CapturesHeldOff> held_off;
    while (!held_off.emplace()) util::pause(bounds::kCapture);
    ResidencyGuard admission(reach);
    status = call_with_oom_retry(call, std::span(&admission, 1));
    reach.own_stream_captured = capturing(CU_STREAM_PER_THREAD);
    return status;
}

}  // namespace lms::engine
