#include "shim/executor/pressure.h"

#include <algorithm>

#include "shim/executor/core.h"
#include "shim/executor/self_check.h"
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

Answer ask(device::Port& port, Fences& fences, const EarlierWork::In& in, bool legacy_is_over) LMS_UNLOCKED {
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
            fence = fences.record_legacy(in.context, &status);
    }
    return {!device::leaves_open(status) && !fence, std::move(fence)};
}

// Those whose work may reach that GPU; `current` may be one that has not been seen yet.
std::vector<CUcontext> contexts_of(CUdevice device, CUcontext current) {
    std::vector<CUcontext> contexts = program::known_contexts();
    if (std::find(contexts.begin(), contexts.end(), current) == contexts.end()) contexts.push_back(current);
    std::erase_if(contexts, [&](CUcontext context) { return !program::may_lead_to(context, device); });
    return contexts;
}

// Any of them may have been given work that nobody looked at, but for the legacy streams of `others`.
void list_all_streams(Core& core, CUcontext current, std::span<const CUcontext> others) LMS_LOCKED {
    core.mutex.check_held();
    EarlierWork& earlier = core.earlier;
    ++earlier.listings;
    const auto list = [&](StreamKey key, CUstream stream, CUcontext context) LMS_LOCKED {
        std::erase_if(earlier.streams, [&](const EarlierWork::In& in) { return in.key == key; });
        earlier.streams.push_back({key, stream, context, earlier.listings});
    };
    for (const program::KnownStream& each : program::known_streams()) {
        if (program::may_lead_to(each.context, core.device))
            list(core.fences.key_of(each.stream), each.stream, each.context);
    }
    for (const CUcontext context : contexts_of(core.device, current)) {
        if (std::ranges::find(others, context) == others.end())
            list(Fences::legacy_key(context), nullptr, context);
    }
}

}  // namespace

void begin_pressure(Core& core, SessionLock& lock) {
    if (core.under_pressure.load()) return check_moves(core, lock);
    const CUcontext current = unlocked(lock, [&] { return core.port.current_context(); });
    if (core.under_pressure.exchange(true)) return check_moves(core, lock);
    // From here to the last stream the lock is kept: what is not listed counts as over.
    program::fast_path_gate.close();
    core.earlier.entering = true;
    ++core.earlier.begun;
    list_all_streams(core, current, {});
    look_at_earlier_work(core, lock);
    check_moves(core, lock);
}

void look_at_earlier_work(Core& core, SessionLock& lock) {
    EarlierWork& earlier = core.earlier;
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
            answers[i] = ask(core.port, core.fences, asked[i], legacy_is_over);
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
            stands_for_earlier_work(core, asked[i].key, asked[i].listing,
                                    core.fences.add(std::move(answers[i].fence)));
        } else {
            earlier.streams.erase(it);
        }
    }
    core.changed.notify_all();
}

void stands_for_earlier_work(Core& core, StreamKey stream, std::uint64_t listing, const engine::Use& use) {
    core.mutex.check_held();
    // What is still on its way to the driver may come behind the fence.
    if (core.earlier.entering) return;
    const auto is_behind = [&](const EarlierWork::In& in) {
        return in.key == stream && in.listing <= listing;
    };
    if (std::erase_if(core.earlier.streams, is_behind) == 0) return;
    core.engine.opaque_until(use);
}

void leave_legacy_open(Core& core, CUcontext context) {
    core.mutex.check_held();
    EarlierWork& earlier = core.earlier;
    earlier.legacy_over_at = 0;
    const StreamKey key = Fences::legacy_key(context);
    // Where nothing has moved yet all contexts are asked first.
    if (!core.under_pressure.load()) return;
    const auto known = std::ranges::find(earlier.streams, key, &EarlierWork::In::key);
    if (known == earlier.streams.end())
        earlier.streams.push_back({key, nullptr, context, ++earlier.listings});
    else
        known->listing = ++earlier.listings;  // what is being asked of it says nothing of this
}

void earlier_work_gone(Core& core, const std::function<bool(const EarlierWork::In&)>& gone) {
    core.mutex.check_held();
    std::erase_if(core.earlier.streams, gone);
}

namespace {

// What is known of when a stream's work will be over.
enum class Behind { Known, Unknown, Forbidden };

// By a fence among `fences`, or nothing runs. Forbidden: a capture forbids to ask.
Behind fence_legacy(device::Port& port, Fences& of, CUcontext context,
                    std::vector<FencePtr>& fences) LMS_UNLOCKED {
    const CUresult status = asked_again([&] { return port.query_legacy(context); });
    if (device::about_capture(status)) return Behind::Forbidden;
    // Threads' own streams are waited for by the legacy stream alone.
    const bool own = program::per_thread_streams_used.load();
    if (!own && !device::leaves_open(status)) return Behind::Known;
    fences.push_back(own ? of.record_legacy(context) : of.record_behind_legacy(context));
    return fences.back() ? Behind::Known : Behind::Unknown;
}

// Forbidden: it is captured itself.
Behind fence_stream(device::Port& port, Fences& of, CUstream stream,
                    std::vector<FencePtr>& fences) LMS_UNLOCKED {
    const CUresult status = asked_again([&] { return port.query_stream(stream); });
    if (device::about_capture(status)) return Behind::Forbidden;
    if (!device::leaves_open(status)) return Behind::Known;
    fences.push_back(of.record(stream));
    return fences.back() ? Behind::Known : Behind::Unknown;
}

// Whether one of the context's streams is captured; an unknown call may have begun that.
bool captures(device::Port& port, CUcontext context) {
    if (device::about_capture(port.query_legacy(context))) return true;
    return std::ranges::any_of(program::known_streams(), [&](const program::KnownStream& each) {
        if (each.context != context) return false;
        const program::StreamUse use(each.stream);
        return use && device::about_capture(port.query_stream(each.stream));
    });
}

}  // namespace

bool fence_contexts(Core& core, std::vector<FencePtr>& fences) {
    const program::CapturesHeldOff held_off;
    if (!held_off || program::capturing_anywhere()) return false;
    for (const CUcontext context : contexts_of(core.device, core.port.current_context())) {
        const program::ContextUse use(context);
        if (!use || captures(core.port, context)) return false;
        fences.push_back(core.fences.record_context(context));
        if (!fences.back()) return false;
    }
    return true;
}

void count_as_opaque(Core& core, std::vector<FencePtr>& fences) {
    core.mutex.check_held();
    std::erase(fences, nullptr);
    for (FencePtr& fence : fences) core.engine.opaque_until(core.fences.add(std::move(fence)));
}

std::vector<CUcontext> forbidden_legacy(Core& core) {
    std::vector<CUcontext> forbidden;
    if (!program::capturing_anywhere()) return forbidden;
    for (const CUcontext context : contexts_of(core.device, core.port.current_context())) {
        const program::ContextUse use(context);
        if (use && device::about_capture(asked_again([&] { return core.port.query_legacy(context); })))
            forbidden.push_back(context);
    }
    return forbidden;
}

void unseen_work_came(Core& core, std::span<const CUcontext> forbidden, SessionLock& lock) {
    std::vector<CUcontext> known;  // when their legacy streams' work will be over, or they got none
    std::vector<FencePtr> fences;
    bool shut = false;  // legacy streams were meanwhile
    CUcontext current = nullptr;
    unlocked(lock, [&] {
        current = core.port.current_context();
        if (!program::capturing_anywhere()) return;
        for (const CUcontext context : contexts_of(core.device, current)) {
            const program::ContextUse use(context);
            if (!use) continue;
            const Behind behind = fence_legacy(core.port, core.fences, context, fences);
            const bool was_forbidden = std::ranges::find(forbidden, context) != forbidden.end();
            if (behind == Behind::Known || (behind == Behind::Forbidden && was_forbidden))
                known.push_back(context);
            shut |= behind == Behind::Forbidden && !was_forbidden;
        }
    });
    count_as_opaque(core, fences);
    // What was fenced as the capture began does not tell of this.
    if (shut) core.earlier.legacy_over_at = 0;
    list_all_streams(core, current, known);
}

void fence_legacy_streams(Core& core, SessionLock& lock) {
    // What is listed meanwhile, as the first move begins, may have come behind these fences.
    for (int tries = 0; tries < kMostListings; ++tries) {
        std::vector<FencePtr> fences;
        bool all = true;
        bool forbidden = false;
        const std::uint64_t listings = core.earlier.listings;
        unlocked(lock, [&] {
            // To ask would spoil another thread's that begins meanwhile.
            std::optional<program::CapturesHeldOff> held_off;
            while (!held_off.emplace()) util::pause(bounds::kCapture);
            for (const CUcontext context : contexts_of(core.device, core.port.current_context())) {
                const program::ContextUse use(context);
                const Behind behind =
                    use ? fence_legacy(core.port, core.fences, context, fences) : Behind::Unknown;
                all &= behind != Behind::Unknown;
                forbidden |= behind == Behind::Forbidden;
            }
        });
        count_as_opaque(core, fences);
        if (core.earlier.listings != listings) continue;
        // Where it is forbidden the capture that forbade it has had them fenced, or could not.
        if (!all) core.earlier.legacy_over_at = 0;
        if (all && !forbidden) core.earlier.legacy_over_at = program::captures_since_none();
        return;
    }
    core.earlier.legacy_over_at = 0;
}

void close_legacy_streams(Core& core, SessionLock& lock) {
    const std::vector<CUcontext> open = core.fences.open_legacy();
    if (open.empty()) return;
    std::vector<FencePtr> fences;
    unlocked(lock, [&] {
        for (const CUcontext context : open) {
            const program::ContextUse use(context);
            if (use) fences.push_back(core.fences.record_behind_legacy(context));
        }
    });
    std::erase(fences, nullptr);
    for (FencePtr& fence : fences) core.fences.add(std::move(fence));
}

bool fence_beside_captures(Core& core, CUcontext context, SessionLock& lock) {
    if (core.under_pressure.load() && !core.earlier.any()) return true;
    const std::uint64_t legacy_over_at = core.earlier.legacy_over_at;
    // Under pressure all that is not listed has fences of its own.
    const bool any_may_have_some = !core.under_pressure.load() || core.earlier.entering;
    const std::vector<EarlierWork::In> listed = core.earlier.streams;
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
            if (each.context != context || has_fences(core.fences.key_of(each.stream))) continue;
            const program::StreamUse use(each.stream);
            // Who destroys it fences it first.
            if (!use) return false;
            const Behind behind = fence_stream(core.port, core.fences, each.stream, fences);
            all &= behind == Behind::Known ||
                   (behind == Behind::Forbidden && program::fenced_before_capture(each.stream));
        }
        if (has_fences(Fences::legacy_key(context))) return true;
        const Behind legacy = fence_legacy(core.port, core.fences, context, fences);
        all &= legacy == Behind::Known || (legacy == Behind::Forbidden && legacy_over_at == captures &&
                                           program::per_thread_streams_unfenced_at.load() != captures);
        return true;
    };
    unlocked(lock, [&] {
        while (!fence_all()) util::pause(bounds::kCapture);
    });
    count_as_opaque(core, fences);
    return all;
}

bool fence_streams(Core& core, CUcontext context, std::vector<FencePtr>& fences) {
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
        if (!use || fence_stream(core.port, core.fences, each.stream, fences) != Behind::Known) return false;
    }
    return fence_legacy(core.port, core.fences, context, fences) == Behind::Known;
}

void end_pressure(Core& core) {
    if (core.under_pressure.exchange(false)) program::fast_path_gate.reopen();
}

}  // namespace lms::executor
