// Shared memory that threads of a warp hand to one another without a word: on hardware that runs them in step
// all have written before any of them reads.
#pragma once

#include <functional>
#include <set>

#include "tools/simcuda/ptx/ast.h"

namespace simcuda::ptx {

// Loads of shared memory that a store to it may come before, with nothing between the two that `meets`.
// Others need no wait: programs that say where they meet have none.
std::set<const Instruction*> loads_behind_stores(const Function& function,
                                                 const std::function<bool(const Instruction&)>& meets,
                                                 const std::function<bool(const Instruction&)>& stores);

}  // namespace simcuda::ptx
