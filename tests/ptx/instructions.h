// Conformance of single instructions: each case is run over all combinations of edge values and random ones
// of its operand types, and compared with a model written apart from the translator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/simcuda/ptx/types.h"

namespace simcuda::testing {

using ptx::Type;
using Bits = std::uint64_t;  // a value of any type; the bits above its width are zero

struct InstructionCase {
    // PTX statements on operands %a, %b, %c, %e and the result %d (registers of the declared types); may use
    // the predicates %p0 to %p3, and nest a scope for registers of its own.
    std::string code;
    Type result;
    std::vector<Type> operands;
    std::function<Bits(const Bits* operands)> expected;
    // Units in the last place the result may be off by (f32 and f64 results).
    double ulps = 0;
};

// Checks all cases; compiles them together. NaN results compare equal whatever their payload, unless
// exact_nan.
void check_instructions(const std::vector<InstructionCase>& cases, bool exact_nan = false);

// Conversions between values and bits.
float f32(Bits bits);
double f64(Bits bits);
Bits bits(float value);
Bits bits(double value);

}  // namespace simcuda::testing
