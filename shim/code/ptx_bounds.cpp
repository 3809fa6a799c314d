#include "shim/code/ptx_bounds.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shim/code/ptx_narrowing.h"
#include "shim/code/ptx_rounds.h"

namespace lms::code {

namespace {

using Place = std::optional<KnownAt>;  // nothing: no thread comes there

constexpr int kMostRounds = 64;
// Parts of a grid that are looked at by themselves.
constexpr std::size_t kMostParts = 64;

// Blocks [first, last] along the grid's first axis.
struct BlockRange {
    std::int64_t first, last;
};

BlockRange all_blocks(const LaunchShape& shape) {
    return {0, std::max<std::int64_t>(std::int64_t{shape.blocks[0]} - 1, 0)};
}

// The numbers that blocks compare their own along that axis with, rising: a kernel that was fused of others
// chooses among these so.
std::vector<std::int64_t> compared_with_block(const PtxSteps& steps) {
    std::vector<char> is_block(steps.registers);
    for (const PtxSteps::Set& set : steps.set)
        is_block[set.reg] = set.number == ThreadNumber::Block && set.axis == 0;
    const auto names_block = [&](const PtxStepOperand& each) {
        return each.reg != kNoRegister && is_block[each.reg] != 0;
    };
    std::vector<std::int64_t> numbers;
    for (const auto& block : steps.blocks) {
        for (const PtxStep& step : block) {
            if (step.what == PtxCompute::Move && names_block(step.from[0])) is_block[step.result] = 1;
            if (step.what == PtxCompute::Compare && names_block(step.from[0]) &&
                step.from[1].reg == kNoRegister)
                numbers.push_back(step.from[1].number);
        }
    }
    std::ranges::sort(numbers);
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    return numbers;
}

// Within each of these all blocks compare alike with such numbers.
std::vector<BlockRange> parts_of(BlockRange blocks, std::span<const std::int64_t> numbers) {
    std::vector<BlockRange> parts;
    for (const std::int64_t number : numbers) {
        for (const std::int64_t cut : {number, number + 1}) {
            if (cut <= blocks.first || cut > blocks.last) continue;
            parts.push_back({blocks.first, cut - 1});
            blocks.first = cut;
        }
    }
    parts.push_back(blocks);
    return parts;
}

// By the input that they move along with, those that are written apart from the others; those that overlap or
// follow one another as one.
void unite(std::vector<RelativeRange>& ranges) {
    const auto kind = [](const RelativeRange& each) { return std::pair(each.input, each.written); };
    std::ranges::sort(ranges, {},
                      [&](const RelativeRange& each) { return std::pair(kind(each), each.begin); });
    std::size_t count = 0;
    for (const RelativeRange& each : ranges) {
        RelativeRange* const last = count > 0 ? &ranges[count - 1] : nullptr;
        if (last && kind(*last) == kind(each) && each.begin <= last->end) {
            last->end = std::max(last->end, each.end);
        } else {
            ranges[count++] = each;
        }
    }
    ranges.resize(count);
}

class Run {
  public:
    Run(const PtxSteps& steps, const PtxPointers& pointers, const PtxReaders& readers,
        const LaunchShape& shape, BlockRange blocks, std::span<const std::uint64_t> inputs)
        : steps_(steps),
          pointers_(pointers),
          shape_(shape),
          blocks_(blocks),
          known_(pointers, readers, inputs),
          at_(steps.flow.blocks().size()),
          is_open_(steps.flow.blocks().size()) {
        is_open_[0] = 1;
    }

    PtxBounds::Answer answer() {
        if (!settle()) return anywhere();
        for (const std::uint32_t block : steps_.flow.order()) {
            if (!at_[block]) continue;
            known_.at = *at_[block];
            for (const PtxStep& step : steps_.blocks[block]) {
                if (step.what == PtxCompute::Reach) {
                    note(step);
                } else {
                    pass(step);
                }
            }
        }
        unite(result_.ranges);
        return std::move(result_);
    }

  private:
    PtxBounds::Answer anywhere() const {
        PtxBounds::Answer all;
        for (const PtxSteps::Access& each : steps_.accesses)
            (each.written ? all.written : all.read).add(each.words);
        return all;
    }

    // ------------------------------------------------------------ to a fixed point

    // False where there is none in sight.
    bool settle() {
        const std::span<const std::uint32_t> order = steps_.flow.order();
        for (int round = 0; std::ranges::find(is_open_, 1) != is_open_.end(); ++round) {
            if (round == kMostRounds) return false;
            for (const std::uint32_t block : order) {
                if (std::exchange(is_open_[block], 0) == 0) continue;
                Place now = arrive(block);
                const PtxSteps::Loop* const loop = loop_at(block);
                if (round > 1 && now && at_[block] && loop) widen(*now, *at_[block], *loop);
                if (now == at_[block]) continue;
                put(block, std::move(now));
            }
        }
        // What was taken for any number may be bounded by how the loop goes on.
        for (int round = 0; round < 2; ++round) {
            for (const PtxSteps::Loop& loop : steps_.loops) is_open_[steps_.flow.loops()[loop.loop].head] = 1;
            for (const std::uint32_t block : order) {
                if (std::exchange(is_open_[block], 0) == 0) continue;
                Place now = arrive(block);
                if (now != at_[block]) put(block, std::move(now));
            }
        }
        return true;
    }

    void put(std::uint32_t block, Place now) {
        at_[block] = std::move(now);
        for (const FlowEdge& edge : steps_.flow.blocks()[block].next) is_open_[edge.to] = 1;
    }

    static void widen(KnownAt& now, const KnownAt& before, const PtxSteps::Loop& loop) {
        for (std::size_t i = 0; i < now.values.size(); ++i) {
            if (loop.changes[i] && now.values[i] != before.values[i]) now.values[i] = ValueRange::any();
        }
    }

    Place arrive(std::uint32_t block) {
        const PtxSteps::Loop* const loop = loop_at(block);
        Place outside;
        Place all;
        if (block == 0) outside = all = beginning();
        for (const std::uint32_t before : steps_.flow.blocks()[block].before) {
            if (!at_[before]) continue;
            leave(before, block, [&](const KnownAt& known) {
                join(all, known);
                if (loop && !inside(*loop, before)) join(outside, known);
            });
        }
        if (loop && all && outside) bound_counters(*loop, *outside, *all);
        return all;
    }

    const PtxSteps::Loop* loop_at(std::uint32_t block) const {
        for (const PtxSteps::Loop& each : steps_.loops) {
            if (steps_.flow.loops()[each.loop].head == block) return &each;
        }
        return nullptr;
    }
    bool inside(const PtxSteps::Loop& loop, std::uint32_t block) const {
        return steps_.flow.loops()[loop.loop].has[block];
    }

    // What is known where `before` goes on to `block`, for each way it does.
    template <typename Visit>
    void leave(std::uint32_t before, std::uint32_t block, Visit&& visit) {
        const auto& next = steps_.flow.blocks()[before].next;
        known_.at = *at_[before];
        for (const PtxStep& step : steps_.blocks[before])
            if (step.what != PtxCompute::Reach) pass(step);
        for (std::size_t i = 0; i < next.size(); ++i) {
            if (next[i].to != block) continue;
            const auto& guard = steps_.edges[before][i];
            // Seldom: a jump to where it goes on anyway.
            const bool again = std::ranges::any_of(std::span(next).subspan(i + 1),
                                                   [&](const FlowEdge& each) { return each.to == block; });
            const Place whole = again ? Place(known_.at) : std::nullopt;
            if (!guard || narrow_where(known_, guard->predicate, guard->when)) {
                if (guard) known_.look_at_copies();
                visit(known_.at);
            }
            if (whole) known_.at = *whole;
        }
    }

    void pass(const PtxStep& step) {
        std::optional<ValueRange> value;
        if (step.what == PtxCompute::Select && !step.guard) value = selected(known_, step);
        known_.pass(step);
        if (value) known_.at.values[step.result] = narrower(known_.at.values[step.result], *value);
    }

    static void join(Place& place, const KnownAt& known) {
        if (!place) {
            place = known;
            return;
        }
        for (std::size_t i = 0; i < known.values.size(); ++i) {
            place->values[i] = joined(64, place->values[i], known.values[i]);
            if (place->computed_by[i] != known.computed_by[i]) place->computed_by[i] = nullptr;
        }
    }

    KnownAt beginning() const {
        KnownAt known{std::vector(steps_.registers, ValueRange::any()),
                      std::vector<const PtxStep*>(steps_.registers, nullptr)};
        for (const PtxSteps::Set& set : steps_.set) known.values[set.reg] = thread_number(set);
        return known;
    }

    ValueRange thread_number(const PtxSteps::Set& set) const {
        const std::int64_t threads = shape_.threads[set.axis];
        const std::int64_t blocks = shape_.blocks[set.axis];
        switch (set.number) {
            case ThreadNumber::Thread:
                return {0, std::max<std::int64_t>(threads - 1, 0)};
            case ThreadNumber::Block:
                if (set.axis == 0) return {blocks_.first, blocks_.last};
                return {0, std::max<std::int64_t>(blocks - 1, 0)};
            case ThreadNumber::Threads:
                return ValueRange::of(threads);
            case ThreadNumber::Blocks:
                return ValueRange::of(blocks);
            case ThreadNumber::Lane:
                break;
        }
        return {0, 31};
    }

    // ------------------------------------------------------------ what it reaches

    void note(const PtxStep& step) {
        const PtxSteps::Access& access = steps_.accesses[step.number];
        const KnownAt whole = step.guard ? known_.at : KnownAt{};
        const bool happens = !step.guard || narrow_where(known_, step.guard->predicate, step.guard->when);
        const ValueRange address =
            happens ? add(64, known_.chained(step.from[0]), ValueRange::of(step.offset)) : ValueRange::of(0);
        if (step.guard) known_.at = whole;
        if (!happens) return;
        const auto addresses = as({64, false}, address);
        constexpr std::int64_t kHighest = std::int64_t{1} << 57;
        // Wider ones come of an index that may be any number of 32 bits, and say less than the buffer does
        // that the parameters lead to.
        constexpr std::int64_t kWidest = std::int64_t{1} << 31;
        if (access.bytes == 0 || address.is_any() || !addresses || addresses->hi >= kHighest ||
            addresses->hi - addresses->lo >= kWidest) {
            (access.written ? result_.written : result_.read).add(access.words);
            return;
        }
        const auto input = pointers_.of_access[step.number];
        const std::int64_t from = input ? stand_in(*input) : 0;
        const std::int64_t begin = addresses->lo - from;
        const std::int64_t end = addresses->hi - from + static_cast<std::int64_t>(access.bytes);
        // What is not near where it is to begin has come from elsewhere.
        if (input && (begin < -kApart / 2 || end > kApart / 2)) {
            (access.written ? result_.written : result_.read).add(access.words);
            return;
        }
        result_.ranges.push_back({begin, end, access.written, input});
    }

    const PtxSteps& steps_;
    const PtxPointers& pointers_;
    const LaunchShape& shape_;
    const BlockRange blocks_;
    PtxKnown known_;             // at the step that is looked at
    std::vector<Place> at_;      // where each block begins
    std::vector<char> is_open_;  // by block: what leads to it is no longer what it was
    PtxBounds::Answer result_;
};

}  // namespace

void AccessBounds::add(const AccessBounds& more) {
    ranges.insert(ranges.end(), more.ranges.begin(), more.ranges.end());
    read.add(more.read);
    written.add(more.written);
}

std::unique_ptr<const PtxBounds> PtxBounds::of(const PtxModuleText& module, const PtxBodies& kernel,
                                               std::span<const SeenAccess> accesses) {
    auto steps = PtxSteps::of(module, kernel, accesses);
    if (!steps) return nullptr;
    return std::unique_ptr<const PtxBounds>(new PtxBounds(std::move(*steps)));
}

PtxBounds::PtxBounds(PtxSteps steps)
    : steps_(std::move(steps)),
      pointers_(PtxPointers::of(steps_)),
      readers_(steps_.registers),
      compared_with_block_(compared_with_block(steps_)) {
    for (const auto& block : steps_.blocks) {
        for (const PtxStep& step : block) {
            if (step.result == kNoRegister) continue;
            const auto add = [&](const PtxStepOperand& from) {
                if (from.reg == kNoRegister) return;
                auto& readers = readers_[from.reg];
                if (std::ranges::find(readers, step.result) == readers.end()) readers.push_back(step.result);
            };
            std::ranges::for_each(step.from, add);
            if (step.beside) add(*step.beside);
        }
    }
}

PtxBounds::Answer PtxBounds::follow(const LaunchShape& shape, std::span<const std::uint64_t> inputs) const {
    const auto of = [&](BlockRange blocks) {
        return Run(steps_, pointers_, readers_, shape, blocks, inputs).answer();
    };
    Answer all = of(all_blocks(shape));
    if (all.read.none() && all.written.none()) return all;
    const std::vector<BlockRange> parts = parts_of(all_blocks(shape), compared_with_block_);
    if (parts.size() == 1 || parts.size() > kMostParts) return all;
    all = {};
    for (const BlockRange& blocks : parts) {
        const Answer part = of(blocks);
        all.ranges.insert(all.ranges.end(), part.ranges.begin(), part.ranges.end());
        all.read.add(part.read);
        all.written.add(part.written);
    }
    unite(all.ranges);
    return all;
}

AccessBounds PtxBounds::placed(const Answer& answer, std::span<const std::uint64_t> inputs) {
    AccessBounds bounds{{}, answer.read, answer.written};
    for (const RelativeRange& each : answer.ranges) {
        const std::uint64_t from = each.input ? inputs[*each.input] : 0;
        const AccessRange range{from + static_cast<std::uint64_t>(each.begin),
                                from + static_cast<std::uint64_t>(each.end), each.written};
        // Nothing is at either end of all addresses.
        if (range.begin < range.end) bounds.ranges.push_back(range);
    }
    return bounds;
}

}  // namespace lms::code
