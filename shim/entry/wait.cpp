#include "shim/entry/wait.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/entry/context_check.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/program/streams.h"
#include "shim/session/sessions.h"
#include "shim/session/submit.h"
#include "shim/session/tool_requests.h"
#include "shim/trace/stats.h"
#include "shim/trace/writer.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/not_cancelled.h"

namespace lms::entry {
namespace {

using device::driver;

// A trace is told of the wait that is made while it lives, which no cancellation ends.
class WaitTold {
  public:
    WaitTold() : begin_ns_(trace::writer() ? trace::now_ns() : 0) {}
    ~WaitTold() {
        if (begin_ns_ == 0) return;
        const std::uint64_t now_ns = trace::now_ns();
        if (now_ns - begin_ns_ < kShortest) return;
        if (const auto writer = trace::writer()) writer->write(trace::ProgramWait{begin_ns_, now_ns});
    }
    WaitTold(const WaitTold&) = delete;
    WaitTold& operator=(const WaitTold&) = delete;

  private:
    const util::NotCancelled whole_;
    static constexpr std::uint64_t kShortest = 10'000;  // or else there was nothing to wait for

    std::uint64_t begin_ns_;
};

bool move_ahead() {
    bool more = false;
    for (session::Session* session : session::sessions()) more |= session->move_ahead();
    return more;
}

// What a thread waits for: of each GPU what the program has given it so far. What it is given meanwhile does
// not hold the thread up.
using Given = std::vector<std::pair<session::Session*, std::vector<engine::Use>>>;

bool unfinished(Given& given) {
    std::erase_if(given, [](auto& each) { return !each.first->unfinished(each.second); });
    return !given.empty();
}

// Comes back when that is over, when `is_over` says so, when nothing is foretold, or when something is being
// captured: a question would end that.
template <typename IsOver>
void meanwhile(Given given, IsOver is_over) {
    if (trace::Writer* const trace = trace::writer()) trace->refresh();
    trace::refresh_counters();
    session::take_up_requests();
    // In a host function nothing can be seen to end, and the driver refuses the wait.
    if (given.empty() || refusal() == CUDA_ERROR_NOT_PERMITTED) return;
    for (;;) {
        // Other processes are to see that this one uses the GPU still, and to get what is theirs.
        const bool shared = session::gpus_are_shared();
        {
            const device::Together together;
            {
                // What nobody waits for is not to be waited for with the rest of the context.
                const program::CapturesHeldOff held_off;
                if (!held_off || program::capturing_anywhere() || !unfinished(given) || is_over()) return;
            }
            if (!move_ahead() && !shared) return;
        }
        util::pause(bounds::kAhead);
        if (shared) session::take_up_requests();
    }
}

// Whatever came of it. Nothing is asked where that would end a capture.
CUresult waited(CUresult status) {
    if (!trace::writer()) return status;
    guarded([] {
        const program::CapturesHeldOff held_off;
        if (!held_off || program::capturing_anywhere()) return CUDA_SUCCESS;
        for (session::Session* session : session::sessions()) session->waited();
        return CUDA_SUCCESS;
    });
    return status;
}

void meanwhile(Given given) {
    meanwhile(std::move(given), [] { return false; });
}

template <typename Of>
Given given_to_each(Of of) {
    Given given;
    for (session::Session* session : session::sessions()) {
        std::vector<engine::Use> uses = of(*session);
        if (!uses.empty()) given.emplace_back(session, std::move(uses));
    }
    return given;
}

Given given_to(CUstream stream) {
    return given_to_each([&](session::Session& session) { return session.given(stream); });
}

Given given_to_all() {
    return given_to_each([](session::Session& session) { return session.given(); });
}

// What the context's GPU was given is known, but not by which context.
Given given_to(CUcontext context) {
    CUdevice device = 0;
    {
        const device::InContext in_context(context);
        if (driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return {};
    }
    session::Session* const session = session::session_of(device);
    const std::vector<CUcontext> contexts = program::known_contexts();
    const bool alone = std::ranges::none_of(
        contexts, [&](CUcontext other) { return other != context && program::may_reach(other, device); });
    if (!session || !alone) return {};
    return {{session, session->given()}};
}

CUresult wait_for_stream(CUstream stream, session::Call wait) {
    const WaitTold told;
    // Whatever comes of it, the wait is made.
    guarded([&] {
        meanwhile(given_to(stream));
        return CUDA_SUCCESS;
    });
    return waited(wait());
}

// Beside copies of the shim, for which the driver would wait too: by fences. Nothing where the driver is to
// wait.
std::optional<CUresult> wait_beside_moves(CUcontext context) {
    if (refusal() == CUDA_ERROR_NOT_PERMITTED) return std::nullopt;
    const program::ContextUse use(context);
    const device::InContext in_context(context);
    CUdevice device = 0;
    if (!use || driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return std::nullopt;
    session::Session* const session = session::session_of(device);
    const auto status = session ? session->wait_beside_moves(context) : std::nullopt;
    if (status != CUDA_SUCCESS) return status;
    // What kernels have printed is shown by a wait of the driver's; this one is for no copy of the shim.
    // Where something is captured by now it would end that, and all is over anyway.
    const program::CapturesHeldOff held_off;
    if (!held_off || program::capturing_anywhere()) return status;
    return driver().cuStreamSynchronize(CU_STREAM_LEGACY);
}

CUresult wait_for_context(CUcontext context, session::Call wait) {
    const WaitTold told;
    std::optional<CUresult> over;
    // Whatever comes of it, the wait is made.
    guarded([&] {
        if (!context) return CUDA_SUCCESS;
        meanwhile(given_to(context));
        over = wait_beside_moves(context);
        return CUDA_SUCCESS;
    });
    return waited(over ? *over : wait());
}

// What GPUs are given from here on comes after what the event stands for, so being recorded again and again
// does not make it last.
CUresult wait_for_event(CUevent event) {
    const WaitTold told;
    CUresult status = CUDA_ERROR_NOT_READY;
    guarded([&] {
        meanwhile(given_to_all(), [&] {
            status = driver().cuEventQuery(event);
            return status != CUDA_ERROR_NOT_READY;
        });
        return CUDA_SUCCESS;
    });
    // Recorded again since, it would be waited for anew.
    return waited(status == CUDA_SUCCESS ? status : driver().cuEventSynchronize(event));
}

}  // namespace

void move_ahead_while_busy(CUstream stream) {
    const WaitTold told;
    meanwhile(given_to(stream));
}

void move_ahead_while_busy(session::Session& session) {
    const WaitTold told;
    meanwhile({{&session, session.given()}});
}

CUresult wait_for_earlier(CUstream stream) {
    CUevent here = nullptr;
    CUresult status = driver().cuEventCreate(&here, CU_EVENT_DISABLE_TIMING);
    if (status != CUDA_SUCCESS) return status;
    status = driver().cuEventRecord(here, stream);
    if (status == CUDA_SUCCESS) status = driver().cuEventSynchronize(here);
    driver().cuEventDestroy_v2(here);
    return status;
}

}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuCtxSynchronize() {
    CUcontext context = nullptr;
    driver().cuCtxGetCurrent(&context);
    return wait_for_context(context, [] { return driver().cuCtxSynchronize(); });
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    return wait_for_context(ctx, [&] { return driver().cuCtxSynchronize_v2(ctx); });
}

LMS_FORMS(cuStreamSynchronize, _ptsz, (CUstream hStream),
          return wait_for_stream(Form::stream(hStream), [&] { return Form::real(hStream); });)

CUresult cuEventSynchronize(CUevent hEvent) {
    return wait_for_event(hEvent);
}
