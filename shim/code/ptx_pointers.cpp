#include "shim/code/ptx_pointers.h"

#include <algorithm>
#include <bitset>
#include <utility>

namespace lms::code {

namespace {

constexpr std::size_t kMostInputs = 256;
using Inputs = std::bitset<kMostInputs>;

// Whether the result is that operand and something else that is added to it, or it itself.
bool passes_on(const PtxStep& step, std::size_t operand) {
    switch (step.what) {
        case PtxCompute::Move:
        case PtxCompute::Subtract:
        case PtxCompute::Reach:
            return operand == 0;
        case PtxCompute::Add:
        case PtxCompute::Select:
            return operand <= 1;
        case PtxCompute::MultiplyAdd:
        case PtxCompute::MultiplyAddWide:
            return operand == 2;
        default:
            return false;
    }
}

class PointerFollower {
  public:
    explicit PointerFollower(const PtxSteps& steps) : steps_(steps), in_(steps.registers) {}

    PtxPointers follow() {
        do {
            grown_ = false;
            each([&](const PtxStep& step) { pass(step); });
        } while (grown_);
        each([&](const PtxStep& step) { look(step); });
        PtxPointers result{std::vector<bool>(steps_.inputs.size()),
                           std::vector<std::optional<std::uint32_t>>(steps_.accesses.size())};
        for (std::uint32_t i = 0; i < steps_.inputs.size(); ++i)
            result.moves_along[i] = steps_.inputs[i].bytes == sizeof(std::uint64_t) && !decides_[i];
        each([&](const PtxStep& step) {
            if (step.what != PtxCompute::Reach) return;
            for (std::uint32_t i = 0; i < steps_.inputs.size(); ++i) {
                if (of(step.from[0])[i] && result.moves_along[i]) result.of_access[step.number] = i;
            }
        });
        return result;
    }

  private:
    template <typename Visit>
    void each(Visit&& visit) const {
        for (const auto& block : steps_.blocks) std::ranges::for_each(block, visit);
    }

    Inputs of(const PtxStepOperand& operand) const {
        return operand.reg == kNoRegister ? Inputs() : in_[operand.reg];
    }

    void pass(const PtxStep& step) {
        if (step.result == kNoRegister) return;
        Inputs inputs;
        if (step.what == PtxCompute::Input && step.type.bits == 64) inputs.set(step.number);
        for (std::size_t i = 0; i < std::size(step.from); ++i) {
            if (passes_on(step, i)) inputs |= of(step.from[i]);
        }
        const Inputs before = std::exchange(in_[step.result], in_[step.result] | inputs);
        grown_ |= before != in_[step.result];
    }

    void look(const PtxStep& step) {
        for (std::size_t i = 0; i < std::size(step.from); ++i) {
            if (!passes_on(step, i)) decides_ |= of(step.from[i]);
        }
        // Of a sum of two, and of one or the other, it is not known with which an access moves along.
        if (step.what == PtxCompute::Reach && of(step.from[0]).count() > 1) decides_ |= of(step.from[0]);
    }

    const PtxSteps& steps_;
    std::vector<Inputs> in_;  // by register: what it may move along with
    Inputs decides_;
    bool grown_ = false;
};

}  // namespace

PtxPointers PtxPointers::of(const PtxSteps& steps) {
    if (steps.inputs.size() > kMostInputs)
        return {std::vector<bool>(steps.inputs.size()),
                std::vector<std::optional<std::uint32_t>>(steps.accesses.size())};
    return PointerFollower(steps).follow();
}

}  // namespace lms::code
