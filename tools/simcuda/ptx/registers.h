// Facts about a function's registers that one instruction alone does not tell.
#pragma once

#include <vector>

#include "tools/simcuda/ptx/ast.h"

namespace simcuda::ptx {

// For each register: may it hold a NaN that f32 arithmetic made? The CPU makes other bits then than the GPU
// does. Correcting them where they are looked at (stores, moves to integers) instead of where they are made
// costs arithmetic nothing.
std::vector<bool> computed_f32_registers(const Function& function);

// Decides which untyped registers (.b32, .b64) are kept in C floats: those that floating-point instructions
// use more often than others do. The choice changes speed, never a result.
void choose_float_registers(Function& function);

}  // namespace simcuda::ptx
