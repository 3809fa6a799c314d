#include "shim/executor/fences.h"

#include <algorithm>

#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/program/per_thread_streams.h"
#include "shim/program/streams.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::executor {

CUresult Fence::ask() const {
    if (event_) return port_.query(event_);
    if (lapsed_) return CUDA_SUCCESS;
    const program::CapturesHeldOff held_off;
    const program::ContextUse context(context_);
    // Who begins a capture, destroys the stream or ends the context leaves an event, or lapses this.
    if (!held_off || !context) return CUDA_ERROR_NOT_READY;
    if (!asked_) return port_.query_legacy(context_);
    const program::StreamUse use(asked_);
    return use ? port_.query_stream(asked_) : CUDA_ERROR_NOT_READY;
}

bool Fence::passed() const {
    CUresult status = ask();
    // An event that a capture took stands for nothing. An error by which all is over stays: one that does not
    // says nothing.
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) status = ask();
    return !device::leaves_open(status);
}

// Handles are pointers to aligned things, so their last bit and the upper half of the key space are free.
StreamKey Fences::legacy_key(CUcontext context) {
    return reinterpret_cast<StreamKey>(context) | 1;
}

StreamKey Fences::context_key(CUcontext context) {
    return reinterpret_cast<StreamKey>(context) | 2;
}

StreamKey Fences::key_of(CUstream stream) const {
    if (stream == nullptr || stream == CU_STREAM_LEGACY) return legacy_key(port_.current_context());
    if (stream == CU_STREAM_PER_THREAD) return program::per_thread_stream(port_.current_context());
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
    if (passed.use_count() != 1 || !passed->event() || !line.takes_spares || spares_ == kMostSpares) return;
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

FencePtr Fences::record_context(CUcontext context) {
    return recorded(context_key(context), nullptr,
                    [&](CUevent& event) { return port_.record_context(context, event); });
}

FencePtr Fences::leave_open(CUstream stream) const {
    if (!stream || stream == CU_STREAM_LEGACY)
        return std::make_shared<Fence>(port_, nullptr, port_.current_context(), key_of(stream));
    if (!program::StreamUse(stream)) return nullptr;
    return std::make_shared<Fence>(port_, stream, program::context_of_known(stream), key_of(stream));
}

engine::Use Fences::add(FencePtr fence, std::uint64_t launched_ns) {
    auto known = ids_.find(fence->stream());
    if (known == ids_.end()) known = ids_.emplace(fence->stream(), timeline_for_another()).first;
    Line& line = lines_[known->second];
    ++line.works;
    ++entered_;
    if (fence->event()) {
        line.works_fenced = line.works;
    } else {
        // The stream is asked after this, when all that was entered before has been given to it.
        fence->record_again_after(entered_);
        if (!line.pending.empty() && line.pending.back().is_open()) {
            Pending& open = line.pending.back();
            open.number = entered_;
            open.fence->record_again_after(entered_);
            open.launched_ns = launched_ns;
            open.works = line.works;
            return {known->second, line.last};
        }
    }
    line.pending.push_back({++line.last, entered_, std::move(fence), launched_ns, line.works});
    ++pending_;
    return {known->second, line.last};
}

const Fences::Line* Fences::line_of(StreamKey stream) const {
    const auto known = ids_.find(stream);
    return known == ids_.end() ? nullptr : &lines_[known->second];
}

bool Fences::is_deep(StreamKey stream) const {
    return unfinished_in(stream) >= kDeep;
}

std::uint64_t Fences::unfinished_in(StreamKey stream) const {
    const Line* const line = line_of(stream);
    return line ? line->unfinished() : 0;
}

bool Fences::is_due(StreamKey stream) const {
    const Line* const line = line_of(stream);
    return !line || line->unfinished() < kDeep || line->works - line->works_fenced >= line->unfinished() / 8;
}

bool Fences::Line::is_open() const {
    for (std::size_t i = pending.size(); i-- > 0;) {
        if (pending[i].is_open() && telling_of(i) == i) return true;
    }
    return false;
}

bool Fences::is_open(StreamKey stream) const {
    const Line* const line = line_of(stream);
    return line && line->is_open();
}

std::vector<CUcontext> Fences::open_legacy() const {
    std::vector<CUcontext> contexts;
    for (const auto& [stream, id] : ids_) {
        const auto& pending = lines_[id].pending;
        const auto open = std::ranges::find_if(pending, [](const Pending& each) {
            return each.is_open() && each.fence->legacy_of() != nullptr;
        });
        if (open != pending.end() && lines_[id].is_open()) contexts.push_back(open->fence->legacy_of());
    }
    return contexts;
}

engine::TimelineId Fences::timeline_for_another() {
    forget_gone();
    // A timeline whose fences have all passed can go on as another stream's.
    const auto idle = std::find_if(orphans_.begin(), orphans_.end(), [&](engine::TimelineId id) LMS_LOCKED {
        return lines_[id].pending.empty();
    });
    if (idle == orphans_.end()) {
        lines_.emplace_back(&memory_);
        return timelines_.create();
    }
    const engine::TimelineId id = *idle;
    orphans_.erase(idle);
    return id;
}

void Fences::forget_gone() {
    const std::uint64_t gone = program::per_thread_streams_gone();
    if (gone == known_gone_) return;
    known_gone_ = gone;
    std::erase_if(ids_, [&](const auto& each) LMS_LOCKED {
        if (program::per_thread_stream_lives(each.first)) return false;
        drop_spares(lines_[each.second]);
        orphans_.push_back(each.second);
        return true;
    });
}

void Fences::forget(StreamKey stream) {
    const auto it = ids_.find(stream);
    if (it == ids_.end()) return;
    Line& line = lines_[it->second];
    drop_spares(line);
    for (const Pending& each : line.pending) each.fence->lapse();
    orphans_.push_back(it->second);
    ids_.erase(it);
}

std::size_t Fences::Line::telling_of(std::size_t index) const {
    if (!pending[index].is_open()) return index;
    for (std::size_t i = index + 1; i < pending.size(); ++i) {
        if (!pending[i].is_open() && pending[i].fence->entered_before() >= pending[index].number) return i;
    }
    return index;
}

FencePtr Fences::fence_of(const engine::Use& use) const {
    if (timelines_.finished(use)) return nullptr;
    const auto& pending = lines_[use.timeline].pending;
    if (pending.empty()) return nullptr;
    const std::uint64_t first = pending.front().position;
    const std::size_t own = lines_[use.timeline].telling_of(use.position > first ? use.position - first : 0);
    // Of those that may come behind it in the stream, though entered before it, the first.
    std::size_t waited = own;
    for (std::size_t i = own; i-- > 0;) {
        if (pending[i].number <= pending[own].fence->entered_before() && !pending[own].passed) break;
        if (!pending[i].passed) waited = i;
    }
    return pending[waited].fence;
}

// In order of entry; 0: finished.
std::uint64_t Fences::number_of(const engine::Use& use) const {
    const auto& pending = lines_[use.timeline].pending;
    if (timelines_.finished(use) || pending.empty()) return 0;
    const std::uint64_t first = pending.front().position;
    return pending[use.position > first ? use.position - first : 0].number;
}

bool Fences::entered_before(const engine::Use& use, std::span<const engine::Use> others) const {
    const std::uint64_t number = number_of(use);
    return std::any_of(others.begin(), others.end(),
                       [&](const engine::Use& other) LMS_LOCKED { return number < number_of(other); });
}

std::vector<engine::Use> Fences::latest() const {
    std::vector<engine::Use> uses;
    for (engine::TimelineId id = 0; id < lines_.size(); ++id) {
        if (!lines_[id].pending.empty()) uses.push_back({id, lines_[id].last});
    }
    return uses;
}

std::vector<engine::Use> Fences::latest_of_program() const {
    return of_program(latest());
}

std::vector<engine::Use> Fences::oldest_of_program() const {
    return of_program(oldest());
}

std::vector<engine::Use> Fences::of_program(std::vector<engine::Use> uses) const {
    for (const auto direction : {device::Direction::In, device::Direction::Out}) {
        const auto own = ids_.find(reinterpret_cast<StreamKey>(port_.stream(direction)));
        if (own == ids_.end()) continue;
        std::erase_if(uses, [&](const engine::Use& use) { return use.timeline == own->second; });
    }
    return uses;
}

std::vector<engine::Use> Fences::latest_in(StreamKey stream) const {
    const auto it = ids_.find(stream);
    if (it == ids_.end() || lines_[it->second].pending.empty()) return {};
    return {{it->second, lines_[it->second].last}};
}

std::vector<engine::Use> Fences::oldest() const {
    std::vector<engine::Use> uses;
    for (engine::TimelineId id = 0; id < lines_.size(); ++id) {
        if (!lines_[id].pending.empty()) uses.push_back({id, lines_[id].pending.front().position});
    }
    return uses;
}

void Fences::poll(SessionLock& lock) {
    // Where fences were entered in their stream's order, which is nearly always, the newest passed one is
    // found by bisection; the oldest is asked first, for often it is the answer.
    struct Look {
        engine::TimelineId timeline;
        std::uint64_t passed;      // up to here all have
        std::uint64_t not_passed;  // this one has not
        std::uint64_t asked;
        std::uint64_t told_by;  // whose fence is asked for it
        std::uint64_t number;   // of that
        FencePtr fence;
        bool has_passed;
    };
    std::vector<Look> looks;
    for (engine::TimelineId id = 0; id < lines_.size(); ++id) {
        if (lines_[id].pending.empty()) continue;
        const std::uint64_t first = lines_[id].pending.front().position;
        looks.push_back({id, first - 1, lines_[id].last + 1, first, first, 0, nullptr, false});
    }
    while (!looks.empty()) {
        for (Look& look : looks) {
            Line& line = lines_[look.timeline];
            look.fence = nullptr;
            if (!line.at(look.asked)) continue;
            const std::uint64_t front = line.pending.front().position;
            look.told_by = front + line.telling_of(look.asked - front);
            look.number = line.at(look.told_by)->number;
            look.fence = line.at(look.told_by)->fence;
        }
        unlocked(lock, [&] {
            // None: another thread has seen it pass, and all before it.
            for (Look& look : looks) look.has_passed = !look.fence || look.fence->passed();
        });
        std::erase_if(looks, [&](Look& look) LMS_LOCKED {
            const bool asked = std::exchange(look.fence, nullptr) != nullptr;  // else it could not be kept
            Line& line = lines_[look.timeline];
            if (!asked) look.told_by = look.asked;
            // The stream was given more meanwhile that it is to tell of.
            if (asked && line.at(look.told_by) && line.at(look.told_by)->number != look.number)
                look.has_passed = false;
            bool gap = false;
            if (look.has_passed) {
                look.passed = std::max(look.passed, note_passed(line, look.told_by, look.passed));
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

void Fences::pass(engine::TimelineId timeline, std::uint64_t position) {
    auto& pending = lines_[timeline].pending;
    std::uint64_t over = 0;
    while (!pending.empty() && (pending.front().position <= position || pending.front().passed)) {
        position = std::max(position, pending.front().position);
        over = std::max(over, pending.front().launched_ns);
        lines_[timeline].works_over = pending.front().works;
        keep(lines_[timeline], std::move(pending.front().fence));
        pending.pop_front();
        --pending_;
    }
    timelines_.complete(timeline, position);
    if (over > 0) over_.push_back(over);
}

bool wait_for(const Fence& fence, util::Clock::duration most) {
    const auto deadline = util::Clock::now() + most;
    auto pause = bounds::kFirstLook;
    while (!fence.passed()) {
        if (util::Clock::now() >= deadline) return false;
        util::pause(pause);
        pause = std::min(pause * 2, bounds::kLastLook);
    }
    return true;
}

}  // namespace lms::executor
