// Where the threads of a warp meet again after they parted: at the immediate post-dominator of the branch.
#pragma once

#include <functional>
#include <vector>

#include "tools/simcuda/ptx/ast.h"

namespace simcuda::ptx {

struct Joins {
    std::vector<bool> before;     // by statement: parted threads meet before it
    std::vector<unsigned> depth;  // by statement: post-dominators on the way from it to the end
};

// `meets` tells instructions at which the threads of a warp take notice of one another. Only branches between
// which and whose join there is one of them need a join: elsewhere it makes no difference who is ahead.
Joins joins_of(const Function& function, const std::function<bool(const Instruction&)>& meets);

}  // namespace simcuda::ptx
