#include "tools/lms/replay_script.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "shim/engine/chunking.h"
#include "tools/lms/longest_times.h"

namespace lms::tool {
namespace {

using Step = ReplayScript::Step;

// A chunk as it was recorded: a part of a buffer.
struct Part {
    std::uint32_t buffer;
    std::uint64_t begin;
    std::uint64_t end;
};

std::uint64_t code_of(std::string_view kernel) {
    return kernel.empty() ? 0 : std::hash<std::string_view>{}(kernel) | 1;
}

class Builder {
  public:
    Builder(ReplayScript& script, std::optional<std::uint64_t> budget_bytes, const LongestTimes& longest)
        : script_(script), longest_(longest), given_(budget_bytes.has_value()) {
        if (given_) budget(*budget_bytes);
    }

    void operator()(const trace::Allocation& event) {
        // A damaged trace may tell of any size; the shim makes no larger ones.
        const std::uint64_t most = std::max<std::uint64_t>(script_.granularity, 32 << 20);
        if (std::ranges::any_of(event.pieces, [&](const trace::Piece& piece) { return piece.bytes > most; }))
            return;
        const auto number = static_cast<std::uint32_t>(script_.buffers.size());
        std::uint64_t offset = 0;
        for (const trace::Piece& piece : event.pieces) offset += piece.bytes;
        pieces_ += event.pieces.size();
        if (too_many(ends_.size() + offset / largest_, pieces_)) return;
        offset = 0;
        for (const trace::Piece& piece : event.pieces) {
            parts_[piece.chunk] = {number, offset, offset + piece.bytes};
            offset += piece.bytes;
        }
        live_[event.allocation] = number;
        script_.buffers.push_back(
            {event.bytes, engine::cut(offset, script_.granularity, largest_), script_.chunks});
        std::uint64_t end = 0;
        for (const std::uint64_t bytes : script_.buffers.back().chunk_bytes) ends_.push_back(end += bytes);
        touched_by_.resize(ends_.size());
        script_.chunks = static_cast<std::uint32_t>(ends_.size());
        const Step* const last = script_.steps.empty() ? nullptr : &script_.steps.back();
        if (last && last->kind == Step::Kind::Free && taken_over(last->buffer, event, number)) {
            script_.steps.back() = {
                .kind = Step::Kind::Revive, .buffer = number, .stream = dead_.at(last->buffer)};
        } else {
            script_.steps.push_back({.kind = Step::Kind::Allocate, .buffer = number});
        }
        allocated_at_.push_back(script_.steps.size() - 1);
        addresses_.push_back(event.address);
    }

    void operator()(const trace::Free& event) {
        const auto found = live_.find(event.allocation);
        if (found == live_.end()) return;
        script_.steps.push_back({.kind = Step::Kind::Free, .buffer = found->second});
        live_.erase(found);
    }

    void operator()(const trace::StreamFree& event) {
        const auto found = live_.find(event.allocation);
        if (found == live_.end()) return;
        const std::uint32_t stream = dead_[found->second] = stream_of(event.stream);
        // What is freed in stream order was allocated so, and may be given what is dead then.
        Step& allocated = script_.steps[allocated_at_[found->second]];
        allocated.kind = Step::Kind::Revive;
        allocated.stream = stream;
        script_.steps.push_back({.kind = Step::Kind::StreamFree, .buffer = found->second, .stream = stream});
    }

    void operator()(const trace::Launch& event) {
        const auto first = static_cast<std::uint32_t>(script_.touches.size());
        touched_ += event.touched.size();
        for (const trace::Touched& each : event.touched) touch(each, first);
        const auto end = static_cast<std::uint32_t>(script_.touches.size());
        if (!works_.empty()) {
            Work& last = works_.back();
            const std::uint64_t whole = event.begin_ns - std::min(event.begin_ns, last.begin_ns);
            script_.steps[last.step].took_ns = whole - std::min(whole, stalled_ns_);
            last.stalled_ns = stalled_ns_;
            last.next_ns = event.begin_ns;
        }
        stalled_ns_ = 0;
        const std::uint32_t stream = stream_of(event.stream);
        queues_[stream].push_back(works_.size());
        works_.push_back({.step = script_.steps.size(),
                          .stream = stream,
                          .begin_ns = event.begin_ns,
                          .submitted_ns = event.end_ns,
                          .next_ns = event.end_ns,
                          .longest_ns = longest_.of(event, bytes_of(event.touched)),
                          .touched = event.touched});
        script_.steps.push_back({.kind = Step::Kind::Work,
                                 .first = first,
                                 .end = end,
                                 .took_ns = event.end_ns - event.begin_ns,
                                 .stream = stream,
                                 .code = code_of(event.kernel),
                                 .copies = event.copied.way,
                                 .writes_unseen = event.writes_unseen});
    }

    // Who was held up by it, or waited for it, saw it end. Else it was over when somebody looked, and not
    // when somebody had last seen other work to be over: it is taken to have ended then.
    void operator()(const trace::WorkOver& event) {
        const auto found = std::ranges::lower_bound(begun_, event.launched_ns, {}, &Begun::first);
        if (found == begun_.end() || found->first != event.launched_ns || found->second >= works_.size())
            return;
        const std::uint64_t at_ns = is_watched(event.at_ns) ? event.at_ns : looked_ns_;
        std::deque<std::size_t>& queue = queues_[works_[found->second].stream];
        for (; !queue.empty() && queue.front() <= found->second; queue.pop_front())
            ended(works_[queue.front()], at_ns);
        looked_ns_ = event.at_ns;
    }

    void operator()(const trace::Move& event) {
        if (event.direction == trace::Direction::In && event.timed) filled_ns_[event.chunk] = event.end_ns;
    }

    // It is told before the launch that waited, and lies within that.
    void operator()(const trace::Stall& event) { pending_stall_ns_ += event.end_ns - event.begin_ns; }

    void operator()(const trace::Residency& event) {
        if (!given_ && event.budget_bytes > 0 && event.budget_bytes != budget_) budget(event.budget_bytes);
    }

    template <typename Other>
    void operator()(const Other&) {}

    void take_stalls() { stalled_ns_ += std::exchange(pending_stall_ns_, 0); }

    // Before the events.
    void expect(const Trace& trace, int device) {
        for (const trace::Event& event : trace.events) {
            if (const auto* const launch = std::get_if<trace::Launch>(&event)) {
                if (launch->device == device) begun_.emplace_back(launch->begin_ns, begun_.size());
            } else if (const auto* const stall = std::get_if<trace::Stall>(&event)) {
                if (stall->device == device) watched_.emplace_back(stall->begin_ns, stall->end_ns);
            } else if (const auto* const wait = std::get_if<trace::ProgramWait>(&event)) {
                if (wait->begin_ns < wait->end_ns) waits_.push_back(*wait);
                watched_.emplace_back(wait->begin_ns, wait->end_ns);
            }
        }
        std::ranges::sort(begun_);
        std::ranges::sort(watched_);
        std::ranges::sort(waits_, {}, &trace::ProgramWait::begin_ns);
    }
    // After them.
    void end() {
        for (const std::deque<std::size_t>& queue : queues_) {
            for (const std::size_t work : queue) ended(works_[work], works_[work].next_ns);
        }
        auto wait = waits_.begin();
        for (std::size_t i = 0; i < works_.size(); ++i) {
            note_over(i);
            if (!waits_.empty()) note_waits(works_[i], wait);
        }
        script_.streams = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(queues_.size()));
    }

  private:
    using Begun = std::pair<std::uint64_t, std::size_t>;
    using Span = std::pair<std::uint64_t, std::uint64_t>;
    struct Work {
        std::size_t step;
        std::uint32_t stream;
        std::uint64_t begin_ns;
        std::uint64_t submitted_ns;
        std::uint64_t next_ns;         // another begins
        std::uint64_t stalled_ns = 0;  // of the time between
        std::uint64_t longest_ns;      // it can have run
        std::span<const trace::Touched> touched;
        std::uint64_t over_ns = 0;
    };

    std::uint64_t bytes_of(std::span<const trace::Touched> touched) const {
        std::uint64_t bytes = 0;
        for (const trace::Touched& each : touched) {
            const auto found = parts_.find(each.chunk);
            if (found != parts_.end()) bytes += found->second.end - found->second.begin;
        }
        return bytes;
    }

    // Whether a thread waited then that saw work end: what it saw in its first millisecond had mostly ended
    // before.
    bool is_watched(std::uint64_t at_ns) const {
        constexpr std::uint64_t kFirstLook = 1'000'000;
        const auto next = std::ranges::upper_bound(watched_, at_ns, {}, &Span::first);
        return next != watched_.begin() && std::prev(next)->first + kFirstLook < at_ns &&
               std::prev(next)->second >= at_ns;
    }

    // What came to its end before the next work, but not while the shim held the program up, may be what that
    // went on after. Traces of before version 7 do not tell whether it waited.
    void note_over(std::size_t number) {
        const Work& work = works_[number];
        const std::uint32_t before = count_over(work.submitted_ns);
        const std::uint32_t after = count_over(work.next_ns);
        if (after == before) return;
        script_.steps[work.step].over = after;
        script_.steps[work.step].waits = after > number;
    }

    // The waits between this work and the next, by the thread that submitted it or another.
    void note_waits(const Work& work, std::vector<trace::ProgramWait>::iterator& wait) {
        Step& step = script_.steps[work.step];
        step.waits = false;
        std::uint64_t waited_ns = 0, began_ns = 0;
        for (; wait != waits_.end() && wait->begin_ns < work.next_ns; ++wait) {
            if (wait->begin_ns < work.submitted_ns || wait->end_ns > work.next_ns) continue;
            if (waited_ns == 0) began_ns = wait->begin_ns;
            waited_ns += wait->end_ns - wait->begin_ns;
        }
        if (waited_ns == 0) return;
        const auto less = [](std::uint64_t from, std::uint64_t what) { return from - std::min(from, what); };
        step.waits = true;
        step.took_ns = less(began_ns - work.begin_ns, work.stalled_ns);
        step.after_ns = less(work.next_ns - began_ns, waited_ns);
    }

    // So many works, from the first; at a time that is no earlier than the last that was asked about.
    std::uint32_t count_over(std::uint64_t at_ns) {
        while (over_ < works_.size() && works_[over_].over_ns <= at_ns) ++over_;
        return over_;
    }

    std::uint32_t stream_of(std::uint64_t handle) {
        const auto stream = streams_.emplace(handle, streams_.size()).first->second;
        if (stream == queues_.size()) queues_.emplace_back();
        return stream;
    }

    // Whether a buffer that comes as another is given back is what the same stream was given in its place.
    bool taken_over(std::uint32_t before, const trace::Allocation& event, std::uint32_t number) const {
        return dead_.contains(before) && addresses_[before] == event.address &&
               script_.buffers[before].chunk_bytes == script_.buffers[number].chunk_bytes;
    }

    // At that time, if it had begun.
    void ended(Work& work, std::uint64_t at_ns) {
        work.over_ns = std::max(work.submitted_ns, at_ns);
        std::uint64_t& free_ns = free_ns_[work.stream];
        std::uint64_t since = std::max(work.submitted_ns, free_ns);
        for (const trace::Touched& each : work.touched) {
            const auto filled = filled_ns_.find(each.chunk);
            if (filled != filled_ns_.end()) since = std::max(since, filled->second);
        }
        free_ns = std::max(free_ns, work.over_ns);
        script_.steps[work.step].ran_ns =
            std::min(work.over_ns - std::min(since, work.over_ns), work.longest_ns);
    }

    void budget(std::uint64_t bytes) {
        budget_ = bytes;
        largest_ = engine::largest_chunk(bytes, script_.granularity);
        script_.steps.push_back({.kind = Step::Kind::Budget, .budget_bytes = bytes});
    }

    // Of a chunk as it was recorded, for each: chunks of a GPU are 32 MiB at most and 2 MiB at least. There
    // is more in a damaged trace alone, and in one of a simulated GPU with smaller ones, which has not so
    // many.
    static bool too_many(std::size_t chunks, std::size_t recorded) {
        return chunks > (1 << 20) + 16 * recorded;
    }

    void touch(const trace::Touched& each, std::uint32_t first) {
        const auto found = parts_.find(each.chunk);
        if (found == parts_.end()) return;
        const Part& part = found->second;
        const ReplayScript::Buffer& buffer = script_.buffers[part.buffer];
        const auto ends = std::span(ends_).subspan(buffer.first_chunk, buffer.chunk_bytes.size());
        for (auto i = static_cast<std::size_t>(std::ranges::upper_bound(ends, part.begin) - ends.begin());
             i < ends.size() && ends[i] - buffer.chunk_bytes[i] < part.end &&
             !too_many(script_.touches.size(), touched_);
             ++i) {
            const bool whole = part.begin <= ends[i] - buffer.chunk_bytes[i] && part.end >= ends[i];
            add(buffer.first_chunk + static_cast<std::uint32_t>(i), each, whole, first);
        }
    }

    void add(std::uint32_t chunk, const trace::Touched& each, bool whole, std::uint32_t first) {
        // By the same work, in another part.
        if (std::uint32_t& at = touched_by_[chunk]; at > first) {
            script_.touches[at - 1].only_read &= each.only_read;
            return;
        }
        script_.touches.push_back({chunk, each.overwritten && whole, each.may_stay || each.in_place,
                                   each.only_read, ReplayScript::kNever});
        touched_by_[chunk] = static_cast<std::uint32_t>(script_.touches.size());
    }

    ReplayScript& script_;
    const LongestTimes& longest_;
    bool given_;
    std::size_t pieces_ = 0;   // that were recorded, of buffers
    std::size_t touched_ = 0;  // of works
    std::uint64_t budget_ = 0;
    std::uint64_t largest_ = 0;
    std::unordered_map<std::uint32_t, Part> parts_;
    std::vector<std::uint64_t> ends_;        // by chunk, in its buffer
    std::vector<std::uint32_t> touched_by_;  // by chunk, one more than its last place in the script's touches
    std::unordered_map<std::uint32_t, std::uint32_t> live_;
    std::vector<std::uint64_t> addresses_;                   // by buffer
    std::vector<std::size_t> allocated_at_;                  // by buffer, the step
    std::unordered_map<std::uint32_t, std::uint32_t> dead_;  // buffers freed in stream order: the stream
    std::vector<Work> works_;
    std::vector<trace::ProgramWait> waits_;                     // by when they began
    std::vector<Span> watched_;                                 // the same of these and of stalls
    std::uint64_t looked_ns_ = 0;                               // work was last seen to be over
    std::vector<Begun> begun_;                                  // when works began, sorted
    std::unordered_map<std::uint64_t, std::uint32_t> streams_;  // by handle
    std::vector<std::deque<std::size_t>> queues_;  // by stream, works that are not known to be over
    std::unordered_map<std::uint32_t, std::uint64_t> free_ns_;    // by stream: the last known to be over was
    std::unordered_map<std::uint32_t, std::uint64_t> filled_ns_;  // by chunk
    std::uint64_t stalled_ns_ = 0;                                // in the last work
    std::uint64_t pending_stall_ns_ = 0;
    std::uint32_t over_ = 0;  // of count_over()
};

void look_ahead(ReplayScript& script) {
    std::vector<std::uint32_t> next(script.chunks, ReplayScript::kNever);
    for (std::size_t i = script.steps.size(); i-- > 0;) {
        const Step& step = script.steps[i];
        for (std::uint32_t at = step.first; at < step.end; ++at) {
            ReplayScript::Touch& touch = script.touches[at];
            touch.next_work = std::exchange(next[touch.chunk], static_cast<std::uint32_t>(i));
        }
    }
}

bool is_granularity(std::uint64_t bytes) {
    return std::has_single_bit(bytes) && bytes >= 4 << 10 && bytes <= 1 << 30;
}

std::optional<double> median(std::vector<double>& values) {
    if (values.empty()) return {};
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

int device_of(const trace::Event& event) {
    return std::visit(
        [](const auto& one) {
            if constexpr (requires { one.device; }) return one.device;
            return -1;
        },
        event);
}

}  // namespace

std::vector<int> devices_of(const Trace& trace) {
    std::set<int> devices;
    for (const trace::Event& event : trace.events) {
        if (const int device = device_of(event); device >= 0) devices.insert(device);
    }
    return {devices.begin(), devices.end()};
}

std::optional<std::uint64_t> budget_of(const Trace& trace, int device) {
    std::optional<std::uint64_t> budget;
    for (const trace::Event& event : trace.events) {
        const auto* const now = std::get_if<trace::Residency>(&event);
        if (now && now->device == device && now->budget_bytes > 0) budget = now->budget_bytes;
    }
    return budget;
}

std::optional<double> link_of(const Trace& trace, trace::Direction direction) {
    std::vector<double> rates;
    std::optional<double> told;
    for (const trace::Event& event : trace.events) {
        if (const auto* const speeds = std::get_if<trace::LinkSpeeds>(&event)) {
            const bool in = direction == trace::Direction::In;
            const std::uint64_t speed = in ? speeds->in_bytes_per_s : speeds->out_bytes_per_s;
            if (speed > 0) told = static_cast<double>(speed);
        }
        const auto* const move = std::get_if<trace::Move>(&event);
        if (!move || !move->timed || move->direction != direction || move->end_ns <= move->begin_ns) continue;
        rates.push_back(static_cast<double>(move->bytes) * 1e9 /
                        static_cast<double>(move->end_ns - move->begin_ns));
    }
    const auto seen = median(rates);
    return seen ? seen : told;
}

std::optional<double> remap_of(const Trace& trace) {
    std::vector<double> seconds;
    for (const trace::Event& event : trace.events) {
        const auto* const move = std::get_if<trace::Move>(&event);
        if (move && move->direction == trace::Direction::Out && move->bytes == 0)
            seconds.push_back(static_cast<double>(move->end_ns - move->begin_ns) / 1e9);
    }
    return median(seconds);
}

ReplayScript script_of(const Trace& trace, int device, std::optional<std::uint64_t> budget_bytes) {
    ReplayScript script;
    script.granularity = 2 << 20;
    for (const trace::Event& event : trace.events) {
        const auto* const gpu = std::get_if<trace::Gpu>(&event);
        if (!gpu || gpu->device != device) continue;
        if (is_granularity(gpu->granularity)) script.granularity = gpu->granularity;
        script.maps_host = gpu->maps_host;
    }
    const LongestTimes longest(trace, device);
    Builder builder(script, budget_bytes, longest);
    builder.expect(trace, device);
    // A budget is first told after the first allocation that it was for.
    const auto told = std::ranges::find_if(trace.events, [&](const trace::Event& event) {
        const auto* const now = std::get_if<trace::Residency>(&event);
        return now && now->device == device && now->budget_bytes > 0;
    });
    if (told != trace.events.end()) builder(std::get<trace::Residency>(*told));
    for (const trace::Event& event : trace.events) {
        if (device_of(event) != device) continue;
        std::visit(builder, event);
        if (std::holds_alternative<trace::Launch>(event)) builder.take_stalls();
    }
    builder.end();
    look_ahead(script);
    return script;
}

}  // namespace lms::tool
