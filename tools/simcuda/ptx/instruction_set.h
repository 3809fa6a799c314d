// The instructions that compute a value from values: one row each. Adding one means adding a row here and, if
// no C operator does it, a function to the prelude. Instructions with effects of their own (memory, control,
// warps) have handlers instead; emitter.cpp lists them.
#pragma once

#include <string_view>

#include "tools/simcuda/ptx/ast.h"

namespace simcuda::ptx {

// Modifiers every row of a kind accepts beside the ones in its name.
enum RuleFlags : unsigned {
    kPlain = 0,
    kRounds = 1,      // .rn .rz .rm .rp: $r becomes "", "_rz", "_rm", "_rp"
    kFlushes = 2,     // .ftz on operands and result
    kSaturates = 4,   // .sat to [0, 1]
    kThreeTypes = 8,  // of the result and of two sources, each of those of the row
};

struct Rule {
    std::string_view name;  // the opcode and the modifiers that select this row: "mul.hi"
    TypeSet types;          // what the first type may be

    // The types of destination and sources, "t=tt": t first type, s second, w twice as wide as the first, b
    // bits of the first, u u32, i s32, l u64, p predicate.
    std::string_view signature;

    // A C expression: $1.. sources, $t and $s the names of the types, $c the C type of the first, $w of twice
    // its width, $r the rounding mode.
    std::string_view code;
    unsigned flags = kPlain;
};

// The row for an instruction; null when there is none.
const Rule* find_rule(const Instruction& instruction);

}  // namespace simcuda::ptx
