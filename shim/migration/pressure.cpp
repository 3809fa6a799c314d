#include "shim/migration/pressure.h"

#include <algorithm>

#include "shim/app/capture.h"
#include "shim/app/contexts.h"
#include "shim/app/fast_path.h"
#include "shim/app/streams.h"
#include "shim/migration/state.h"

namespace lms::engine {

namespace {

struct Answer {
    bool over = false;
    FencePtr fence;  // behind what is not
};

Answer ask(State& state, const EarlierWork::In& in) {
    device::Port& port = state.port;
    CUresult status = CUDA_ERROR_NOT_READY;
    FencePtr fence;
    if (in.stream) {
        const StreamUse use(in.stream);
        // Who destroys it fences it.
        if (use) status = port.query_stream(in.stream);
    } else if (per_thread_streams_used.load()) {
        // Nobody can ask those, but the legacy stream waits for them.
        fence = state.fences.record_legacy(in.context, &status);
    } else {
        status = port.query_legacy(in.context);
    }
    // Another error is the app's own, and nothing runs any more.
    const bool unknown = status == CUDA_ERROR_NOT_READY || device::about_capture(status);
    return {!unknown && !fence, std::move(fence)};
}

}  // namespace

void begin_pressure(State& state, std::unique_lock<std::mutex>& lock) {
    if (state.under_pressure.exchange(true)) return;
    fast_path_gate.close();
    EarlierWork& earlier = state.earlier;
    earlier.entering = true;
    for (const KnownStream& each : known_streams()) {
        if (may_reach(each.context, state.device))
            earlier.streams.push_back({state.fences.key_of(each.stream), each.stream, each.context});
    }
    std::vector<CUcontext> contexts = known_contexts();
    lock.unlock();
    const CUcontext current = state.port.current_context();
    lock.lock();
    if (std::find(contexts.begin(), contexts.end(), current) == contexts.end()) contexts.push_back(current);
    for (const CUcontext context : contexts) {
        if (may_reach(context, state.device))
            earlier.streams.push_back({Fences::legacy_key(context), nullptr, context});
    }
    look_at_earlier_work(state, lock);
}

void look_at_earlier_work(State& state, std::unique_lock<std::mutex>& lock) {
    EarlierWork& earlier = state.earlier;
    if (!earlier.any() || earlier.asking) return;
    if (earlier.entering) {
        if (fast_path_gate.busy()) return;
        earlier.entering = false;
        ++earlier.changes;
    }
    const std::vector<EarlierWork::In> asked = earlier.streams;
    std::vector<Answer> answers(asked.size());
    earlier.asking = true;
    lock.unlock();
    {
        const NoCapture none;
        for (std::size_t i = 0; none && i < asked.size(); ++i) answers[i] = ask(state, asked[i]);
    }
    lock.lock();
    earlier.asking = false;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        const auto it = std::find_if(earlier.streams.begin(), earlier.streams.end(),
                                     [&](const EarlierWork::In& in) { return in.key == asked[i].key; });
        // Gone: its end, or work submitted since, has left a fence.
        if (it == earlier.streams.end() || !(answers[i].over || answers[i].fence)) continue;
        if (answers[i].fence) {
            stands_for_earlier_work(state, asked[i].key, state.fences.add(std::move(answers[i].fence)));
        } else {
            earlier.streams.erase(it);
            ++earlier.changes;
        }
    }
    state.changed.notify_all();
}

void stands_for_earlier_work(State& state, StreamKey stream, const core::Use& use) {
    // What is still on its way to the driver may come behind the fence.
    if (state.earlier.entering) return;
    if (std::erase_if(state.earlier.streams, [&](const EarlierWork::In& in) { return in.key == stream; }) ==
        0)
        return;
    ++state.earlier.changes;
    core::record_use(state.opaque_uses, use, state.residency.timelines);
}

void earlier_work_gone(State& state, const std::function<bool(const EarlierWork::In&)>& gone) {
    if (std::erase_if(state.earlier.streams, gone) > 0) ++state.earlier.changes;
}

void end_pressure(State& state) {
    state.opaque_uses.clear();
    state.earlier = {};
    if (state.under_pressure.exchange(false)) fast_path_gate.reopen();
}

}  // namespace lms::engine
