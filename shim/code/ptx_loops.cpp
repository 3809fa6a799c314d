#include "shim/code/ptx_loops.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace lms::code {

namespace {

// Numbers that are added up.
constexpr std::size_t kMostInSum = 64;

class LoopFinder {
  public:
    explicit LoopFinder(const PtxSteps& steps) : steps_(steps) {}

    PtxSteps::Loop look_at(std::size_t number) {
        const FlowLoop& loop = steps_.flow.loops()[number];
        find_given(loop);
        PtxSteps::Loop found{number, std::vector<bool>(steps_.registers), {}, {}};
        for (RegisterId reg = 0; reg < steps_.registers; ++reg) found.changes[reg] = given_[reg].count > 0;
        for (RegisterId reg = 0; reg < steps_.registers; ++reg) {
            if (const auto counter = counter_of(loop, reg)) found.counters.push_back(*counter);
        }
        for (std::uint32_t block = 0; block < steps_.blocks.size(); ++block) {
            if (loop.has[block] && once_a_round(loop, block) && in_each_round(loop, block))
                look_at_test(loop, block, found);
        }
        return found;
    }

  private:
    // The steps in a loop that give a register its value.
    struct Given {
        const PtxStep* step = nullptr;  // the last one
        std::uint32_t block = 0;
        std::size_t count = 0;
    };

    void find_given(const FlowLoop& loop) {
        given_.assign(steps_.registers, {});
        for (std::uint32_t block = 0; block < steps_.blocks.size(); ++block) {
            if (!loop.has[block]) continue;
            for (const PtxStep& step : steps_.blocks[block]) {
                if (step.result != kNoRegister)
                    given_[step.result] = {&step, block, given_[step.result].count + 1};
            }
        }
    }

    // The only such step; null where there are more, or a round may do it twice, or a thread not at all.
    const Given* only(const FlowLoop& loop, RegisterId reg) const {
        const Given& given = given_[reg];
        const bool is_one = given.count == 1 && !given.step->guard && once_a_round(loop, given.block);
        return is_one ? &given : nullptr;
    }

    // It is in no loop within the loop.
    bool once_a_round(const FlowLoop& loop, std::uint32_t block) const {
        return std::ranges::none_of(steps_.flow.loops(), [&](const FlowLoop& other) {
            return other.has[block] && loop.has[other.head] && other.head != loop.head;
        });
    }

    // All that lead back to the head pass it.
    bool in_each_round(const FlowLoop& loop, std::uint32_t block) const {
        return std::ranges::all_of(steps_.flow.blocks()[loop.head].before, [&](std::uint32_t before) {
            return !loop.has[before] || steps_.flow.dominates(block, before);
        });
    }

    // `a` is done in a round before `b` is.
    bool comes_before(const Given& a, std::uint32_t block, const PtxStep* b) const {
        return a.block == block ? a.step < b : steps_.flow.dominates(a.block, block);
    }

    bool is_steady(const PtxStepOperand& value) const {
        return value.reg == kNoRegister || given_[value.reg].count == 0;
    }

    // What such a step adds to its first operand, or to the other one, which becomes `from`. False: it does
    // something else.
    bool add_to(PtxSteps::Loop::Sum& sum, const PtxStep& step, PtxStepOperand& from) const {
        from = step.from[0];
        if (step.what == PtxCompute::Move) return true;
        if (step.what != PtxCompute::Add && step.what != PtxCompute::Subtract) return false;
        PtxStepOperand by = step.from[1];
        if (step.what == PtxCompute::Add && is_steady(from)) std::swap(from, by);
        sum.push_back({by, step.what == PtxCompute::Subtract});
        return is_steady(by);
    }

    // "add next, this, 1; add this, next, 4"
    std::optional<PtxSteps::Loop::Counter> counter_of(const FlowLoop& loop, RegisterId reg) const {
        const Given* given = only(loop, reg);
        if (!given) return std::nullopt;
        PtxSteps::Loop::Counter counter{reg, given->step->type.bits, {}, in_each_round(loop, given->block)};
        for (std::size_t depth = 0; depth < kMostInSum; ++depth) {
            PtxStepOperand from;
            if (given->step->type.bits != counter.bits || !add_to(counter.by, *given->step, from))
                return std::nullopt;
            if (from.reg == reg) return counter.by.empty() ? std::nullopt : std::optional(std::move(counter));
            const Given* const before = from.reg == kNoRegister ? nullptr : only(loop, from.reg);
            // Else the first round may find there whatever the register had before the loop.
            if (!before || !comes_before(*before, given->block, given->step)) return std::nullopt;
            given = before;
        }
        return std::nullopt;
    }

    // The block's way out of the loop: what holds where it stays inside.
    void look_at_test(const FlowLoop& loop, std::uint32_t block, PtxSteps::Loop& found) const {
        const auto& next = steps_.flow.blocks()[block].next;
        if (next.size() != 2 || loop.has[next[0].to] == loop.has[next[1].to]) return;
        const auto& stays = steps_.edges[block][loop.has[next[0].to] ? 0 : 1];
        const Given* const given = stays ? only(loop, stays->predicate) : nullptr;
        if (!given || given->step->what != PtxCompute::Compare || given->step->beside) return;
        if (given->block != block && !steps_.flow.dominates(given->block, block)) return;
        const PtxStep* const test = given->step;
        Comparison comparison = stays->when ? test->comparison : opposite(test->comparison);
        PtxStepOperand left = test->from[0];
        PtxStepOperand right = test->from[1];
        if (!is_steady(right)) {
            std::swap(left, right);
            comparison = mirrored(comparison);
        }
        if (!is_steady(right)) return;
        // "add other, counter, 3": what is compared is the counter and so much more.
        PtxSteps::Loop::Sum added;
        const PtxStep* before = test;
        std::uint32_t at = given->block;
        for (std::size_t depth = 0; depth < kMostInSum && left.reg != kNoRegister; ++depth) {
            for (std::size_t i = 0; i < found.counters.size(); ++i) {
                const auto& counter = found.counters[i];
                if (counter.reg != left.reg) continue;
                if (!counter.always || counter.bits != test->type.bits) return;
                const Given& change = given_[counter.reg];
                const bool is_later = comes_before(change, at, before);
                found.tests.push_back({i, std::move(added), is_later, comparison, test->type, right});
                return;
            }
            const Given* const source = only(loop, left.reg);
            if (!source || !comes_before(*source, at, before)) return;
            before = source->step;
            at = source->block;
            if (before->type.bits != test->type.bits || !add_to(added, *before, left)) return;
        }
    }

    const PtxSteps& steps_;
    std::vector<Given> given_;  // by register, in the loop that is looked at
};

}  // namespace

std::vector<PtxSteps::Loop> loops_of(const PtxSteps& steps) {
    LoopFinder finder(steps);
    std::vector<PtxSteps::Loop> all;
    for (std::size_t i = 0; i < steps.flow.loops().size(); ++i) all.push_back(finder.look_at(i));
    return all;
}

}  // namespace lms::code
