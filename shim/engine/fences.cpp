#include "shim/engine/fences.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace lms::engine {

bool Fence::passed() const {
    // An error is the app's own (a sticky fault, a context gone): nothing of it will run any more.
    return port_.query(event_) != CUDA_ERROR_NOT_READY;
}

namespace {

// Handles are pointers to aligned things, so their last bit and the upper half of the key space are free.
StreamKey legacy_of(CUcontext context) {
    return reinterpret_cast<StreamKey>(context) | 1;
}

using ContextKeys = std::vector<std::pair<CUcontext, StreamKey>>;

// The calling thread's. No thread_local object: exit handlers come here when those are gone.
ContextKeys& own_keys() {
    static const pthread_key_t slot = [] {
        pthread_key_t made{};
        pthread_key_create(&made, [](void* keys) { delete static_cast<ContextKeys*>(keys); });
        return made;
    }();
    if (void* keys = pthread_getspecific(slot)) return *static_cast<ContextKeys*>(keys);
    auto* keys = new ContextKeys;
    pthread_setspecific(slot, keys);
    return *keys;
}

StreamKey per_thread_of(CUcontext context) {
    static std::atomic<StreamKey> next{0};
    ContextKeys& mine = own_keys();
    for (const auto& [known, key] : mine) {
        if (known == context) return key;
    }
    return mine.emplace_back(context, (StreamKey{1} << 63) | ++next).second;
}

}  // namespace

StreamKey Fences::key_of(CUstream stream) const {
    if (stream == nullptr || stream == CU_STREAM_LEGACY) return legacy_of(port_.current_context());
    if (stream == CU_STREAM_PER_THREAD) return per_thread_of(port_.current_context());
    return reinterpret_cast<StreamKey>(stream);
}

FencePtr Fences::record(CUstream stream, CUresult* error) {
    CUevent event = nullptr;
    const CUresult status = port_.record(stream, event);
    if (error) *error = status;
    return status == CUDA_SUCCESS ? std::make_shared<Fence>(port_, event, key_of(stream)) : nullptr;
}

FencePtr Fences::record_legacy(CUcontext context) {
    CUevent event = nullptr;
    if (port_.record_legacy(context, event) != CUDA_SUCCESS) return nullptr;
    return std::make_shared<Fence>(port_, event, legacy_of(context));
}

core::Use Fences::add(FencePtr fence) {
    const auto [it, is_new] = ids_.try_emplace(fence->stream(), 0);
    if (is_new) {
        // A timeline whose fences have all passed can go on as another stream's.
        const auto idle = std::find_if(orphans_.begin(), orphans_.end(),
                                       [&](core::TimelineId id) { return lines_[id].pending.empty(); });
        if (idle != orphans_.end()) {
            it->second = *idle;
            orphans_.erase(idle);
        } else {
            it->second = timelines_.create();
            lines_.resize(it->second + 1);
        }
    }
    Line& line = lines_[it->second];
    line.pending.push_back({++line.last, std::move(fence)});
    ++pending_;
    return {it->second, line.last};
}

void Fences::forget(StreamKey stream) {
    const auto it = ids_.find(stream);
    if (it == ids_.end()) return;
    orphans_.push_back(it->second);
    ids_.erase(it);
}

FencePtr Fences::fence_of(const core::Use& use) const {
    if (timelines_.finished(use)) return nullptr;
    // They are numbered without gaps.
    const auto& pending = lines_[use.timeline].pending;
    if (pending.empty()) return nullptr;
    const std::uint64_t first = pending.front().position;
    return pending[use.position > first ? use.position - first : 0].fence;
}

std::vector<core::Use> Fences::latest() const {
    std::vector<core::Use> uses;
    for (core::TimelineId id = 0; id < lines_.size(); ++id) {
        if (!lines_[id].pending.empty()) uses.push_back({id, lines_[id].last});
    }
    return uses;
}

std::vector<core::Use> Fences::oldest() const {
    std::vector<core::Use> uses;
    for (core::TimelineId id = 0; id < lines_.size(); ++id) {
        if (!lines_[id].pending.empty()) uses.push_back({id, lines_[id].pending.front().position});
    }
    return uses;
}

void Fences::poll(std::unique_lock<std::mutex>& lock) {
    // A stream passes its fences in order, so its newest passed one is found by bisection; the oldest is
    // asked first, for often it is the answer.
    struct Look {
        core::TimelineId timeline;
        std::uint64_t passed;      // up to here they have
        std::uint64_t not_passed;  // from here on they have not
        std::uint64_t asked;
        FencePtr fence;
    };
    std::vector<Look> looks;
    for (core::TimelineId id = 0; id < lines_.size(); ++id) {
        if (lines_[id].pending.empty()) continue;
        const std::uint64_t first = lines_[id].pending.front().position;
        looks.push_back({id, first - 1, lines_[id].last + 1, first, nullptr});
    }
    while (!looks.empty()) {
        for (Look& look : looks) look.fence = fence_of({look.timeline, look.asked});
        lock.unlock();
        for (Look& look : looks) {
            // None: another thread has seen it pass.
            (!look.fence || look.fence->passed() ? look.passed : look.not_passed) = look.asked;
        }
        lock.lock();
        std::erase_if(looks, [&](Look& look) {
            look.asked = look.passed + (look.not_passed - look.passed) / 2;
            if (look.asked != look.passed) return false;
            pass(look.timeline, look.passed);
            return true;
        });
    }
    next_look_ = std::max(kManyFences, 2 * pending_);
}

void Fences::pass(core::TimelineId timeline, std::uint64_t position) {
    auto& pending = lines_[timeline].pending;
    while (!pending.empty() && pending.front().position <= position) {
        pending.pop_front();
        --pending_;
    }
    timelines_.complete(timeline, position);
}

bool wait_until(const Fence& fence, std::chrono::steady_clock::time_point deadline) {
    using namespace std::chrono_literals;
    auto pause = 2us;
    while (!fence.passed()) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, 100us);
    }
    return true;
}

}  // namespace lms::engine
