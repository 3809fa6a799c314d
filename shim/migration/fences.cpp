#include "shim/migration/fences.h"

#include <algorithm>
#include <thread>

#include "shim/app/per_thread_streams.h"

namespace lms::engine {

bool Fence::passed() const {
    CUresult status = port_.query(event_);
    // An event that a capture took stands for nothing. An error by which all is over stays: one that does not
    // says nothing.
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) status = port_.query(event_);
    return !device::leaves_open(status);
}

// Handles are pointers to aligned things, so their last bit and the upper half of the key space are free.
StreamKey Fences::legacy_key(CUcontext context) {
    return reinterpret_cast<StreamKey>(context) | 1;
}

StreamKey Fences::key_of(CUstream stream) const {
    if (stream == nullptr || stream == CU_STREAM_LEGACY) return legacy_key(port_.current_context());
    if (stream == CU_STREAM_PER_THREAD) return per_thread_stream(port_.current_context());
    return reinterpret_cast<StreamKey>(stream);
}

// What `record(event)` leaves.
template <typename Record>
FencePtr Fences::recorded(StreamKey stream, CUresult* error, Record&& record) {
    CUevent event = nullptr;
    const std::uint64_t before = entered_.load();
    const CUresult status = record(event);
    if (error) *error = status;
    return status == CUDA_SUCCESS ? std::make_shared<Fence>(port_, event, stream, before) : nullptr;
}

FencePtr Fences::record(CUstream stream, CUresult* error) {
    return recorded(key_of(stream), error, [&](CUevent& event) { return port_.record(stream, event); });
}

FencePtr Fences::record(CUstream stream, FencePtr spare) {
    if (!spare) return record(stream);
    spare->record_again_after(entered_.load());
    return port_.record_again(stream, spare->event()) == CUDA_SUCCESS ? spare : record(stream);
}

FencePtr Fences::spare(StreamKey stream) {
    const auto known = ids_.find(stream);
    if (known == ids_.end()) return nullptr;
    lines_[known->second].takes_spares = true;
    std::vector<FencePtr>& spares = lines_[known->second].spares;
    if (spares.empty()) return nullptr;
    --spares_;
    FencePtr one = std::move(spares.back());
    spares.pop_back();
    return one;
}

void Fences::keep(Line& line, FencePtr passed) {
    // Another who holds it may yet ask whether it has passed.
    if (passed.use_count() != 1 || !line.takes_spares || spares_ == kMostSpares) return;
    line.spares.push_back(std::move(passed));
    ++spares_;
}

void Fences::drop_spares(Line& line) {
    spares_ -= line.spares.size();
    line.spares.clear();
    line.takes_spares = false;
}

FencePtr Fences::record_legacy(CUcontext context, CUresult* error) {
    return recorded(legacy_key(context), error,
                    [&](CUevent& event) { return port_.record_legacy(context, event); });
}

FencePtr Fences::record_behind_legacy(CUcontext context) {
    return recorded(legacy_key(context), nullptr,
                    [&](CUevent& event) { return port_.record_behind_legacy(context, event); });
}

core::Use Fences::add(FencePtr fence, std::uint64_t launched_ns) {
    auto known = ids_.find(fence->stream());
    if (known == ids_.end()) known = ids_.emplace(fence->stream(), timeline_for_another()).first;
    Line& line = lines_[known->second];
    line.pending.push_back({++line.last, ++entered_, std::move(fence), launched_ns});
    ++pending_;
    return {known->second, line.last};
}

core::TimelineId Fences::timeline_for_another() {
    forget_gone();
    // A timeline whose fences have all passed can go on as another stream's.
    const auto idle = std::find_if(orphans_.begin(), orphans_.end(),
                                   [&](core::TimelineId id) { return lines_[id].pending.empty(); });
    if (idle == orphans_.end()) {
        lines_.emplace_back(&memory_);
        return timelines_.create();
    }
    const core::TimelineId id = *idle;
    orphans_.erase(idle);
    return id;
}

void Fences::forget_gone() {
    const std::uint64_t gone = per_thread_streams_gone();
    if (gone == known_gone_) return;
    known_gone_ = gone;
    std::erase_if(ids_, [&](const auto& each) {
        if (per_thread_stream_lives(each.first)) return false;
        drop_spares(lines_[each.second]);
        orphans_.push_back(each.second);
        return true;
    });
}

void Fences::forget(StreamKey stream) {
    const auto it = ids_.find(stream);
    if (it == ids_.end()) return;
    drop_spares(lines_[it->second]);
    orphans_.push_back(it->second);
    ids_.erase(it);
}

FencePtr Fences::fence_of(const core::Use& use) const {
    if (timelines_.finished(use)) return nullptr;
    const auto& pending = lines_[use.timeline].pending;
    if (pending.empty()) return nullptr;
    const std::uint64_t first = pending.front().position;
    const std::size_t own = use.position > first ? use.position - first : 0;
    // Of those that may come behind it in the stream, though entered before it, the first.
    std::size_t waited = own;
    for (std::size_t i = own; i-- > 0;) {
        if (pending[i].number <= pending[own].fence->entered_before() && !pending[own].passed) break;
        if (!pending[i].passed) waited = i;
    }
    return pending[waited].fence;
}

// In order of entry; 0: finished.
std::uint64_t Fences::number_of(const core::Use& use) const {
    const auto& pending = lines_[use.timeline].pending;
    if (timelines_.finished(use) || pending.empty()) return 0;
    const std::uint64_t first = pending.front().position;
    return pending[use.position > first ? use.position - first : 0].number;
}

bool Fences::entered_before(const core::Use& use, std::span<const core::Use> others) const {
    const std::uint64_t number = number_of(use);
    return std::any_of(others.begin(), others.end(),
                       [&](const core::Use& other) { return number < number_of(other); });
}

std::vector<core::Use> Fences::latest() const {
    std::vector<core::Use> uses;
    for (core::TimelineId id = 0; id < lines_.size(); ++id) {
        if (!lines_[id].pending.empty()) uses.push_back({id, lines_[id].last});
    }
    return uses;
}

std::vector<core::Use> Fences::latest_of_program() const {
    std::vector<core::Use> uses = latest();
    for (const auto direction : {device::Direction::In, device::Direction::Out}) {
        const auto own = ids_.find(reinterpret_cast<StreamKey>(port_.stream(direction)));
        if (own == ids_.end()) continue;
        std::erase_if(uses, [&](const core::Use& use) { return use.timeline == own->second; });
    }
    return uses;
}

std::vector<core::Use> Fences::latest_in(CUstream stream) const {
    const auto it = ids_.find(key_of(stream));
    if (it == ids_.end() || lines_[it->second].pending.empty()) return {};
    return {{it->second, lines_[it->second].last}};
}

std::vector<core::Use> Fences::oldest() const {
    std::vector<core::Use> uses;
    for (core::TimelineId id = 0; id < lines_.size(); ++id) {
        if (!lines_[id].pending.empty()) uses.push_back({id, lines_[id].pending.front().position});
    }
    return uses;
}

void Fences::poll(SessionLock& lock) {
    // Where fences were entered in their stream's order, which is nearly always, the newest passed one is
    // found by bisection; the oldest is asked first, for often it is the answer.
    struct Look {
        core::TimelineId timeline;
        std::uint64_t passed;      // up to here all have
        std::uint64_t not_passed;  // this one has not
        std::uint64_t asked;
        FencePtr fence;
        bool has_passed;
    };
    std::vector<Look> looks;
    for (core::TimelineId id = 0; id < lines_.size(); ++id) {
        if (lines_[id].pending.empty()) continue;
        const std::uint64_t first = lines_[id].pending.front().position;
        looks.push_back({id, first - 1, lines_[id].last + 1, first, nullptr, false});
    }
    while (!looks.empty()) {
        for (Look& look : looks) {
            const Pending* const pending = lines_[look.timeline].at(look.asked);
            look.fence = pending ? pending->fence : nullptr;
        }
        unlocked(lock, [&] {
            // None: another thread has seen it pass, and all before it.
            for (Look& look : looks) look.has_passed = !look.fence || look.fence->passed();
        });
        std::erase_if(looks, [&](Look& look) {
            look.fence = nullptr;  // or it could not be kept
            bool gap = false;
            if (look.has_passed) {
                look.passed =
                    std::max(look.passed, note_passed(lines_[look.timeline], look.asked, look.passed));
                gap = look.passed < look.asked;
            } else {
                look.not_passed = look.asked;
            }
            if (look.passed + 1 >= look.not_passed) {
                pass(look.timeline, look.passed);
                return true;
            }
            // Of those in a gap each is asked.
            look.asked = gap ? look.passed + 1 : look.passed + (look.not_passed - look.passed) / 2;
            return false;
        });
    }
    next_look_ = std::max(kManyFences, 2 * pending_);
}

// The fence at `position` has passed, and so have all up to `known`: up to where all of its stream's have.
std::uint64_t Fences::note_passed(Line& line, std::uint64_t position, std::uint64_t known) {
    Pending* const passed = line.at(position);
    if (!passed) return position;
    passed->passed = true;
    std::uint64_t all = position;
    for (std::uint64_t at = position - 1; at > known; --at) {
        const Pending* const earlier = line.at(at);
        if (!earlier || earlier->number <= passed->fence->entered_before()) break;
        if (!earlier->passed) all = at - 1;
    }
    return all;
}

void Fences::pass(core::TimelineId timeline, std::uint64_t position) {
    auto& pending = lines_[timeline].pending;
    std::uint64_t over = 0;
    while (!pending.empty() && (pending.front().position <= position || pending.front().passed)) {
        position = std::max(position, pending.front().position);
        over = std::max(over, pending.front().launched_ns);
        keep(lines_[timeline], std::move(pending.front().fence));
        pending.pop_front();
        --pending_;
    }
    timelines_.complete(timeline, position);
    if (over > 0) over_.push_back(over);
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
