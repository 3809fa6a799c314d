#include "shim/executor/pressure.h"

#include <algorithm>

#include "shim/executor/self_check.h"
#include "shim/executor/state.h"
#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/program/fast_path.h"
#include "shim/program/green_contexts.h"
#include "shim/program/per_thread_streams.h"
#include "shim/program/streams.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::executor {

namespace {

// Threads that list streams again and again, with calls that nobody knows, are not waited for.
constexpr int kMostListings = 16;

struct Answer {
    bool over = false;
    FencePtr fence;  // behind what is not
};

// An error that does not stay says nothing.
template <typename Query>
CUresult asked_again(Query query) {
    const CUresult status = query();
    const bool answered =
        status == CUDA_SUCCESS || status == CUDA_ERROR_NOT_READY || device::about_capture(status);
    return answered ? status : query();
}

Answer ask(State& state, const EarlierWork::In& in, bool legacy_is_over) LMS_UNLOCKED {
    device::Port& port = state.port;
    const program::ContextUse context(in.context);
    if (!context) return {};
    CUresult status = CUDA_ERROR_NOT_READY;
    FencePtr fence;
    if (in.stream) {
        const program::StreamUse use(in.stream);
        // Who destroys it fences it.
        if (use) status = asked_again([&] { return port.query_stream(in.stream); });
        if (device::about_capture(status) && program::fenced_before_capture(in.stream))
            return {true, nullptr};
    } else {
        status = asked_again([&] { return port.query_legacy(in.context); });
        const bool forbidden = device::about_capture(status);
        if (forbidden && legacy_is_over) return {true, nullptr};
        // Nobody can ask for per-thread streams, but the legacy stream waits for them.
        if (!forbidden && program::per_thread_streams_used.load())
            fence = state.fences.record_legacy(in.context, &status);
    }
    return {!device::leaves_open(status) && !fence, std::move(fence)};
}

// Those whose work may reach the session's GPU; `current` may be one that has not been seen yet.
std::vector<CUcontext> contexts_of(const State& state, CUcontext current) {
    std::vector<CUcontext> contexts = program::known_contexts();
    if (std::find(contexts.begin(), contexts.end(), current) == contexts.end()) contexts.push_back(current);
    std::erase_if(contexts, [&](CUcontext context) { return !program::may_lead_to(context, state.device); });
    return contexts;
}

// Any of them may have been given work that nobody looked at, but for the legacy streams of `others`.
void list_all_streams(State& state, CUcontext current, std::span<const CUcontext> others) LMS_LOCKED {
    state.mutex.check_held();
    EarlierWork& earlier = state.earlier;
    ++earlier.listings;
    const auto list = [&](StreamKey key, CUstream stream, CUcontext context) LMS_LOCKED {
        std::erase_if(earlier.streams, [&](const EarlierWork::In& in) { return in.key == key; });
        earlier.streams.push_back({key, stream, context, earlier.listings});
    };
    for (const program::KnownStream& each : program::known_streams()) {
        if (program::may_lead_to(each.context, state.device))
            list(state.fences.key_of(each.stream), each.stream, each.context);
    }
    for (const CUcontext context : contexts_of(state, current)) {
        if (std::ranges::find(others, context) == others.end())
            list(Fences::legacy_key(context), nullptr, context);
    }
}

}  // namespace

void begin_pressure(State& state, SessionLock& lock) {
    if (state.under_pressure.load()) return check_moves(state, lock);
    const CUcontext current = unlocked(lock, [&] { return state.port.current_context(); });
    if (state.under_pressure.exchange(true)) return check_moves(state, lock);
    // From here to the last stream the lock is kept: what is not listed counts as over.
    program::fast_path_gate.close();
    state.earlier.entering = true;
    ++state.earlier.begun;
    list_all_streams(state, current, {});
    look_at_earlier_work(state, lock);
    check_moves(state, lock);
}

void look_at_earlier_work(State& state, SessionLock& lock) {
    EarlierWork& earlier = state.earlier;
    if (!earlier.any() || earlier.asking) return;
    if (earlier.entering) {
        if (program::fast_path_gate.busy()) return;
        earlier.entering = false;
    }
    const std::vector<EarlierWork::In> asked = earlier.streams;
    std::vector<Answer> answers(asked.size());
    earlier.asking = true;
    const std::uint64_t legacy_over_at = earlier.legacy_over_at;
    unlocked(lock, [&] {
        const program::CapturesHeldOff held_off;
        const std::uint64_t captures = program::captures_since_none();
        const bool legacy_is_over = program::capturing_anywhere() && legacy_over_at == captures &&
                                    program::per_thread_streams_unfenced_at.load() != captures;
        for (std::size_t i = 0; held_off && i < asked.size(); ++i)
            answers[i] = ask(state, asked[i], legacy_is_over);
    });
    earlier.asking = false;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        const auto it =
            std::find_if(earlier.streams.begin(), earlier.streams.end(), [&](const EarlierWork::In& in) {
                return in.key == asked[i].key && in.listing == asked[i].listing;
            });
        // Gone: its end, or work submitted since, has left a fence. Or it has been listed anew.
        if (it == earlier.streams.end() || !(answers[i].over || answers[i].fence)) continue;
        if (answers[i].fence) {
            stands_for_earlier_work(state, asked[i].key, asked[i].listing,
                                    state.fences.add(std::move(answers[i].fence)));
        } else {
            earlier.streams.erase(it);
        }
    }
    state.changed.notify_all();
}

void stands_for_earlier_work(State& state, StreamKey stream, std::uint64_t listing, const engine::Use& use) {
    state.mutex.check_held();
    // What is still on its way to the driver may come behind the fence.
    if (state.earlier.entering) return;
    const auto is_behind = [&](const EarlierWork::In& in) {
        return in.key == stream && in.listing <= listing;
    };
    if (std::erase_if(state.earlier.streams, is_behind) == 0) return;
    state.engine.opaque_until(use);
}

void leave_legacy_open(State& state, CUcontext context) {
    state.mutex.check_held();
    EarlierWork& earlier = state.earlier;
    earlier.legacy_over_at = 0;
    const StreamKey key = Fences::legacy_key(context);
    // Where nothing has moved yet all contexts are asked first.
    if (!state.under_pressure.load()) return;
    const auto known = std::ranges::find(earlier.streams, key, &EarlierWork::In::key);
    if (known == earlier.streams.end())
        earlier.streams.push_back({key, nullptr, context, ++earlier.listings});
    else
        known->listing = ++earlier.listings;  // what is being asked of it says nothing of this
}

void earlier_work_gone(State& state, const std::function<bool(const EarlierWork::In&)>& gone) {
    state.mutex.check_held();
    std::erase_if(state.earlier.streams, gone);
}

namespace {

// What is known of when a stream's work will be over.
enum class Behind { Known, Unknown, Forbidden };

// By a fence among `fences`, or nothing runs. Forbidden: a capture forbids to ask.
Behind fence_legacy(State& state, CUcontext context, std::vector<FencePtr>& fences) LMS_UNLOCKED {
    const CUresult status = asked_again([&] { return state.port.query_legacy(context); });
    if (device::about_capture(status)) return Behind::Forbidden;
    // Threads' own streams are waited for by the legacy stream alone.
    const bool own = program::per_thread_streams_used.load();
    if (!own && !device::leaves_open(status)) return Behind::Known;
    fences.push_back(own ? state.fences.record_legacy(context) : state.fences.record_behind_legacy(context));
    return fences.back() ? Behind::Known : Behind::Unknown;
}

// Forbidden: it is captured itself.
Behind fence_stream(State& state, CUstream stream, std::vector<FencePtr>& fences) LMS_UNLOCKED {
    const CUresult status = asked_again([&] { return state.port.query_stream(stream); });
    if (device::about_capture(status)) return Behind::Forbidden;
    if (!device::leaves_open(status)) return Behind::Known;
    fences.push_back(state.fences.record(stream));
    return fences.back() ? Behind::Known : Behind::Unknown;
}

// Whether one of the context's streams is captured; an unknown call may have begun that.
bool captures(State& state, CUcontext context) {
    if (device::about_capture(state.port.query_legacy(context))) return true;
    return std::ranges::any_of(program::known_streams(), [&](const program::KnownStream& each) {
        if (each.context != context) return false;
        const program::StreamUse use(each.stream);
        return use && device::about_capture(state.port.query_stream(each.stream));
    });
}

}  // namespace

bool fence_contexts(State& state, std::vector<FencePtr>& fences) {
    const program::CapturesHeldOff held_off;
    if (!held_off || program::capturing_anywhere()) return false;
    for (const CUcontext context : contexts_of(state, state.port.current_context())) {
        const program::ContextUse use(context);
        if (!use) continue;  // who ends it waits for its work
        if (captures(state, context)) return false;
        fences.push_back(state.fences.record_context(context));
        if (!fences.back()) return false;
    }
    return true;
}

void count_as_opaque(State& state, std::vector<FencePtr>& fences) {
    state.mutex.check_held();
    std::erase(fences, nullptr);
    for (FencePtr& fence : fences) state.engine.opaque_until(state.fences.add(std::move(fence)));
}

std::vector<CUcontext> forbidden_legacy(State& state) {
    std::vector<CUcontext> forbidden;
    if (!program::capturing_anywhere()) return forbidden;
    for (const CUcontext context : contexts_of(state, state.port.current_context())) {
        const program::ContextUse use(context);
        if (use && device::about_capture(asked_again([&] { return state.port.query_legacy(context); })))
            forbidden.push_back(context);
    }
    return forbidden;
}

void unseen_work_came(State& state, std::span<const CUcontext> forbidden, SessionLock& lock) {
    std::vector<CUcontext> known;  // when their legacy streams' work will be over, or they got none
    std::vector<FencePtr> fences;
    bool shut = false;  // legacy streams were meanwhile
    CUcontext current = nullptr;
    unlocked(lock, [&] {
        current = state.port.current_context();
        if (!program::capturing_anywhere()) return;
        for (const CUcontext context : contexts_of(state, current)) {
            const program::ContextUse use(context);
            if (!use) continue;
            const Behind behind = fence_legacy(state, context, fences);
            const bool was_forbidden = std::ranges::find(forbidden, context) != forbidden.end();
            if (behind == Behind::Known || (behind == Behind::Forbidden && was_forbidden))
                known.push_back(context);
            shut |= behind == Behind::Forbidden && !was_forbidden;
        }
    });
    count_as_opaque(state, fences);
    // What was fenced as the capture began does not tell of this.
    if (shut) state.earlier.legacy_over_at = 0;
    list_all_streams(state, current, known);
}

void fence_legacy_streams(State& state, SessionLock& lock) {
    // What is listed meanwhile, as the first move begins, may have come behind these fences.
    for (int tries = 0; tries < kMostListings; ++tries) {
        std::vector<FencePtr> fences;
        bool all = true;
        bool forbidden = false;
        const std::uint64_t listings = state.earlier.listings;
        unlocked(lock, [&] {
            for (const CUcontext context : contexts_of(state, state.port.current_context())) {
                const program::ContextUse use(context);
                const Behind behind = use ? fence_legacy(state, context, fences) : Behind::Unknown;
                all &= behind != Behind::Unknown;
                forbidden |= behind == Behind::Forbidden;
            }
        });
        count_as_opaque(state, fences);
        if (state.earlier.listings != listings) continue;
        // Where it is forbidden the capture that forbade it has had them fenced, or could not.
        if (!all) state.earlier.legacy_over_at = 0;
        if (all && !forbidden) state.earlier.legacy_over_at = program::captures_since_none();
        return;
    }
    state.earlier.legacy_over_at = 0;
}

void close_legacy_streams(State& state, SessionLock& lock) {
    const std::vector<CUcontext> open = state.fences.open_legacy();
    if (open.empty()) return;
    std::vector<FencePtr> fences;
    unlocked(lock, [&] {
        for (const CUcontext context : open) {
            const program::ContextUse use(context);
            if (use) fences.push_back(state.fences.record_behind_legacy(context));
        }
    });
    std::erase(fences, nullptr);
    for (FencePtr& fence : fences) state.fences.add(std::move(fence));
}

bool fence_beside_captures(State& state, CUcontext context, SessionLock& lock) {
    if (state.under_pressure.load() && !state.earlier.any()) return true;
    const std::uint64_t legacy_over_at = state.earlier.legacy_over_at;
    // Under pressure all that is not listed has fences of its own.
    const bool any_may_have_some = !state.under_pressure.load() || state.earlier.entering;
    const std::vector<EarlierWork::In> listed = state.earlier.streams;
    const auto has_fences = [&](StreamKey key) {
        return !any_may_have_some && std::ranges::find(listed, key, &EarlierWork::In::key) == listed.end();
    };
    std::vector<FencePtr> fences;
    bool all = true;
    const auto fence_all = [&] {
        const program::CapturesHeldOff held_off;
        if (!held_off) return false;
        const std::uint64_t captures = program::captures_since_none();
        for (const program::KnownStream& each : program::known_streams()) {
            if (each.context != context || has_fences(state.fences.key_of(each.stream))) continue;
            const program::StreamUse use(each.stream);
            // Who destroys it fences it first.
            if (!use) return false;
            const Behind behind = fence_stream(state, each.stream, fences);
            all &= behind == Behind::Known ||
                   (behind == Behind::Forbidden && program::fenced_before_capture(each.stream));
        }
        if (has_fences(Fences::legacy_key(context))) return true;
        const Behind legacy = fence_legacy(state, context, fences);
        all &= legacy == Behind::Known || (legacy == Behind::Forbidden && legacy_over_at == captures &&
                                           program::per_thread_streams_unfenced_at.load() != captures);
        return true;
    };
    unlocked(lock, [&] {
        while (!fence_all()) util::pause(bounds::kCapture);
    });
    count_as_opaque(state, fences);
    return all;
}

bool fence_streams(State& state, CUcontext context, std::vector<FencePtr>& fences) {
    const program::CapturesHeldOff held_off;
    // Of threads' own streams the threads alone can tell.
    const bool own =
        program::per_thread_streams_used.load() || program::per_thread_streams_used_beside_moves.load();
    // Who waits for a GPU's primary context waits for its green ones, which have streams of their own.
    if (!held_off || program::capturing_anywhere() || own || program::any_green() ||
        program::streams_unlisted.load())
        return false;
    for (const program::KnownStream& each : program::known_streams()) {
        if (each.context != context) continue;
        const program::StreamUse use(each.stream);
        if (!use || fence_stream(state, each.stream, fences) != Behind::Known) return false;
    }
    return fence_legacy(state, context, fences) == Behind::Known;
}

void end_pressure(State& state) {
    if (state.under_pressure.exchange(false)) program::fast_path_gate.reopen();
}

}  // namespace lms::executor
