// What is known of a kernel's registers at one place of it, and what each step makes of that. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shim/code/ptx_pointers.h"
#include "shim/code/ptx_steps.h"
#include "shim/code/value_range.h"

namespace lms::code {

// Of all threads that come by.
struct KnownAt {
    std::vector<ValueRange> values;           // by register
    std::vector<const PtxStep*> computed_by;  // whose operands are still what they were; null: none

    friend bool operator==(const KnownAt&, const KnownAt&) = default;

    ValueRange value(const PtxStepOperand& operand) const {
        return operand.reg == kNoRegister ? ValueRange::of(operand.number) : values[operand.reg];
    }
};

ValueRange narrower(ValueRange a, ValueRange b);

// Where inputs that only move accesses along are taken to lead: so far from each other, and from what may be
// an address, that each access shows to which it belongs.
inline constexpr std::int64_t kApart = std::int64_t{1} << 44, kFirst = std::int64_t{1} << 56;
constexpr std::int64_t stand_in(std::uint32_t input) {
    return kFirst + kApart * (input + 1);
}

// By register: those that are computed from it.
using PtxReaders = std::vector<std::vector<RegisterId>>;

class PtxKnown {
  public:
    // `inputs`: the values of PtxSteps::inputs.
    PtxKnown(const PtxPointers& pointers, const PtxReaders& readers, std::span<const std::uint64_t> inputs)
        : pointers_(pointers), readers_(readers), inputs_(inputs) {}

    KnownAt at;

    // The step is done: it gives a register its value.
    void pass(const PtxStep& step);
    // A value by what it was computed from, which may be known better by now.
    ValueRange chained(const PtxStepOperand& operand);
    // What was learnt of a register is so of its copies: LLVM's loops test the next number after they took it
    // over.
    void look_at_copies();

    // How many steps back what is known is looked for.
    static constexpr int kDeep = 12;

  private:
    template <typename ValueOf>
    ValueRange computed(const PtxStep& step, ValueOf&& value_of) const;
    ValueRange input(const PtxStep& step) const;
    ValueRange chained(const PtxStepOperand& operand, int depth);

    const PtxPointers& pointers_;
    const PtxReaders& readers_;
    const std::span<const std::uint64_t> inputs_;
    int looked_at_ = 0;
};

}  // namespace lms::code
