// A kernel's instructions as far as they have a part in where it goes and in the addresses of its accesses:
// numbers, comparisons, accesses. All else gives a value that may be any. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shim/code/kernel_access.h"
#include "shim/code/parameter.h"
#include "shim/code/ptx_body.h"
#include "shim/code/ptx_flow.h"
#include "shim/code/value_range.h"

namespace lms::code {

enum class PtxCompute : std::uint8_t {
    Nothing,  // a value in `range`
    Input,    // a part of the parameters
    Move,
    Add,
    Subtract,
    Multiply,
    MultiplyWide,
    MultiplyHigh,
    MultiplyAdd,
    MultiplyAddWide,
    Divide,
    Remainder,
    ShiftLeft,
    ShiftRight,
    Extract,  // of the first, so many bits from one on
    And,
    Or,
    Xor,
    Not,
    Negate,
    Minimum,
    Maximum,
    Absolute,
    Convert,
    Select,  // the first or the second, by the predicate that is the third
    // Of predicates.
    Compare,
    Both,
    Either,
    Same,  // or its opposite
    // Of memory, at the first operand and `offset`.
    Reach,
};

using RegisterId = std::uint32_t;
inline constexpr RegisterId kNoRegister = ~RegisterId{0};

struct PtxStepOperand {
    RegisterId reg = kNoRegister;  // else a number
    std::int64_t number = 0;
    bool when = true;  // of a predicate: false is its opposite
};

struct PtxStepGuard {
    RegisterId predicate;
    bool when;
};

struct PtxStep {
    PtxCompute what = PtxCompute::Nothing;
    Comparison comparison{};
    IntegerType type{64, true};  // by which operands are read
    IntegerType to{64, true};    // Convert
    bool cuts = false;           // Convert: the register has more bits than `type`
    RegisterId result = kNoRegister;
    PtxStepOperand from[3]{};
    // Compare: and this one too, or this one at least.
    std::optional<PtxStepOperand> beside{};
    bool both = false;
    std::optional<PtxStepGuard> guard{};
    ValueRange range = ValueRange::any();
    std::uint32_t number = 0;  // of the input, or of the access
    std::int64_t offset = 0;
};

// Registers that a launch sets.
enum class ThreadNumber : std::uint8_t { Thread, Block, Threads, Blocks, Lane };

struct PtxSteps {
    struct Loop {
        std::size_t loop;           // of PtxFlow
        std::vector<bool> changes;  // by register: whether it does
        // Of what the loop does not change: numbers, and registers.
        struct Term {
            PtxStepOperand value;
            bool subtracts;
        };
        using Sum = std::vector<Term>;
        // A register that each round adds to.
        struct Counter {
            RegisterId reg;
            unsigned bits;
            Sum by;
            bool always;  // in each round; else it may in some
        };
        std::vector<Counter> counters;
        // What holds whenever it goes on: the counter, and what is added to it, compared with what does not
        // change.
        struct Test {
            std::size_t counter;  // of `counters`
            Sum added;
            bool is_later;  // what is compared is the counter after it was counted up in that round
            Comparison comparison;
            IntegerType type;
            PtxStepOperand with;
        };
        std::vector<Test> tests;
    };
    struct Set {
        RegisterId reg;
        ThreadNumber number;
        unsigned axis;
    };
    struct Access {
        std::uint64_t bytes;  // 0: not known
        ParameterWords words;
        bool written;
    };

    // Nothing where the kernel calls functions, or is too large.
    static std::optional<PtxSteps> of(const PtxModuleText& module, const PtxBodies& kernel,
                                      std::span<const SeenAccess> accesses);

    PtxFlow flow;
    std::vector<std::vector<PtxStep>> blocks;                     // by block
    std::vector<std::vector<std::optional<PtxStepGuard>>> edges;  // by block and FlowBlock::next
    std::vector<Loop> loops;
    std::vector<Set> set;
    std::vector<Parameter> inputs;  // of the parameter block, 1 to 8 bytes each
    std::vector<Access> accesses;
    std::size_t registers = 0;
};

}  // namespace lms::code
