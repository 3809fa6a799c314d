// When the works and copies of a replay end, as far as the shim would know (executor/fences.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "shim/engine/timelines.h"

namespace lms::tool {

// Times are seconds from the beginning of the replay. `timelines` is borrowed: its first are the streams'.
class ModelledFences {
  public:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    ModelledFences(std::size_t streams, engine::Timelines& timelines)
        : timelines_(timelines), lines_(streams) {
        for (std::size_t i = 0; i < streams; ++i) timelines_.create();
    }

    // Of what ends then, behind all that the stream was given before. Where that is_deep(), `deep`, for a
    // work.
    engine::Use add(engine::TimelineId stream, double end, bool deep = false) {
        Line& line = lines_[stream];
        const bool open = deep && !is_due(line);
        if (line.pending.empty()) busy_.push_back(stream);
        ++line.works;
        ++entered_;
        if (!open) line.works_fenced = line.works;
        if (open && !line.pending.empty() && line.pending.back().open) {
            line.pending.back() = {end, line.last, entered_, line.works, true};
        } else {
            line.pending.push_back({end, ++line.last, entered_, line.works, open});
        }
        return {stream, line.last};
    }

    // So much is unfinished that the shim puts next to nothing into its queue: works leave no event, but for
    // every so many, and the program waits for what comes in, not the stream.
    bool is_deep(engine::TimelineId stream) const { return lines_[stream].unfinished() >= kDeep; }

    // Tells the timelines what has passed by then.
    void poll(double now) {
        std::erase_if(busy_, [&](engine::TimelineId stream) {
            Line& line = lines_[stream];
            while (!line.pending.empty() && line.told_at(0) <= now) {
                line.works_over = line.pending.front().works;
                timelines_.complete(stream, line.pending.front().position);
                line.pending.pop_front();
            }
            return line.pending.empty();
        });
    }

    // When a use is known to be over; 0: it was when last polled.
    double end_of(const engine::Use& use) const {
        const std::size_t index = index_of(use);
        return index == kOver ? 0 : lines_[use.timeline].told_at(index);
    }
    // When the first is that is not over yet.
    double end_of_first(const std::vector<engine::Use>& uses) const {
        const auto use =
            std::ranges::find_if(uses, [&](const engine::Use& each) { return index_of(each) != kOver; });
        return use == uses.end() ? 0 : end_of(*use);
    }
    // In the order of submission; 0: it is over.
    std::uint64_t number_of(const engine::Use& use) const {
        const std::size_t index = index_of(use);
        return index == kOver ? 0 : lines_[use.timeline].pending[index].number;
    }

    // The oldest that is not over yet, of each of the first so many streams that has one.
    std::vector<engine::Use> oldest(std::size_t streams) const {
        std::vector<engine::Use> uses;
        for (const engine::TimelineId stream : busy_) {
            if (stream < streams) uses.push_back({stream, lines_[stream].pending.front().position});
        }
        return uses;
    }

    // When the next of all is over; kNever: nothing is unfinished.
    double next_end() const {
        double next = kNever;
        for (const engine::TimelineId stream : busy_) next = std::min(next, lines_[stream].told_at(0));
        return next;
    }

  private:
    static constexpr std::size_t kOver = ~std::size_t{0};
    static constexpr std::uint64_t kDeep = 16;

    struct Fence {
        double end;
        std::uint64_t position;
        std::uint64_t number;  // of all that were ever added
        std::uint64_t works;   // of its stream, up to here
        bool open;             // it has no event: the next tells of it, or the idle stream
    };
    struct Line {
        std::deque<Fence> pending;
        std::uint64_t last = 0;
        std::uint64_t works = 0;
        std::uint64_t works_over = 0;
        std::uint64_t works_fenced = 0;  // up to the last with an event

        std::uint64_t unfinished() const { return works - works_over; }
        double told_at(std::size_t index) const {
            const bool by_next = pending[index].open && index + 1 < pending.size();
            return pending[by_next ? index + 1 : index].end;
        }
    };

    // Of an eighth of what is unfinished one.
    static bool is_due(const Line& line) { return line.works - line.works_fenced >= line.unfinished() / 8; }

    std::size_t index_of(const engine::Use& use) const {
        const std::deque<Fence>& pending = lines_[use.timeline].pending;
        if (timelines_.finished(use) || pending.empty()) return kOver;
        return use.position - pending.front().position;
    }

    engine::Timelines& timelines_;
    std::vector<Line> lines_;
    std::vector<engine::TimelineId> busy_;  // those with something pending
    std::uint64_t entered_ = 0;
};

}  // namespace lms::tool
